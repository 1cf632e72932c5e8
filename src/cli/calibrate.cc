// innkeeper calibrate: measures host memory and a disk, and keeps the figures in a file of the user's:
// $XDG_CACHE_HOME/innkeeper/calibration.json, else ~/.cache/innkeeper/calibration.json.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>

#include "base/size.h"
#include "cli/command.h"
#include "cli/measure.h"

namespace innkeeper::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Options {
  std::string folder = ".", size = "256MiB";
  bool json = false, show = false;
};

fs::path file_path() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  fs::path folder;
  if (cache != nullptr && fs::path(cache).is_absolute())
    folder = cache;
  else if (home != nullptr && *home != '\0')
    folder = fs::path(home) / ".cache";
  else
    fail(kFolder, "there is no place for the figures: set HOME or XDG_CACHE_HOME");
  return folder / "innkeeper" / "calibration.json";
}

// Whole or not at all: under another name first.
void save(const fs::path& path, const std::string& text) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  const fs::path draft = path.string() + ".new";
  std::ofstream file(draft);
  file << text;
  file.close();
  if (file.good()) fs::rename(draft, path, error);
  if (!file.good() || error)
    fail(kFolder, "cannot write " + path.string() + (error ? ": " + error.message() : ""));
}

std::string rate(double bytes_per_second) { return fmt::format("{:.2f} GB/s", bytes_per_second / 1e9); }

std::string as_text(const Json& figures) {
  const Json& host = figures.at("host");
  const Json& disk = figures.at("disk");
  std::string text = fmt::format(
      "host memory  copy {}, with {} threads {}\n", rate(host.at("copy_one_thread").get<double>()),
      host.at("threads").get<int>(), rate(host.at("copy_all_threads").get<double>()));
  text += fmt::format(
      "disk         write {}, read {}, latency {:.0f} us{}\n             {}\n",
      rate(disk.at("write").get<double>()), rate(disk.at("read").get<double>()),
      disk.at("latency_seconds").get<double>() * 1e6,
      disk.at("direct").get<bool>() ? "" : " (through the page cache: direct I/O is not possible there)",
      disk.at("folder").get<std::string>());
  return text;
}

Json measure(const Options& options) {
  const Result<Bytes> size = parse_size(options.size, SizeUnits::short_too);
  if (!size.ok()) fail(kUsage, "--size: " + size.status().message());
  if (size.value() < MiB(16) || size.value() > GiB(64))
    fail(kUsage, "--size " + options.size + ": expected 16MiB to 64GiB");
  std::error_code error;
  const fs::path folder = fs::canonical(options.folder, error);
  if (error) fail(kFolder, "--disk " + options.folder + ": " + error.message());
  const Result<HostRates> host = measure_host(size.value());
  if (!host.ok()) fail(kFolder, host.status().message());
  const Result<DiskRates> disk = measure_disk(folder.string(), size.value());
  if (!disk.ok()) fail(kFolder, disk.status().message());
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {{"schema", 1},
          {"time_unix_seconds", std::chrono::duration_cast<std::chrono::seconds>(now).count()},
          {"size_bytes", size.value().count()},
          {"host",
           {{"threads", host.value().threads},
            {"copy_one_thread", host.value().copy_one},
            {"copy_all_threads", host.value().copy_all}}},
          {"disk",
           {{"folder", folder.string()},
            {"direct", disk.value().direct},
            {"write", disk.value().write},
            {"read", disk.value().read},
            {"latency_seconds", disk.value().latency}}}};
}

Json read_back(const fs::path& path) {
  std::ifstream file(path);
  if (!file) fail(kFolder, "there are no figures yet in " + path.string() + ": run innkeeper calibrate");
  Json figures = Json::parse(file, nullptr, false);
  if (figures.is_discarded() || !figures.is_object() || figures.value("schema", 0) != 1)
    fail(kFolder, path.string() + " holds no figures: run innkeeper calibrate");
  return figures;
}

int calibrate(const Options& options) {
  const fs::path path = file_path();
  const Json figures = options.show ? read_back(path) : measure(options);
  if (!options.show) save(path, figures.dump(2) + "\n");
  try {
    print(options.json ? figures.dump(2) + "\n"
                       : as_text(figures) + "             kept in " + path.string() + "\n");
  } catch (const Json::exception&) {  // somebody wrote into the file
    fail(kFolder, path.string() + " holds no figures: run innkeeper calibrate");
  }
  return kDone;
}

}  // namespace

void register_calibrate(CLI::App& program) {
  CLI::App& command =
      *program.add_subcommand("calibrate", "Measure host memory and a disk, and keep the figures");
  const auto options = std::make_shared<Options>();
  command.add_option("--disk", options->folder, "The folder to measure the disk of (this one)")
      ->type_name("FOLDER");
  command.add_option("--size", options->size, "How much to copy, write and read (256MiB)")->type_name("SIZE");
  command.add_flag("--show", options->show, "Show the figures that were kept, measure nothing");
  command.add_flag("--json", options->json, "As JSON, for programs; rates are bytes per second");
  on_run(command, [options] { return calibrate(*options); });
}

}  // namespace innkeeper::cli
