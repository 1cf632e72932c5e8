#include "cost/kept_rates.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/printable.h"
#include "base/user_cache.h"

namespace innkeeper::cost {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kVersion = "1";
constexpr std::string_view kEnding = ".rates";
constexpr std::uintmax_t kMostBytes = 64 << 10;  // Largest size of a file.
constexpr size_t kMostWord = 200;
// Larger rates are no GPU's.
constexpr double kMostFlops = 1e18, kMostBytesPerSecond = 1e15;

// A UUID names a file, so it must not lead elsewhere.
bool is_uuid(std::string_view text) {
  return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-';
  });
}

fs::path file_of(const std::string& directory, const std::string& uuid) {
  return fs::path(directory) / (uuid + std::string(kEnding));
}

std::string shown(double number) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr};
}

// Writes lines of a name, ": ", and a value.
std::string as_text(const KeptRates& kept) {
  const Measured& rates = kept.measured;
  const std::pair<std::string_view, std::string> values[] = {
      {"version", std::string(kVersion)},
      {"uuid", kept.uuid},
      {"name", printable(kept.name, kMostWord)},
      {"driver", printable(kept.driver, kMostWord)},
      {"pytorch", printable(kept.pytorch, kMostWord)},
      {"link", shown(kept.link)},
      {"time", std::to_string(kept.time)},
      {"shared", kept.shared ? "yes" : "no"},
      {"slowed", kept.slowed ? "yes" : "no"},
      {"precision", std::string(name_of(rates.precision))},
      {"flops", shown(rates.flops)},
      {"bytes", shown(rates.bytes)},
      {"in", shown(rates.in)},
      {"out", shown(rates.out)}};
  std::string text;
  for (const auto& [name, value] : values) text += std::string(name) + ": " + value + "\n";
  return text;
}

class Values {
 public:
  explicit Values(std::istream& file) {
    for (std::string line; std::getline(file, line);) {
      const size_t colon = line.find(": ");
      if (colon != std::string::npos) values_[line.substr(0, colon)] = line.substr(colon + 2);
    }
  }
  // Returns whether the file has every value that was read from it, each of the expected type.
  bool whole() const { return whole_; }

  std::string text(const char* name) {
    const auto found = values_.find(name);
    whole_ &= found != values_.end();
    return found == values_.end() ? std::string() : found->second;
  }
  template <class Number>
  Number number(const char* name) {
    const std::string value = text(name);
    Number number{};
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    whole_ &= error == std::errc() && end == value.data() + value.size();
    return number;
  }
  double rate(const char* name, double most) {
    const auto rate = number<double>(name);
    whole_ &= std::isfinite(rate) && rate >= 0 && rate <= most;
    return rate;
  }
  bool yes(const char* name) {
    const std::string value = text(name);
    whole_ &= value == "yes" || value == "no";
    return value == "yes";
  }

 private:
  std::map<std::string, std::string> values_;
  bool whole_ = true;
};

std::optional<KeptRates> from_text(std::istream& file, const std::string& uuid) {
  Values values(file);
  KeptRates kept{.uuid = uuid,
                 .name = values.text("name"),
                 .driver = values.text("driver"),
                 .pytorch = values.text("pytorch"),
                 .link = values.rate("link", kMostBytesPerSecond),
                 .time = values.number<int64_t>("time"),
                 .shared = values.yes("shared"),
                 .slowed = values.yes("slowed"),
                 .measured = {.flops = values.rate("flops", kMostFlops),
                              .bytes = values.rate("bytes", kMostBytesPerSecond),
                              .in = values.rate("in", kMostBytesPerSecond),
                              .out = values.rate("out", kMostBytesPerSecond)}};
  const auto precision = precision_named(values.text("precision"));
  if (!precision || values.text("version") != kVersion || values.text("uuid") != uuid) return std::nullopt;
  kept.measured.precision = *precision;
  return values.whole() && kept.measured.any() ? std::optional(kept) : std::nullopt;
}

}  // namespace

bool KeptRates::holds_for(const KeptRates& today) const {
  return !shared && !slowed && uuid == today.uuid && name == today.name && driver == today.driver &&
         pytorch == today.pytorch && link == today.link;
}

std::string kept_rates_directory() {
  const std::string cache = user_cache();
  return cache.empty() ? cache : cache + "/gpus";
}

std::optional<KeptRates> kept_rates(const std::string& directory, const std::string& uuid) {
  if (directory.empty() || !is_uuid(uuid)) return std::nullopt;
  const fs::path path = file_of(directory, uuid);
  std::error_code error;
  if (!fs::is_regular_file(path, error) || fs::file_size(path, error) > kMostBytes || error)
    return std::nullopt;
  std::ifstream file(path);
  return from_text(file, uuid);
}

std::vector<KeptRates> all_kept_rates(const std::string& directory) {
  std::vector<KeptRates> all;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    if (entry.path().extension() != kEnding) continue;
    if (std::optional<KeptRates> kept = kept_rates(directory, entry.path().stem().string()))
      all.push_back(std::move(*kept));
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.uuid < b.uuid; });
  return all;
}

Status keep_rates(const std::string& directory, const KeptRates& rates) {
  if (directory.empty()) return Status(Code::unavailable, "set HOME or XDG_CACHE_HOME to keep a GPU's rates");
  if (!is_uuid(rates.uuid))
    return Status(Code::invalid_argument, in_quotes(rates.uuid) + " is no GPU's UUID");
  return write_whole(file_of(directory, rates.uuid).string(), as_text(rates));
}

Result<int> clear_kept_rates(const std::string& directory) {
  const auto failed = [](const fs::path& path, const std::error_code& error) {
    return Status(Code::unavailable, "cannot remove " + path.string() + ": " + error.message());
  };
  int count = 0;
  std::error_code error;
  if (directory.empty() || !fs::exists(directory, error)) return count;
  const fs::directory_iterator entries(directory, error);
  if (error) return failed(directory, error);
  for (const fs::directory_entry& entry : entries) {
    const std::string name = entry.path().filename().string();
    const size_t end = name.find(kEnding);
    if (end == std::string::npos || !is_uuid(name.substr(0, end)) || entry.is_directory(error)) continue;
    const bool whole = end + kEnding.size() == name.size();
    // Otherwise the file is the draft of a killed writer.
    if (!whole && entry.path().extension() != kDraftEnding) continue;
    if (fs::remove(entry.path(), error) && whole) ++count;
    if (error) return failed(entry.path(), error);
  }
  return count;
}

}  // namespace innkeeper::cost
