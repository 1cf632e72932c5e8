// NCCL's functions: each enqueues work on a stream of the fake runtime, which runs it as late as it may.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "nccl/abi.h"
#include "nccl/comm.h"
#include "nccl/reduce.h"
#include "runtime/control.h"

namespace fake_nccl {
namespace {

using Work = std::function<void()>;

struct Started {
  void* stream;
  Work work;
};

// Calls between ncclGroupStart and ncclGroupEnd of this thread. Sends go first, or two ranks that send to
// each other would wait for ever.
thread_local int open_groups = 0;
thread_local std::vector<Started> sends, others;

Result launch(void* stream, Work work) {
  auto* const data = new Work(std::move(work));
  const auto run = [](void* given) { (*static_cast<Work*>(given))(); };
  const auto forget = [](void* given) { delete static_cast<Work*>(given); };
  return fake_cuda_launch(stream, run, data, forget) == 0 ? kSuccess : kSystemError;
}

Result start(void* stream, Work work, bool sends_bytes = false) {
  if (open_groups == 0) return launch(stream, std::move(work));
  (sends_bytes ? sends : others).push_back({stream, std::move(work)});
  return kSuccess;
}

// Ends the process if it cannot go on: on a real GPU it would hang until a watchdog ends it.
void need(bool fine, const char* what) {
  if (fine) return;
  std::fprintf(stderr, "fake_nccl: %s\n", what);
  std::abort();
}

std::string bytes_at(const void* data, size_t size) {
  if (size == 0) return {};
  const char* const there = fake_cuda_open(data, size);
  need(there != nullptr, "memory that may not be read");
  return {there, size};
}

char* writable_at(void* data, size_t size) {
  char* const there = size == 0 ? nullptr : fake_cuda_open(data, size);
  need(there != nullptr || size == 0, "memory that may not be written");
  return there;
}

void put(void* data, const std::string& bytes) {
  if (!bytes.empty()) std::memcpy(writable_at(data, bytes.size()), bytes.data(), bytes.size());
}

std::vector<std::string> exchanged(Comm& comm, const std::string& mine) {
  std::vector<std::string> all;
  need(comm.exchange(mine, all), "a rank that does not come");
  return all;
}

// Result of rank `root` alone, or of all (-1); `part`: each rank gets only its own piece.
Result reduce_to(const void* from, void* to, size_t count, Type type, Operation operation, int root,
                 bool part, Comm* comm, void* stream) {
  const size_t size = count * size_of(type);
  if (size_of(type) == 0 || operation > Operation::average) return kInvalidArgument;
  return start(stream, [=] {
    const size_t whole = part ? size * static_cast<size_t>(comm->ranks()) : size;
    const auto all = exchanged(*comm, bytes_at(from, whole));
    if (root >= 0 && root != comm->rank()) return;
    std::string result(whole, '\0');
    need(reduce(all, type, operation, result.data()), "a type that is not here");
    put(to, part ? result.substr(size * static_cast<size_t>(comm->rank()), size) : result);
  });
}

Result join(Comm** comm, int ranks, const UniqueId& id, int rank) {
  *comm = new Comm(std::string(id.internal), rank, ranks);
  return kSuccess;
}

}  // namespace
}  // namespace fake_nccl

using namespace fake_nccl;  // NOLINT

extern "C" {

Result ncclGetVersion(int* version) {
  *version = kVersion;
  return kSuccess;
}

Result ncclGetUniqueId(UniqueId* id) {
  const std::string directory = new_directory();
  if (directory.empty() || directory.size() >= sizeof id->internal) return kSystemError;
  std::memset(id->internal, 0, sizeof id->internal);
  std::memcpy(id->internal, directory.data(), directory.size());
  return kSuccess;
}

Result ncclCommInitRank(Comm** comm, int ranks, UniqueId id, int rank) { return join(comm, ranks, id, rank); }
Result ncclCommInitRankConfig(Comm** comm, int ranks, UniqueId id, int rank, void*) {
  return join(comm, ranks, id, rank);
}
Result ncclCommInitRankScalable(Comm** comm, int ranks, int rank, int, UniqueId* ids, void*) {
  return join(comm, ranks, ids[0], rank);
}
Result ncclCommFinalize(Comm*) { return kSuccess; }
Result ncclCommDestroy(Comm* comm) {
  delete comm;
  return kSuccess;
}
Result ncclCommAbort(Comm* comm) { return ncclCommDestroy(comm); }
Result ncclCommGetAsyncError(Comm*, Result* error) {
  *error = kSuccess;
  return kSuccess;
}
Result ncclCommCount(const Comm* comm, int* count) {
  *count = comm->ranks();
  return kSuccess;
}
Result ncclCommUserRank(const Comm* comm, int* rank) {
  *rank = comm->rank();
  return kSuccess;
}
Result ncclCommRegister(Comm*, void*, size_t, void** handle) {
  *handle = nullptr;
  return kSuccess;
}
Result ncclCommDeregister(Comm*, void*) { return kSuccess; }
const char* ncclGetErrorString(Result error) {
  return error == kSuccess ? "no error" : "an error of the fake";
}
const char* ncclGetLastError(Comm*) { return ""; }

Result ncclGroupStart() {
  ++open_groups;
  return kSuccess;
}

Result ncclGroupEnd() {
  if (--open_groups > 0) return kSuccess;
  Result result = kSuccess;
  for (auto* list : {&sends, &others}) {
    for (Started& each : std::exchange(*list, {})) {
      if (const Result launched = launch(each.stream, std::move(each.work)); launched != kSuccess)
        result = launched;
    }
  }
  return result;
}

Result ncclAllReduce(const void* from, void* to, size_t count, Type type, Operation operation, Comm* comm,
                     void* stream) {
  return reduce_to(from, to, count, type, operation, -1, false, comm, stream);
}
Result ncclReduce(const void* from, void* to, size_t count, Type type, Operation operation, int root,
                  Comm* comm, void* stream) {
  return reduce_to(from, to, count, type, operation, root, false, comm, stream);
}
Result ncclReduceScatter(const void* from, void* to, size_t count, Type type, Operation operation, Comm* comm,
                         void* stream) {
  return reduce_to(from, to, count, type, operation, -1, true, comm, stream);
}

Result ncclBroadcast(const void* from, void* to, size_t count, Type type, int root, Comm* comm,
                     void* stream) {
  const size_t size = count * size_of(type);
  return start(stream, [=] {
    const auto all = exchanged(*comm, root == comm->rank() ? bytes_at(from, size) : std::string());
    put(to, all[static_cast<size_t>(root)]);
  });
}
Result ncclBcast(void* data, size_t count, Type type, int root, Comm* comm, void* stream) {
  return ncclBroadcast(data, data, count, type, root, comm, stream);
}

Result ncclAllGather(const void* from, void* to, size_t count, Type type, Comm* comm, void* stream) {
  const size_t size = count * size_of(type);
  return start(stream, [=] {
    std::string whole;
    for (const std::string& part : exchanged(*comm, bytes_at(from, size))) whole += part;
    put(to, whole);
  });
}

Result ncclAlltoAll(const void* from, void* to, size_t count, Type type, Comm* comm, void* stream) {
  const size_t size = count * size_of(type);
  return start(stream, [=] {
    std::string mine;
    for (const std::string& all : exchanged(*comm, bytes_at(from, size * static_cast<size_t>(comm->ranks()))))
      mine += all.substr(size * static_cast<size_t>(comm->rank()), size);
    put(to, mine);
  });
}

Result ncclSend(const void* from, size_t count, Type type, int to, Comm* comm, void* stream) {
  const size_t size = count * size_of(type);
  return start(
      stream, [=] { need(comm->send(to, bytes_at(from, size)), "no file can be written"); }, true);
}
Result ncclRecv(void* to, size_t count, Type type, int from, Comm* comm, void* stream) {
  const size_t size = count * size_of(type);
  return start(stream, [=] {
    std::string bytes;
    need(comm->receive(from, bytes) && bytes.size() == size, "a rank that sends something else, or nothing");
    put(to, bytes);
  });
}
}
