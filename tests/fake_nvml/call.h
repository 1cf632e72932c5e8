// One call of a fake library of any vendor: the steps before and after each function's own work.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "fake_nvml/script.h"

namespace fake_nvml {

// A library's state. A start is good in its own process only: a child of fork() must start again.
class Stage {
 public:
  // `variable` names the script's file; `not_started` is the answer of a call before the start.
  Stage(const char* variable, int not_started) : not_started_(not_started), variable_(variable) {}

  void start();
  void stop(bool all = false);
  // Reads the script if there is another, while the library is started.
  void follow_script();

 private:
  friend class BasicCall;
  void read_if_changed();  // requires: mutex_

  const int not_started_;
  const char* const variable_;
  std::mutex mutex_;
  std::shared_ptr<const Script> script_;
  pid_t pid_ = 0;  // Process that started the library.
  int starts_ = 0;
  uintptr_t generation_ = 1;  // Generation of the GPUs: handles of an older one are stale.
  std::atomic<uint64_t> draws_ = 0;
};

class BasicCall {
 public:
  // Code that the function must return at once; 0: none.
  int code() const { return code_; }
  const Script& script() const { return *script_; }
  uintptr_t generation() const { return generation_; }

  // The function has written its answer: now and then it becomes nonsense.
  int answer(void* bytes, size_t count, bool text = false);
  bool garbage() const { return garbage_; }
  uint64_t draw();

 protected:
  BasicCall(Stage& stage, const char* function);
  // There is a script, and the library is started.
  bool started() const { return started_; }
  void follow(const Behaviour& behaviour, const char* function);
  // After all that is meant: now and then the call fails, or its answer is to become nonsense.
  void spoil();

  int code_ = 0;

 private:
  void note(const char* function);

  Stage& stage_;
  std::shared_ptr<const Script> script_;
  uintptr_t generation_ = 0;
  bool started_ = false;
  bool garbage_ = false;
};

// Return value of a library function: the failure that its call meets, or the value of `write`.
template <class Call, class Write>
int answered(Call call, const Write& write) {
  return call.code() != 0 ? call.code() : write(call);
}

}  // namespace fake_nvml
