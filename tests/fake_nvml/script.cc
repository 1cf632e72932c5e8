#include "fake_nvml/script.h"

#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace fake_nvml {

namespace {

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "fake library: %s\n", why.c_str());
  std::exit(97);
}

class Reader {
 public:
  explicit Reader(const char* path) : path_(path), file_(path), script_(std::make_shared<Script>()) {
    if (!file_) give_up(path_ + " cannot be read");
  }

  std::shared_ptr<const Script> read() {
    for (std::string line; std::getline(file_, line);) {
      ++number_;
      line_ = std::istringstream(line.substr(0, line.find('#')));
      if (std::string key; line_ >> key) statement(key);
    }
    return script_;
  }

 private:
  [[noreturn]] void wrong(const std::string& what) {
    give_up(path_ + ":" + std::to_string(number_) + ": " + what);
  }

  template <class T = std::string>
  T word() {
    T value;
    if (!(line_ >> value)) wrong("a word is missing or no number");
    return value;
  }

  uint64_t size() {
    const std::string text = word();
    char* end = nullptr;
    const uint64_t number = std::strtoull(text.c_str(), &end, 10);
    const std::string unit = end;
    if (unit.empty()) return number;
    if (unit == "k") return number << 10;
    if (unit == "M") return number << 20;
    if (unit == "G") return number << 30;
    wrong("no size: " + text);
  }

  std::string rest() {
    std::string text;
    std::getline(line_ >> std::ws, text);
    return text;
  }

  Device& device() {
    if (device_ == nullptr) wrong("belongs to a GPU");
    return *device_;
  }

  Behaviour& behaviour() { return device_ == nullptr ? script_->behaviour : device_->behaviour; }

  void statement(const std::string& key) {
    if (key == "driver")
      script_->driver = word();
    else if (key == "nvml")
      script_->nvml = word();
    else if (key == "cuda")
      script_->cuda = word<int>();
    else if (key == "library")
      library();
    else if (key == "log")
      script_->log = rest();
    else if (key == "error")
      error();
    else if (key == "slow")
      slow();
    else if (key == "hold")
      behaviour().held.insert(word());
    else if (key == "garbage")
      garbage();
    else if (key == "answers")
      answers();
    else if (key == "topology")
      topology();
    else if (key == "gpu")
      gpu();
    else if (key == "instance")
      instance();
    else
      of_device(key);
  }

  void of_device(const std::string& key) {
    if (key == "bus")
      device().bus_id = word();
    else if (key == "name")
      device().name = rest();
    else if (key == "lost")
      device().lost = true;
    else if (key == "memory")
      memory();
    else if (key == "utilization")
      device().utilization = pair();
    else if (key == "clocks")
      device().clocks = pair();
    else if (key == "clock_reasons")
      device().clock_reasons = word<uint64_t>();
    else if (key == "temperature")
      device().temperature = word<uint32_t>();
    else if (key == "power")
      power();
    else if (key == "process")
      process();
    else if (key == "nvlink")
      nvlink();
    else if (key == "node")
      device().node = word<uint32_t>();
    else if (key == "mig")
      device().most_instances = word<uint32_t>();
    else
      wrong("unknown: " + key);
  }

  void library() {
    for (uint32_t& number : script_->library) number = word<uint32_t>();
  }
  void error() {
    const std::string function = word();
    behaviour().errors[function] = word<int>();
  }
  void slow() {
    const std::string function = word();
    behaviour().slow_ms[function] = word<int>();
  }
  void garbage() {
    script_->garbage_seed = word<uint64_t>();
    script_->garbage_percent = word<int>();
  }
  void answers() {
    const std::string digits = word();
    std::string& bytes = script_->answers.emplace();
    for (size_t i = 0; i + 1 < digits.size(); i += 2)
      bytes += static_cast<char>(std::strtol(digits.substr(i, 2).c_str(), nullptr, 16));
  }
  void topology() {
    const int a = word<int>();
    const int b = word<int>();
    script_->topology[{a, b}] = script_->topology[{b, a}] = word<int>();
  }
  void gpu() {
    script_->gpus.emplace_back();
    device_ = &script_->gpus.back();
    device_->uuid = word();
  }
  void instance() {
    if (script_->gpus.empty()) wrong("belongs to a GPU");
    std::vector<Device>& instances = script_->gpus.back().instances;
    instances.emplace_back();
    device_ = &instances.back();
    device_->uuid = word();
    device_->gpu_instance = word<uint32_t>();
    device_->compute_instance = word<uint32_t>();
  }
  void memory() {
    const uint64_t total = size();
    const uint64_t reserved = size();
    device().memory = {total, reserved, size()};
  }
  std::pair<uint32_t, uint32_t> pair() {
    const auto first = word<uint32_t>();
    return {first, word<uint32_t>()};
  }
  void power() {
    device().milliwatts = static_cast<uint32_t>(word<double>() * 1000);
    if (double limit = 0; line_ >> limit) device().limit_milliwatts = static_cast<uint32_t>(limit * 1000);
  }
  void process() {
    Process one = {word<uint32_t>(), 0, false};
    const auto place = line_.tellg();
    if (word() == "unknown") {
      one.used = ~uint64_t{0};
    } else {
      line_.seekg(place);
      one.used = size();
    }
    one.graphics = rest() == "graphics";
    device().processes.push_back(one);
  }
  void nvlink() {
    const std::string other = word();
    const int index = other == "switch" ? kSwitch : std::atoi(other.c_str());
    device().nvlinks.insert(device().nvlinks.end(), word<size_t>(), index);
  }

  std::string path_;
  std::ifstream file_;
  std::shared_ptr<Script> script_;
  std::istringstream line_;
  int number_ = 0;
  Device* device_ = nullptr;
};

}  // namespace

std::pair<int64_t, int64_t> script_version(const char* variable) {
  const char* path = std::getenv(variable);
  struct stat info = {};
  if (path == nullptr || stat(path, &info) != 0) return {};
  return {info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec, static_cast<int64_t>(info.st_ino)};
}

std::shared_ptr<const Script> read_script(const char* variable) {
  const char* path = std::getenv(variable);
  if (path == nullptr) return std::make_shared<Script>();
  const auto version = script_version(variable);
  auto script = std::make_shared<Script>(*Reader(path).read());
  script->version = version;
  return script;
}

}  // namespace fake_nvml
