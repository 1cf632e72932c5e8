// The processes below this one, of which one is the command.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>

namespace innkeeper::keep {

// What the processes of a job queue are called that a command below may have started, and that outlive it:
// the runner with its watcher, and the keepers of its jobs.
inline constexpr const char* kQueueName = "innkeeper-queue";
inline constexpr const char* kJobKeeperName = "innkeeper-keep";

class Children {
 public:
  enum class Queues : uint8_t { count, do_not_count };

  // What became of the command since the last look; each may be null.
  struct Hear {
    std::function<void(int signal)> stopped;
    std::function<void()> continued;
  };

  // Makes this process a subreaper: a descendant whose parent ends becomes its child. So it has children as
  // long as it has descendants. `queues`: whether a job queue's processes are the command's. A queue that is
  // first used in a command serves others too, and a job may wait for the very GPU that the command has.
  explicit Children(Queues queues = Queues::count);

  void set_command(pid_t command) { command_ = command; }
  // Waits for all that have ended.
  void look(const Hear& hear);

  pid_t command() const { return command_; }  // 0: not known
  bool running() const { return command_ > 0 && !ended_; }
  bool stopped() const { return stopped_; }
  bool ended() const { return ended_; }
  int status() const { return status_; }  // of wait(), once it has ended
  bool none() const { return none_; }  // nothing that counts is left below this process, as of the last look

  // To the command, as its sender sent it.
  void signal(int number, int code = 0, int value = 0) const;

 private:
  const Queues queues_;
  pid_t command_ = 0;
  bool ended_ = false, stopped_ = false, none_ = false;
  int status_ = 0;
};

}  // namespace innkeeper::keep
