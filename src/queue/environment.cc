#include "queue/environment.h"

#include <algorithm>

extern char** environ;

namespace innkeeper::queue {
namespace {

bool is_of(std::string_view entry, std::string_view name) {
  return entry.size() > name.size() && entry[name.size()] == '=' && entry.starts_with(name);
}

}  // namespace

std::vector<std::string> own_environment() {
  std::vector<std::string> list;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) list.emplace_back(*entry);
  return list;
}

std::optional<std::string> variable_in(const std::vector<std::string>& environment, std::string_view name) {
  for (const std::string& entry : environment)
    if (is_of(entry, name)) return entry.substr(name.size() + 1);
  return std::nullopt;
}

void remove_variable(std::vector<std::string>& environment, std::string_view name) {
  std::erase_if(environment, [&](const std::string& entry) { return is_of(entry, name); });
}

void set_variable(std::vector<std::string>& environment, std::string_view name, std::string_view value) {
  remove_variable(environment, name);
  environment.push_back(std::string(name) + "=" + std::string(value));
}

}  // namespace innkeeper::queue
