// The processes below this one, of which one is the command.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>

namespace innkeeper::keep {

// Names of a job queue's processes: the runner with its watcher, and the keepers of its jobs. A command may
// have started them, and they outlive it.
inline constexpr const char* kQueueName = "innkeeper-queue";
inline constexpr const char* kJobKeeperName = "innkeeper-keep";

class Children {
 public:
  enum class Queues : uint8_t { count, do_not_count };

  // Callbacks for changes of the command since the last look; each may be null.
  struct Hear {
    std::function<void(int signal)> stopped;
    std::function<void()> continued;
  };

  // Makes this process a subreaper: a descendant whose parent ends becomes its child. So it has
  // children as long as it has descendants. `queues`: whether a job queue's processes count as the
  // command's. A queue that a command uses first also serves other users, and a job may wait for the
  // very GPU that the command has.
  explicit Children(Queues queues = Queues::count);

  void set_command(pid_t command) { command_ = command; }
  // Reaps all children that have ended.
  void look(const Hear& hear);

  pid_t command() const { return command_; }  // 0: unknown.
  bool running() const { return command_ > 0 && !ended_; }
  bool stopped() const { return stopped_; }
  bool ended() const { return ended_; }
  int status() const { return status_; }  // Status of wait(), once the command has ended.
  // True: no process that counts was left below this one at the last look.
  bool none() const { return none_; }

  // Sends a signal to the command as its sender sent it.
  void signal(int number, int code = 0, int value = 0) const;

 private:
  const Queues queues_;
  pid_t command_ = 0;
  bool ended_ = false, stopped_ = false, none_ = false;
  int status_ = 0;
};

}  // namespace innkeeper::keep
