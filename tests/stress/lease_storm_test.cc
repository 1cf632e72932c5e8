// Many processes request random leases while one sets the wall clock by up to 400 days. They are killed at
// every named step of the protocol, and from outside at any moment. The arbiter never promises more bytes
// than a GPU has, no lease ends before its hour, nothing is left over, and no process repairs anything.
//
// The judge knows nothing of lease files. Each worker writes its grant into shared memory, then adds up all
// grants: of two workers that were promised the same bytes, the later one sees both. A worker takes its entry
// back before it releases, and before it kills itself. The test stops a worker before it kills it from
// outside, and takes its entry back while the worker still holds its lease. So the sum is never more than the
// leased bytes.
//
// INNKEEPER_STORM_GRANTS and INNKEEPER_STORM_KILLS ask for a longer one (30000 and 300), INNKEEPER_SEED
// replays a seed (processes still interleave as they like).
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <random>
#include <thread>

#include "base/clock.h"
#include "lease/kill_point.h"
#include "support/child.h"
#include "support/environment.h"
#include "support/temporary_lease_directory.h"
#include "support/watchdog.h"

namespace innkeeper::lease {
namespace {

using namespace std::chrono_literals;
using test::from_environment;
using test::idle_machine;
using test::TemporaryLeaseDirectory;

constexpr int kWorkers = 32;
constexpr int kGpus = 4;
constexpr int64_t kUnits = 1000;  // MiB of a GPU
constexpr const char* kSteps[] = {"locked",           "scanned",   "before reaping",  "reaped",  "created",
                                  "life locked",      "written",   "readable",        "renamed", "unlocked",
                                  "before rewriting", "rewritten", "before removing", "removed"};
constexpr size_t kStepCount = std::size(kSteps);

// State in memory that all processes share.
struct Shared {
  std::atomic<int64_t> units[kWorkers][kGpus];
  std::atomic<int64_t> clock_error_ns;  // Error of the machine's wall clock, ns.
  std::atomic<uint64_t> jumps, renewed;
  std::atomic<uint64_t> grants, refusals, resized, waited, twice, errors;
  std::atomic<uint64_t> kills[kStepCount];
  std::atomic<bool> dying[kWorkers];  // The worker waits at its step to be killed.
  std::atomic<bool> stop;
};

// State of this worker.
Shared* shared = nullptr;
int self = 0;
int deadly_step = -1;
int passes_left = 0;

void take_back(int worker) {
  for (int gpu = 0; gpu < kGpus; ++gpu) shared->units[worker][gpu] = 0;
}

// In half of the cases chooses the step with the fewest kills, so that none is left out.
void choose_death(std::mt19937_64& fate) {
  const auto fewest = std::min_element(std::begin(shared->kills), std::end(shared->kills),
                                       [](const auto& a, const auto& b) { return a < b; });
  deadly_step = static_cast<int>(fate() % 2 == 0 ? static_cast<size_t>(fewest - std::begin(shared->kills))
                                                 : fate() % kStepCount);
  // Few workers pass the steps that remove dead files: one that had to pass there often would never die, and
  // in the end all workers would be such.
  const bool rare = std::string_view(kSteps[deadly_step]).find("reap") != std::string_view::npos;
  passes_left = static_cast<int>(fate() % (rare ? 2 : 30));
}

void maybe_die(const char* step) {
  if (deadly_step < 0 || std::string_view(step) != kSteps[deadly_step] || passes_left-- > 0) return;
  take_back(self);
  ++shared->kills[deadly_step];
  kill(getpid(), SIGKILL);
  // The first process of a PID namespace cannot kill itself: it stays at its step until the storm does it.
  shared->dying[self] = true;
  for (;;) pause();
}

void write_down(const Lease& lease) {
  for (const Claim& claim : lease.claims())
    for (int gpu = 0; gpu < kGpus; ++gpu)
      if (claim.uuid == test::gpu_name(gpu)) shared->units[self][gpu] = claim.bytes.count() >> 20;
}

void judge() {
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    int64_t sum = 0;
    for (int worker = 0; worker < kWorkers; ++worker) sum += shared->units[worker][gpu];
    if (sum > kUnits) ++shared->twice;
  }
}

class Worker {
 public:
  Worker(const std::shared_ptr<const Directory>& directory, uint64_t seed)
      : arbiter_(directory), random_(seed) {
    // Under load on few cores the queue of 32 processes is long.
    arbiter_.set_lock_limit(60s);
  }

  [[noreturn]] void run() {
    while (!shared->stop) one_lease();
    _exit(0);
  }

 private:
  uint64_t below(uint64_t limit) { return random_() % limit; }

  Request any_request() {
    Request request;
    request.count = below(4) == 0 ? 2 : 1;
    if (below(8) != 0) request.memory = MiB(static_cast<int64_t>(50 + below(500)));
    request.foreign_allowed = Bytes(0);
    if (below(2) == 0) request.expires_after = 1h;
    if (below(4) != 0) return request;
    request.wait = true;
    request.wait_limit = std::chrono::milliseconds(5 + below(50));
    return request;
  }

  void set_clock() {
    constexpr int64_t kMostDays = 400;
    if (below(16) == 0) {
      const int64_t hours = static_cast<int64_t>(below(2 * kMostDays * 24)) - kMostDays * 24;
      shared->clock_error_ns = hours * 3'600'000'000'000;
      ++shared->jumps;
    }
    wall_clock_error_ns = shared->clock_error_ns.load();
  }

  void one_lease() {
    set_clock();
    const Request request = any_request();
    Result<Lease> result = arbiter_.acquire(request, [this]() -> Result<Machine> { return machine_; });
    if (!result.ok()) {
      ++(result.status().code() == Code::busy ? shared->refusals : shared->errors);
      return;
    }
    ++shared->grants;
    if (request.wait) ++shared->waited;
    Lease lease = std::move(result).value();
    write_down(lease);
    judge();
    if (!lease.exclusive() && below(3) == 0) resize(lease);
    if (below(2) == 0) std::this_thread::sleep_for(std::chrono::microseconds(below(2000)));
    set_clock();
    if (request.expires_after && below(3) == 0 && arbiter_.renew(lease, 1h).ok()) ++shared->renewed;
    if (!lease.intact()) ++shared->errors;  // Another process removed a live lease.
    take_back(self);
    lease.release();
  }

  void resize(Lease& lease) {
    const Bytes now = lease.claims()[0].bytes;
    const Bytes then = MiB(static_cast<int64_t>(50 + below(500)));
    // The judge may know fewer bytes than are leased, never more.
    if (then < now)
      for (int gpu = 0; gpu < kGpus; ++gpu)
        shared->units[self][gpu] = std::min<int64_t>(shared->units[self][gpu], then.count() >> 20);
    if (!arbiter_.resize(lease, then, machine_).ok()) return;
    ++shared->resized;
    write_down(lease);
    judge();
  }

  Arbiter arbiter_;
  const Machine machine_ = idle_machine(kGpus, MiB(kUnits));
  std::mt19937_64 random_;
};

class Storm {
 public:
  Storm(const TemporaryLeaseDirectory& directory, uint64_t seed) : directory_(directory), random_(seed) {
    void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared = new (memory) Shared{};
  }
  ~Storm() {
    munmap(shared, sizeof(Shared));
    shared = nullptr;
  }

  void run(uint64_t grants, uint64_t kills, std::chrono::seconds limit) {
    const auto until = std::chrono::steady_clock::now() + limit;
    for (int worker = 0; worker < kWorkers; ++worker) start(worker);
    while ((shared->grants < grants || own_kills() + killed_ < kills || !every_step()) &&
           std::chrono::steady_clock::now() < until) {
      bury(true);
      if (killed_ * 3 < own_kills()) kill_one();
      std::this_thread::sleep_for(2ms);
    }
    shared->stop = true;
    for (; !workers_.empty(); std::this_thread::sleep_for(2ms)) bury(false);
  }
  uint64_t own_kills() const {
    uint64_t sum = 0;
    for (const auto& count : shared->kills) sum += count;
    return sum;
  }
  uint64_t outside_kills() const { return killed_; }
  bool every_step() const {
    return std::all_of(std::begin(shared->kills), std::end(shared->kills),
                       [](const auto& n) { return n > 0; });
  }
  int users() const { return users_; }
  int namespaces() const { return namespaces_; }

 private:
  // Some workers are other users, some are in other PID namespaces, where the machine allows it.
  void start(int worker) {
    const uint64_t seed = random_();
    const pid_t child = worker % 4 == 3 ? fork_in_namespace() : fork();
    if (child == 0) {
      self = worker;
      std::mt19937_64 fate(seed);
      if (geteuid() == 0 && worker % 2 == 1) {
        const uid_t user = 41000 + static_cast<uid_t>(worker % 3);
        // Uses system calls: glibc's functions change all threads of the process, and after a bare clone()
        // wait for threads that are the parent's.
        if (syscall(SYS_setgroups, 0, nullptr) != 0 || syscall(SYS_setgid, user) != 0 ||
            syscall(SYS_setuid, user) != 0)
          _exit(9);
      }
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // A storm that ends early leaves no worker behind.
      choose_death(fate);
      kill_point = &maybe_die;
      Worker(directory_.directory(), seed).run();
    }
    workers_[child] = worker;
  }

  pid_t fork_in_namespace() {
    const auto child = static_cast<pid_t>(syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0));
    if (child >= 0) {
      ++namespaces_;
      return child;
    }
    return fork();
  }

  void bury(bool replace) {
    for (const auto& [child, worker] : workers_)
      if (shared->dying[worker].exchange(false)) kill(child, SIGKILL);
    int status = 0;
    for (pid_t child = 0; (child = waitpid(-1, &status, WNOHANG)) > 0;) {
      const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
      if (!killed && (replace || status != 0)) ++shared->errors;
      const int worker = workers_.at(child);
      workers_.erase(child);
      if (replace) start(worker);
    }
  }

  void kill_one() {
    auto victim = workers_.begin();
    std::advance(victim, static_cast<std::ptrdiff_t>(random_() % workers_.size()));
    const auto [child, worker] = *victim;
    kill(child, SIGSTOP);
    int status = 0;
    if (waitpid(child, &status, WUNTRACED) != child) return;
    if (WIFSTOPPED(status)) {
      take_back(worker);
      kill(child, SIGKILL);
      test::wait_for(child);
      ++killed_;
    }
    workers_.erase(child);
    start(worker);
  }

  const TemporaryLeaseDirectory& directory_;
  std::mt19937_64 random_;
  std::map<pid_t, int> workers_;
  uint64_t killed_ = 0;
  int users_ = geteuid() == 0 ? 4 : 1;
  int namespaces_ = 0;
};

TEST(LeaseStorm, NoByteIsPromisedTwiceWhereverAProcessIsKilled) {
  const uint64_t grants = from_environment("INNKEEPER_STORM_GRANTS", 600);
  const uint64_t kills = from_environment("INNKEEPER_STORM_KILLS", 60);
  const uint64_t seed = from_environment("INNKEEPER_SEED", 1);
  const test::Watchdog watchdog(580s);
  const TemporaryLeaseDirectory directory;
  Storm storm(directory, seed);
  const auto begin = std::chrono::steady_clock::now();
  storm.run(grants, kills, 500s);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf(
      "%lu grants (%lu of them waited for), %lu refusals, %lu resized, %lu killed at named steps and %lu "
      "from outside, %d users, %d processes in PID namespaces of their own, %lu jumps of the clock, %lu "
      "renewed, %.1f s\n",
      (unsigned long)shared->grants, (unsigned long)shared->waited, (unsigned long)shared->refusals,
      (unsigned long)shared->resized, (unsigned long)storm.own_kills(), (unsigned long)storm.outside_kills(),
      storm.users(), storm.namespaces(), (unsigned long)shared->jumps, (unsigned long)shared->renewed,
      seconds);
  for (size_t step = 0; step < kStepCount; ++step)
    std::printf("  %-16s %lu\n", kSteps[step], (unsigned long)shared->kills[step]);
  EXPECT_EQ(shared->twice, 0U);
  EXPECT_EQ(shared->errors, 0U);
  EXPECT_GE(shared->grants, grants);
  EXPECT_GE(storm.own_kills() + storm.outside_kills(), kills);
  EXPECT_TRUE(storm.every_step());
  EXPECT_GT(shared->jumps, 0U);

  // Nothing leaks: the next caller gets all GPUs at once, and its call leaves no dead file.
  Request all;
  all.count = kGpus;
  Arbiter arbiter = directory.arbiter();
  {
    const Result<Lease> lease = arbiter.acquire(all, idle_machine(kGpus, MiB(kUnits)));
    EXPECT_TRUE(lease.ok()) << lease.status().message();
    EXPECT_EQ(directory.files(), 1);
  }
  EXPECT_EQ(directory.files(), 0);
}

}  // namespace
}  // namespace innkeeper::lease
