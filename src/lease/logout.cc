#include "lease/logout.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>

#include "lease/process.h"

namespace innkeeper::lease {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kLastSystemUser = 999;
constexpr std::string_view kSetting = "RemoveIPC";
// Directories that are searched for a file, in the order of precedence.
constexpr const char* kPlaces[] = {"/etc/systemd", "/run/systemd", "/usr/local/lib/systemd",
                                   "/usr/lib/systemd"};

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::optional<bool> as_boolean(std::string_view text) {
  for (const std::string_view no : {"no", "false", "off", "0", "n", "f"})
    if (text == no) return false;
  for (const std::string_view yes : {"yes", "true", "on", "1", "y", "t"})
    if (text == yes) return true;
  return std::nullopt;
}

// `fallback` receives the value in a comment, by which distributions document their default.
void read_setting(const fs::path& path, std::optional<bool>& said, std::optional<bool>& fallback) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::string_view text = trimmed(line);
    const bool comment = text.starts_with('#');
    if (comment) text = trimmed(text.substr(1));
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos || trimmed(text.substr(0, equals)) != kSetting) continue;
    const std::optional<bool> value = as_boolean(trimmed(text.substr(equals + 1)));
    if (value) (comment ? fallback : said) = value;
  }
}

bool is_there(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

}  // namespace

bool logind_removes_ipc(const std::string& root) {
  std::optional<bool> said, fallback;
  for (const char* place : kPlaces) {
    const std::string path = root + place + "/logind.conf";
    if (!is_there(path)) continue;
    read_setting(path, said, fallback);
    break;
  }
  std::map<std::string, fs::path> more;  // Files by name: of two with one name the first counts.
  for (const char* place : kPlaces) {
    std::error_code error;
    fs::directory_iterator each(root + place + "/logind.conf.d", error);
    for (; !error && each != fs::directory_iterator(); each.increment(error))
      if (each->path().extension() == ".conf") more.emplace(each->path().filename().string(), each->path());
  }
  std::optional<bool> ignored;
  for (const auto& [name, path] : more) read_setting(path, said, ignored);
  return said.value_or(fallback.value_or(true));
}

std::string removed_at_logout(const Directory& directory) {
  const uid_t user = geteuid();
  if (!directory.path().starts_with("/dev/shm/") || user <= kLastSystemUser) return {};
  if (!is_there("/run/systemd/sessions") || !logind_removes_ipc("")) return {};
  const std::string name = user_name(user);
  if (is_there("/var/lib/systemd/linger/" + name)) return {};
  return "leases in " + directory.path() + " are removed when " + name +
         " logs out (RemoveIPC= of systemd-logind), whatever still runs; as root: innkeeper setup, or "
         "loginctl enable-linger " +
         std::to_string(user);
}

}  // namespace innkeeper::lease
