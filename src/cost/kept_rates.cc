#include "cost/kept_rates.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "base/printable.h"

namespace innkeeper::cost {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;
constexpr std::string_view kEnding = ".json";
constexpr std::uintmax_t kMostBytes = 64 << 10;  // of a file
// Rates beyond are no GPU's.
constexpr double kMostFlops = 1e18, kMostBytesPerSecond = 1e15;

// It names a file, so it may not lead elsewhere.
bool is_uuid(std::string_view text) {
  return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-';
  });
}

fs::path file_of(const std::string& folder, const std::string& uuid) {
  return fs::path(folder) / (uuid + std::string(kEnding));
}

bool is_rate(double rate, double most) { return std::isfinite(rate) && rate >= 0 && rate <= most; }

Json to_json(const KeptRates& kept) {
  const Measured& rates = kept.measured;
  return {{"schema", kSchema},
          {"uuid", kept.uuid},
          {"name", kept.name},
          {"driver", kept.driver},
          {"pytorch", kept.pytorch},
          {"link", kept.link},
          {"time_unix_seconds", kept.time},
          {"shared", kept.shared},
          {"slowed", kept.slowed},
          {"precision", kPrecisionNames[static_cast<size_t>(rates.precision)]},
          {"flops", rates.flops},
          {"bytes", rates.bytes},
          {"link_in", rates.in},
          {"link_out", rates.out}};
}

std::optional<KeptRates> from_json(const Json& json, const std::string& uuid) {
  KeptRates kept;
  try {
    if (json.at("schema") != kSchema || json.at("uuid") != uuid) return std::nullopt;
    kept.uuid = uuid;
    kept.name = json.at("name").get<std::string>();
    kept.driver = json.at("driver").get<std::string>();
    kept.pytorch = json.at("pytorch").get<std::string>();
    kept.link = json.at("link").get<double>();
    kept.time = json.at("time_unix_seconds").get<int64_t>();
    kept.shared = json.at("shared").get<bool>();
    kept.slowed = json.at("slowed").get<bool>();
    const auto precision =
        std::find(kPrecisionNames.begin(), kPrecisionNames.end(), json.at("precision").get<std::string>());
    if (precision == kPrecisionNames.end()) return std::nullopt;
    kept.measured = {static_cast<Precision>(precision - kPrecisionNames.begin()),
                     json.at("flops").get<double>(), json.at("bytes").get<double>(),
                     json.at("link_in").get<double>(), json.at("link_out").get<double>()};
  } catch (const Json::exception&) {
    return std::nullopt;
  }
  const Measured& rates = kept.measured;
  const bool sane = is_rate(rates.flops, kMostFlops) && is_rate(rates.bytes, kMostBytesPerSecond) &&
                    is_rate(rates.in, kMostBytesPerSecond) && is_rate(rates.out, kMostBytesPerSecond);
  return sane && rates.any() ? std::optional(kept) : std::nullopt;
}

}  // namespace

bool KeptRates::holds_for(const KeptRates& today) const {
  return !shared && !slowed && uuid == today.uuid && driver == today.driver && pytorch == today.pytorch &&
         link == today.link;
}

std::string kept_rates_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && fs::path(cache).is_absolute()) return (fs::path(cache) / "innkeeper/gpus").string();
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return {};
  return (fs::path(home) / ".cache/innkeeper/gpus").string();
}

std::optional<KeptRates> kept_rates(const std::string& folder, const std::string& uuid) {
  if (folder.empty() || !is_uuid(uuid)) return std::nullopt;
  const fs::path path = file_of(folder, uuid);
  std::error_code error;
  if (!fs::is_regular_file(path, error) || fs::file_size(path, error) > kMostBytes || error)
    return std::nullopt;
  std::ifstream file(path);
  const Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? from_json(json, uuid) : std::nullopt;
}

std::vector<KeptRates> all_kept_rates(const std::string& folder) {
  std::vector<KeptRates> all;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() != kEnding) continue;
    if (std::optional<KeptRates> kept = kept_rates(folder, entry.path().stem().string()))
      all.push_back(std::move(*kept));
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.uuid < b.uuid; });
  return all;
}

Status keep_rates(const std::string& folder, const KeptRates& rates) {
  if (folder.empty()) return Status(Code::unavailable, "set HOME or XDG_CACHE_HOME to keep a GPU's rates");
  if (!is_uuid(rates.uuid))
    return Status(Code::invalid_argument, in_quotes(rates.uuid) + " is no GPU's UUID");
  const fs::path path = file_of(folder, rates.uuid);
  const fs::path draft = path.string() + "." + std::to_string(getpid()) + ".new";
  std::error_code error;
  fs::create_directories(folder, error);
  std::ofstream file(draft);
  // What a driver says need not be text: what is no UTF-8 is replaced.
  file << to_json(rates).dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
  file.close();
  const bool written = file.good();
  if (written) fs::rename(draft, path, error);
  if (written && !error) return {};
  std::error_code ignored;
  fs::remove(draft, ignored);
  return Status(Code::unavailable, "cannot write " + path.string() + (error ? ": " + error.message() : ""));
}

int clear_kept_rates(const std::string& folder) {
  int count = 0;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() != kEnding || !is_uuid(entry.path().stem().string())) continue;
    std::error_code failed;
    if (fs::remove(entry.path(), failed)) ++count;
  }
  return count;
}

}  // namespace innkeeper::cost
