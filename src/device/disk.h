// The disk node: ranges of one spill file (device/spill_file.h) that no other process can see.
//
// A few threads of the device read and write, and callers get events. Each range has a checksum in memory
// that is compared at every read. A failure of the disk (full, I/O error, short transfer, wrong checksum) is
// the status of the event, with the numbers. Reading a range whose last write failed is a failure too.
//
// A range is written and read from its start: copy_in sets its contents, copy_out reads at most the length
// of the last copy_in. The live bytes never exceed the capacity; when fragmented, the file itself may be up
// to twice as long.
//
// The disk node is neither durable nor a cache.
//
// Thread safety: all methods. A read must wait for the write's event. Ownership: the device must outlive its
// Memory; its destructor completes the work that was put on it.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/thread_annotations.h"
#include "device/device_api.h"
#include "device/spill_file.h"

namespace innkeeper {

class DiskDevice final : public Device {
 public:
  struct Options {
    std::string name = "disk";
    std::string path = {};  // Directory that holds the file.
    Bytes capacity = {};
    int threads = 2;
    bool direct = true;  // True: try to bypass the page cache.
    DiskCalls calls = DiskCalls::of_the_system();
  };
  static Result<std::unique_ptr<DiskDevice>> open(Options options);
  static Result<std::unique_ptr<DiskDevice>> open(std::string path, Bytes capacity);
  ~DiskDevice() override;
  DiskDevice(const DiskDevice&) = delete;
  DiskDevice& operator=(const DiskDevice&) = delete;

  NodeKind kind() const override { return NodeKind::disk; }
  const std::string& name() const override { return options_.name; }
  void attach(NodeId self, Accountant* accountant) override;

  // The address is one of an inaccessible mapping: it stands for the offset, and traps when it is used.
  using Device::allocate;
  Result<Memory> allocate(Bytes size, Queue first) override;
  Bytes live() const override;

  Result<Event> record(Queue queue) override;
  Status wait(Queue queue, const Event& event) override;
  Result<Event> copy_in(void* device, const void* host, Bytes size) override;
  Result<Event> copy_out(void* host, const void* device, Bytes size) override;
  bool can_copy_from(const Device&) const override { return false; }
  Result<Event> copy_peer(void* destination, Device& peer, const void* source, Bytes size) override;
  Bytes trim() override { return Bytes(file_->trim()); }
  Status synchronize() override;
  void set_listener(std::function<void()> listener) override;

  bool direct() const { return file_->direct(); }

 private:
  struct Range;
  struct Job;
  struct Claim;
  class DoneEvent;
  class AllEvent;

  DiskDevice(Options options, std::unique_ptr<SpillFile> file, char* base);
  Status start_threads();
  Result<std::shared_ptr<Range>> make_range(Bytes charged);
  void release(const Range& range);
  Result<Event> submit(Queue queue, const void* device, char* into, const char* from, Bytes size);
  void work();
  Status write(Range& range, const char* from, int64_t size, char* buffer);
  Status read(Range& range, char* into, int64_t size, char* buffer);

  const Options options_;
  const std::unique_ptr<SpillFile> file_;
  char* const base_;  // Base of the addresses that stand for offsets.
  // Set once, before any allocation.
  NodeId self_ = kNoNode;
  Accountant* accountant_ = nullptr;

  Mutex listener_mutex_;  // Held while the listener is called; locked before the listener's own locks.
  std::function<void()> listener_ IK_GUARDED_BY(listener_mutex_);
  mutable Mutex mutex_;
  CondVar work_to_do_;
  std::map<int64_t, std::shared_ptr<Range>> ranges_ IK_GUARDED_BY(mutex_);  // Live ranges by offset.
  // Bytes in use, for the check against the capacity; live() counts them separately.
  int64_t in_use_ IK_GUARDED_BY(mutex_) = 0;
  std::deque<Job> jobs_ IK_GUARDED_BY(mutex_);
  std::array<std::vector<std::shared_ptr<DoneEvent>>, 3> pending_ IK_GUARDED_BY(mutex_);
  std::array<size_t, 3> prune_at_ IK_GUARDED_BY(mutex_) = {
      64, 64, 64};  // Size of pending_ at which events that are over are removed.
  bool stopping_ IK_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace innkeeper
