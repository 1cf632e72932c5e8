#include "device/disk.h"

#include <sys/mman.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/log.h"
#include "device/checksum.h"

namespace innkeeper {
namespace {

constexpr int64_t kPart = SpillFile::kPart;

// Returns the largest length of the file: it exceeds the capacity, since space between ranges may not fit.
int64_t file_limit(Bytes capacity) { return 2 * SpillFile::round_to_page(capacity.count()); }

}  // namespace

// A live range. Jobs share it, so that its space is not reused under them.
struct DiskDevice::Range {
  Range(DiskDevice& owner, int64_t start, int64_t bytes) : device(owner), offset(start), charged(bytes) {}
  ~Range() { device.file_->give_back(offset, SpillFile::round_to_page(charged)); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

  DiskDevice& device;
  const int64_t offset;
  const int64_t charged;  // Charged bytes: round_up(size).
  // A job sets these fields, and a reader waits for that job first. They are atomic so that a reader that did
  // not wait gets a failure and no data race.
  std::atomic<int64_t> written = 0;
  std::atomic<uint64_t> sum = 0;
  std::atomic<bool> damaged = false;  // True: the last write failed.
};

struct DiskDevice::Claim {
  std::shared_ptr<Range> range;
};

class DiskDevice::DoneEvent final : public EventState {
 public:
  bool done() override {
    MutexLock lock(mutex_);
    return done_;
  }
  Status synchronize() override {
    MutexLock lock(mutex_);
    while (!done_) finished_.wait(mutex_);
    seen_ = true;
    return status_;
  }
  // Returns whether the work is done and its failure, if any, was reported: a later record()
  // need not report it.
  bool settled() {
    MutexLock lock(mutex_);
    return done_ && (seen_ || status_.ok());
  }
  void finish(Status status) {
    MutexLock lock(mutex_);
    status_ = std::move(status);
    done_ = true;
    finished_.notify_all();
  }

 private:
  Mutex mutex_;
  CondVar finished_;
  bool done_ IK_GUARDED_BY(mutex_) = false;
  bool seen_ IK_GUARDED_BY(mutex_) = false;
  Status status_ IK_GUARDED_BY(mutex_);
};

class DiskDevice::AllEvent final : public EventState {
 public:
  explicit AllEvent(std::vector<std::shared_ptr<DoneEvent>> parts) : parts_(std::move(parts)) {}
  bool done() override {
    return std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->done(); });
  }
  Status synchronize() override {
    Status first;
    for (const auto& part : parts_) {
      Status status = part->synchronize();
      if (first.ok()) first = std::move(status);
    }
    return first;
  }

 private:
  const std::vector<std::shared_ptr<DoneEvent>> parts_;
};

struct DiskDevice::Job {
  std::shared_ptr<Range> range;
  char* into;        // Destination of a read; null for a write.
  const char* from;  // Source of a write; null for a read.
  int64_t size;
  std::shared_ptr<DoneEvent> event;
};

Result<std::unique_ptr<DiskDevice>> DiskDevice::open(std::string path, Bytes capacity) {
  return open(Options{.path = std::move(path), .capacity = capacity});
}

Result<std::unique_ptr<DiskDevice>> DiskDevice::open(Options options) {
  if (options.capacity.count() <= 0 || options.capacity.count() > int64_t{1} << 45) {
    return Status(Code::invalid_argument, options.name + ": a capacity of " + to_string(options.capacity) +
                                              ", expected 1 B to 32 TiB, as in disk:/tmp:8GiB");
  }
  if (options.threads < 1) {
    return Status(Code::invalid_argument,
                  options.name + ": " + std::to_string(options.threads) + " threads, expected 1 or more");
  }
  const int64_t limit = file_limit(options.capacity);
  Result<std::unique_ptr<SpillFile>> file = SpillFile::open({.name = options.name,
                                                             .directory = options.path,
                                                             .limit = limit,
                                                             .direct = options.direct,
                                                             .calls = options.calls});
  if (!file.ok()) return file.status();
  void* base = ::mmap(nullptr, static_cast<size_t>(limit), PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    return Status(Code::out_of_memory, options.name + ": no " + std::to_string(limit) +
                                           " bytes of addresses (ulimit -v): " + std::strerror(errno));
  }
  struct statvfs space {};
  if (::statvfs(options.path.c_str(), &space) == 0) {
    const Bytes available(static_cast<int64_t>(space.f_bavail) * static_cast<int64_t>(space.f_frsize));
    if (available < options.capacity) {
      log(LogLevel::warn, options.name + ": \"" + options.path + "\" has " + to_string(available) +
                              " free, less than the budget of " + to_string(options.capacity));
    }
  }
  std::unique_ptr<DiskDevice> disk(
      new DiskDevice(std::move(options), std::move(file).value(), static_cast<char*>(base)));
  IK_RETURN_IF_ERROR(disk->start_threads());  // The destructor ends the threads that run.
  return disk;
}

DiskDevice::DiskDevice(Options options, std::unique_ptr<SpillFile> file, char* base)
    : options_(std::move(options)), file_(std::move(file)), base_(base) {}

Status DiskDevice::start_threads() {
  try {
    while (threads_.size() < static_cast<size_t>(options_.threads)) {
      threads_.push_back(options_.calls.start([this] { work(); }));
    }
  } catch (const std::system_error& error) {
    return Status(Code::out_of_memory, name() + ": " + std::to_string(threads_.size()) + " of " +
                                           std::to_string(options_.threads) +
                                           " threads were started: " + error.what());
  }
  return Status::okay();
}

DiskDevice::~DiskDevice() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    work_to_do_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  IK_CHECK(live() == Bytes(0), "a disk must outlive its memory");
  ::munmap(base_, static_cast<size_t>(file_limit(options_.capacity)));
}

void DiskDevice::attach(NodeId self, Accountant* accountant) {
  IK_CHECK(live() == Bytes(0), "a device is attached before its first allocation");
  self_ = self;
  accountant_ = accountant;
}

Result<Memory> DiskDevice::allocate(Bytes size, Queue) {
  if (size.count() <= 0) {
    return Status(Code::invalid_argument, name() + ": asked " + std::to_string(size.count()) + " bytes");
  }
  const Bytes charged = round_up(size);
  if (accountant_ != nullptr) IK_RETURN_IF_ERROR(accountant_->charge(self_, charged));
  Result<std::shared_ptr<Range>> range = make_range(charged);
  if (!range.ok()) {
    if (accountant_ != nullptr) accountant_->uncharge(self_, charged);
    return range.status();
  }
  void* data = base_ + range.value()->offset;
  return Memory(data, charged, new Claim{std::move(range).value()}, [](void* context) {
    const std::unique_ptr<Claim> claim(static_cast<Claim*>(context));
    claim->range->device.release(*claim->range);
  });
}

Result<std::shared_ptr<DiskDevice::Range>> DiskDevice::make_range(Bytes charged) {
  {
    MutexLock lock(mutex_);
    if (charged.count() > options_.capacity.count() - in_use_) {
      return Status(Code::out_of_memory, name() + " is full: asked " + to_string(charged) + ", in use " +
                                             to_string(Bytes(in_use_)) + " of " +
                                             to_string(options_.capacity) + " in \"" + options_.path +
                                             "\"; a larger disk node in INNKEEPER_NODES gives it more");
    }
    in_use_ += charged.count();
  }
  const Result<int64_t> offset = file_->take(SpillFile::round_to_page(charged.count()));
  MutexLock lock(mutex_);
  if (!offset.ok()) {
    in_use_ -= charged.count();
    return offset.status();
  }
  auto range = std::make_shared<Range>(*this, offset.value(), charged.count());
  ranges_[offset.value()] = range;
  return range;
}

void DiskDevice::release(const Range& range) {
  const Bytes charged(range.charged);
  {
    MutexLock lock(mutex_);
    ranges_.erase(range.offset);
    in_use_ -= charged.count();
  }
  if (accountant_ != nullptr) accountant_->uncharge(self_, charged);
}

Bytes DiskDevice::live() const {
  MutexLock lock(mutex_);
  int64_t total = 0;
  for (const auto& [offset, range] : ranges_) total += range->charged;
  return Bytes(total);
}

Result<Event> DiskDevice::record(Queue queue) {
  MutexLock lock(mutex_);
  auto& pending = pending_[static_cast<size_t>(queue)];
  std::erase_if(pending, [](const auto& event) { return event->settled(); });
  if (pending.empty()) return Event();
  return Event(std::make_shared<AllEvent>(pending));
}

Status DiskDevice::wait(Queue, const Event& event) {
  return event == nullptr ? Status::okay() : event->synchronize();
}

void DiskDevice::set_listener(std::function<void()> listener) {
  MutexLock lock(listener_mutex_);
  listener_ = std::move(listener);
}

Status DiskDevice::synchronize() {
  Status first;
  for (Queue queue : {Queue::copy_in, Queue::copy_out}) {
    Status status = wait(queue, record(queue).value());
    if (first.ok()) first = std::move(status);
  }
  return first;
}

Result<Event> DiskDevice::copy_in(void* device, const void* host, Bytes size) {
  return submit(Queue::copy_in, device, nullptr, static_cast<const char*>(host), size);
}

Result<Event> DiskDevice::copy_out(void* host, const void* device, Bytes size) {
  return submit(Queue::copy_out, device, static_cast<char*>(host), nullptr, size);
}

Result<Event> DiskDevice::copy_peer(void*, Device& peer, const void*, Bytes size) {
  return Status(Code::invalid_argument, name() + ": " + to_string(size) + " from " + peer.name() +
                                            ": a disk has no peers, copy to the host first");
}

Result<Event> DiskDevice::submit(Queue queue, const void* device, char* into, const char* from, Bytes size) {
  auto event = std::make_shared<DoneEvent>();
  MutexLock lock(mutex_);
  const auto found = ranges_.find(static_cast<const char*>(device) - base_);
  if (found == ranges_.end() || size.count() < 0 || size.count() > found->second->charged) {
    return Status(Code::invalid_argument, name() + ": a copy of " + std::to_string(size.count()) +
                                              " bytes does not lie at the start of a range");
  }
  auto& pending = pending_[static_cast<size_t>(queue)];
  size_t& prune_at = prune_at_[static_cast<size_t>(queue)];
  // Pruned seldom, so that the cost of a job does not grow with the number that wait.
  if (pending.size() >= prune_at) {
    std::erase_if(pending, [](const auto& old) { return old->settled(); });
    prune_at = std::max<size_t>(64, 2 * pending.size());
  }
  pending.push_back(event);
  jobs_.push_back({found->second, into, from, size.count(), event});
  work_to_do_.notify_all();
  return Event(std::move(event));
}

void DiskDevice::work() {
  const auto buffer = SpillFile::make_buffer();
  MutexLock lock(mutex_);
  for (;;) {
    while (jobs_.empty() && !stopping_) work_to_do_.wait(mutex_);
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    Status status = job.from != nullptr ? write(*job.range, job.from, job.size, buffer.get())
                                        : read(*job.range, job.into, job.size, buffer.get());
    job.range.reset();  // The last reference frees the space.
    job.event->finish(std::move(status));
    {
      MutexLock listening(listener_mutex_);
      if (listener_) listener_();
    }
    lock.lock();
  }
}

Status DiskDevice::write(Range& range, const char* from, int64_t size, char* buffer) {
  range.damaged = true;  // Set until the whole range is written.
  uint64_t sum = 0;
  for (int64_t done = 0; done < size; done += kPart) {
    const int64_t part = std::min(kPart, size - done);
    sum = checksum(from + done, static_cast<size_t>(part), sum);
    IK_RETURN_IF_ERROR(file_->write(from + done, part, range.offset + done, buffer));
  }
  range.sum = sum;
  range.written = size;
  range.damaged = false;
  return Status::okay();
}

Status DiskDevice::read(Range& range, char* into, int64_t size, char* buffer) {
  const int64_t written = range.written;
  if (range.damaged) {
    return Status(Code::io_error, name() + ": " + to_string(Bytes(size)) +
                                      " cannot be read, their last write to \"" + options_.path +
                                      "\" failed");
  }
  if (size > written) {
    return Status(Code::invalid_argument, name() + ": " + std::to_string(size) + " bytes are read where " +
                                              std::to_string(written) + " were written");
  }
  uint64_t sum = 0;
  // The checksum covers the whole range, so all of it is read.
  for (int64_t done = 0; done < written; done += kPart) {
    const int64_t part = std::min(kPart, written - done);
    const int64_t wanted = std::clamp<int64_t>(size - done, 0, part);
    char* target = wanted == part ? into + done : buffer;
    IK_RETURN_IF_ERROR(file_->read(target, part, range.offset + done, buffer));
    sum = checksum(target, static_cast<size_t>(part), sum);
    if (target == buffer && wanted > 0) std::memcpy(into + done, buffer, static_cast<size_t>(wanted));
  }
  if (sum == range.sum) return Status::okay();
  return Status(Code::io_error, name() + ": " + std::to_string(written) + " bytes at offset " +
                                    std::to_string(range.offset) + " of the file in \"" + options_.path +
                                    "\" came back changed (checksum): the disk or its memory is faulty");
}

}  // namespace innkeeper
