// The environment of a test: numbers that replay a failure or ask for a longer run, and variables that are
// restored when the test ends.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>

namespace innkeeper::test {

inline uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

// Changes environment variables and restores them in its destructor, so that tests can share a process.
// Objects with the same variable must be destroyed in the reverse order of their construction.
// Not thread safe, because setenv() is not.
class Environment {
 public:
  Environment() = default;
  ~Environment() {
    for (const auto& [name, value] : before_) put(name, value);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  void set(const std::string& name, const std::string& value) {
    remember(name);
    put(name, value);
  }
  void remove(const std::string& name) {
    remember(name);
    put(name, std::nullopt);
  }

 private:
  static void put(const std::string& name, const std::optional<std::string>& value) {
    if (value.has_value()) {
      setenv(name.c_str(), value->c_str(), 1);
    } else {
      unsetenv(name.c_str());
    }
  }
  void remember(const std::string& name) {
    const char* value = std::getenv(name.c_str());
    before_.try_emplace(name, value == nullptr ? std::nullopt : std::optional<std::string>(value));
  }

  std::map<std::string, std::optional<std::string>> before_;  // Values before the first change.
};

}  // namespace innkeeper::test
