#include "fake_nvml/call.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "base/splitmix64.h"

namespace fake_nvml {

void Stage::read_if_changed() {
  if (script_ != nullptr && script_->version == script_version(variable_)) return;
  script_ = read_script(variable_);
  ++generation_;
  draws_ = 0;
}

void Stage::start() {
  const std::lock_guard lock(mutex_);
  if (pid_ != getpid()) starts_ = 0;
  pid_ = getpid();
  ++starts_;
  read_if_changed();
}

void Stage::stop(bool all) {
  const std::lock_guard lock(mutex_);
  starts_ = all ? 0 : starts_ - 1;
}

void Stage::follow_script() {
  const std::lock_guard lock(mutex_);
  if (starts_ > 0 && pid_ == getpid()) read_if_changed();
}

BasicCall::BasicCall(Stage& stage, const char* function) : stage_(stage) {
  {
    const std::lock_guard lock(stage.mutex_);
    script_ = stage.script_;
    generation_ = stage.generation_;
    started_ = stage.starts_ > 0 && stage.pid_ == getpid();
  }
  if (!started_) code_ = stage.not_started_;
  if (script_ == nullptr) started_ = false;
  if (script_ != nullptr) note(function);
  if (started_) follow(script_->behaviour, function);
}

void BasicCall::spoil() {
  if (script_->garbage_percent == 0) return;
  if (script_->answers && stage_.draws_ >= script_->answers->size()) return;
  if (static_cast<int>(draw() % 100) >= script_->garbage_percent) return;
  garbage_ = true;
  if (draw() % 2 == 0) code_ = static_cast<int>(draw() % 3 == 0 ? draw() : draw() % 30);
}

int BasicCall::answer(void* bytes, size_t count, bool text) {
  if (!garbage_) return 0;
  auto* place = static_cast<unsigned char*>(bytes);
  const uint64_t kind = draw() % 4;
  for (size_t i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned char>(draw());
    place[i] = kind == 0 ? 0xFF : kind == 1 && !text ? 0 : text && byte == 0 ? 'x' : byte;
  }
  return 0;
}

uint64_t BasicCall::draw() {
  const uint64_t number = stage_.draws_.fetch_add(1);
  if (!script_->answers) return innkeeper::splitmix64(script_->garbage_seed * 0x10001 + number);
  return number < script_->answers->size() ? static_cast<unsigned char>((*script_->answers)[number]) : 0xFF;
}

void BasicCall::note(const char* function) {
  if (script_->log.empty()) return;
  const int file = open(script_->log.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  const std::string line = std::string(function) + " " + std::to_string(getpid()) + "\n";
  if (file < 0 || write(file, line.data(), line.size()) < 0) abort();
  close(file);
}

void BasicCall::follow(const Behaviour& behaviour, const char* function) {
  if (const auto slow = behaviour.slow_ms.find(function); slow != behaviour.slow_ms.end()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(slow->second));
  }
  while (behaviour.held.contains(function) && script_version(stage_.variable_) == script_->version)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (const auto error = behaviour.errors.find(function); error != behaviour.errors.end())
    code_ = error->second;
}

}  // namespace fake_nvml
