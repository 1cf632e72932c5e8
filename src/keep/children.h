// The processes below this one, of which one is the command.
#pragma once

#include <sys/types.h>

#include <functional>

namespace innkeeper::keep {

class Children {
 public:
  // What became of the command since the last look; each may be null.
  struct Hear {
    std::function<void(int signal)> stopped;
    std::function<void()> continued;
  };

  // Makes this process a subreaper: a descendant whose parent ends becomes its child. So it has children as
  // long as it has descendants.
  Children();

  void set_command(pid_t command) { command_ = command; }
  // Waits for all that have ended.
  void look(const Hear& hear);

  pid_t command() const { return command_; }  // 0: not known
  bool running() const { return command_ > 0 && !ended_; }
  bool stopped() const { return stopped_; }
  bool ended() const { return ended_; }
  int status() const { return status_; }  // of wait(), once it has ended
  bool none() const { return none_; }     // nothing is left below this process, as of the last look

  // To the command, as its sender sent it.
  void signal(int number, int code = 0, int value = 0) const;

 private:
  pid_t command_ = 0;
  bool ended_ = false, stopped_ = false, none_ = false;
  int status_ = 0;
};

}  // namespace innkeeper::keep
