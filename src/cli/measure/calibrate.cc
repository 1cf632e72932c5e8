// innkeeper calibrate: measures host memory, a disk and the links of GPUs. The figures are stored in
// $XDG_CACHE_HOME/innkeeper/calibration.json, else in ~/.cache/innkeeper/calibration.json. This program
// holds a lease on a GPU while it measures it. A Python with PyTorch then measures the GPUs themselves
// (gpu_rates.h). Their rates, and those that programs have measured, are shown with these figures and
// cleared with them.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>

#include "base/size.h"
#include "base/user_cache.h"
#include "cli/command.h"
#include "cli/grant/grant.h"
#include "cli/measure/gpu_rates.h"
#include "cli/measure/links.h"
#include "cli/measure/measure.h"
#include "cli/python_beside.h"
#include "cost/kept_rates.h"
#include "lease/from_snapshot.h"
#include "telemetry/visible.h"

namespace innkeeper::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Options {
  std::string directory = ".", size = "256MiB", python = python_beside();
  bool json = false, show = false, clear = false;
};

fs::path file_path() {
  const std::string cache = user_cache();
  if (cache.empty()) fail(kDirectory, "there is no place for the figures: set HOME or XDG_CACHE_HOME");
  return cache + "/calibration.json";
}

// A larger copy does not improve the rate, and a GPU may lack the space.
constexpr Bytes kMostOverLink = MiB(256);

// Names of directories and GPUs may contain bytes that are no UTF-8.
std::string in_lines(const Json& figures) {
  return figures.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
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
      disk.at("directory").get<std::string>());
  for (const Json& link : figures.value("links", Json::array()))
    text += fmt::format("link         {} to {}: {}, latency {:.0f} us{}\n",
                        link.at("from").get<std::string>(), link.at("to").get<std::string>(),
                        rate(link.at("rate").get<double>()), link.at("latency_seconds").get<double>() * 1e6,
                        link.at("direct").get<bool>() ? "" : " (by way of the host)");
  for (const char* left_out : {"links_left_out", "gpus_left_out"})
    for (const Json& why : figures.value(left_out, Json::array()))
      text += "not measured " + why.get<std::string>() + "\n";
  return text;
}

// Returns the rates that programs have measured of GPUs.
Json to_json(const std::vector<cost::KeptRates>& gpus) {
  Json all = Json::array();
  for (const cost::KeptRates& kept : gpus) {
    const cost::Measured& rates = kept.measured;
    all.push_back({{"uuid", kept.uuid},
                   {"name", kept.name},
                   {"time_unix_seconds", kept.time},
                   {"driver", kept.driver},
                   {"pytorch", kept.pytorch},
                   {"shared", kept.shared},
                   {"slowed", kept.slowed},
                   {"precision", cost::name_of(rates.precision)},
                   {"flops", rates.flops},
                   {"bytes", rates.bytes},
                   {"link_in", rates.in},
                   {"link_out", rates.out}});
  }
  return all;
}

std::string as_text(const std::vector<cost::KeptRates>& gpus) {
  const auto one = [](double rate, double unit, std::string_view what) {
    return rate > 0 ? fmt::format("{:.4g} {}", rate / unit, what) : fmt::format("- {}", what);
  };
  std::string text;
  for (const cost::KeptRates& kept : gpus) {
    const cost::Measured& rates = kept.measured;
    text += fmt::format("GPU          {}: {}, {}, {}, {}", kept.uuid,
                        one(rates.flops, 1e12, fmt::format("TFLOP/s {}", cost::name_of(rates.precision))),
                        one(rates.bytes, 1e9, "GB/s memory"), one(rates.in, 1e9, "GB/s in"),
                        one(rates.out, 1e9, "GB/s out"));
    if (kept.shared || kept.slowed)
      text += fmt::format(" ({} then: to be measured again)", kept.shared ? "shared" : "slowed");
    text += '\n';
  }
  return text;
}

// Leases the GPUs that can be measured without disturbing other users: those with this many free bytes.
std::vector<lease::Lease> borrow(lease::Arbiter& arbiter, const telemetry::Snapshot& gpus, Bytes each,
                                 Json& left_out) {
  const lease::Machine machine = lease::from_snapshot(gpus);
  const telemetry::Visible visible = telemetry::visible_from_environment(gpus);
  std::vector<lease::Lease> leases;
  for (const lease::Gpu& gpu : machine.gpus) {
    if (visible.restricted && std::ranges::find(visible.uuids, gpu.uuid) == visible.uuids.end()) continue;
    lease::Request request;
    request.memory = each;
    request.allowed = {gpu.uuid};
    request.job = "calibrate";
    if (const char* outer = std::getenv(lease::kLeaseVariable); outer != nullptr) request.inside = outer;
    Result<lease::Lease> granted = arbiter.acquire(request, machine);
    if (granted.ok())
      leases.push_back(std::move(granted).value());
    else if (granted.status().code() == Code::busy)
      left_out.push_back(gpu.uuid + ": " + to_string(each) +
                         " of it cannot be leased now; innkeeper status says why");
    else
      left_out.push_back(gpu.uuid + ": " + granted.status().message());
  }
  return leases;
}

// Measures the available GPUs and reports the reason for each other one, because figures of the host and the
// disk are useful alone.
void add_gpus(Bytes size, const std::string& python, Json& figures) {
  Json& links = figures["links"] = Json::array();
  Json& left_out = figures["links_left_out"] = Json::array();
  Json& gpus_left_out = figures["gpus_left_out"] = Json::array();
  const telemetry::Snapshot gpus = telemetry::snapshot(telemetry::Wanted::memory);
  if (gpus.gpus.empty()) {
    left_out.push_back("no GPU: " +
                       (gpus.driver.text().empty() ? "the driver sees none" : gpus.driver.text()));
    return;
  }
  lease::Arbiter arbiter = open_arbiter();
  const std::vector<lease::Lease> leases = borrow(arbiter, gpus, size + kLinkOverhead, left_out);
  if (leases.empty()) return;
  std::string uuids;
  for (const lease::Lease& lease : leases) uuids += (uuids.empty() ? "" : ",") + lease.uuids();
  setenv("CUDA_VISIBLE_DEVICES", uuids.c_str(), 1);
  const Status rates = measure_gpu_rates(python);
  if (!rates.ok()) gpus_left_out.push_back(rates.message());
  const Result<std::vector<LinkRate>> measured = measure_links(size, gpus);
  if (!measured.ok()) {
    left_out.push_back(measured.status().message());
    return;
  }
  for (const LinkRate& link : measured.value())
    links.push_back({{"from", link.from},
                     {"to", link.to},
                     {"direct", link.direct},
                     {"rate", link.rate},
                     {"latency_seconds", link.latency}});
  for (const lease::Lease& lease : leases)
    if (std::ranges::none_of(measured.value(),
                             [&](const LinkRate& link) { return link.to == lease.uuids(); }))
      left_out.push_back(lease.uuids() + ": CUDA does not show it to this process");
}

Json measure(const Options& options) {
  const Result<Bytes> size = parse_size(options.size, SizeUnits::short_too);
  if (!size.ok()) fail(kUsage, "--size: " + size.status().message());
  if (size.value() < MiB(16) || size.value() > GiB(64))
    fail(kUsage, "--size " + options.size + ": expected 16MiB to 64GiB");
  std::error_code error;
  const fs::path directory = fs::canonical(options.directory, error);
  if (error) fail(kDirectory, "--disk " + options.directory + ": " + error.message());
  const Result<HostRates> host = measure_host(size.value());
  if (!host.ok()) fail(kDirectory, host.status().message());
  const Result<DiskRates> disk = measure_disk(directory.string(), size.value());
  if (!disk.ok()) fail(kDirectory, disk.status().message());
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  Json figures = {{"schema", 1},
                  {"time_unix_seconds", std::chrono::duration_cast<std::chrono::seconds>(now).count()},
                  {"size_bytes", size.value().count()},
                  {"host",
                   {{"threads", host.value().threads},
                    {"copy_one_thread", host.value().copy_one},
                    {"copy_all_threads", host.value().copy_all}}},
                  {"disk",
                   {{"directory", directory.string()},
                    {"direct", disk.value().direct},
                    {"write", disk.value().write},
                    {"read", disk.value().read},
                    {"latency_seconds", disk.value().latency}}}};
  add_gpus(std::min(size.value(), kMostOverLink), options.python, figures);
  return figures;
}

Json read_back(const fs::path& path) {
  std::ifstream file(path);
  if (!file) fail(kDirectory, "there are no figures yet in " + path.string() + ": run innkeeper calibrate");
  Json figures = Json::parse(file, nullptr, false);
  if (figures.is_discarded() || !figures.is_object() || figures.value("schema", 0) != 1)
    fail(kDirectory, path.string() + " holds no figures: run innkeeper calibrate");
  return figures;
}

int clear(const fs::path& path, bool json) {
  std::error_code error;
  const bool had = fs::remove(path, error);
  if (error) fail(kDirectory, "cannot remove " + path.string() + ": " + error.message());
  const Result<int> found = cost::clear_kept_rates(cost::kept_rates_directory());
  if (!found.ok()) fail(kDirectory, found.status().message());
  const int gpus = found.value();
  const Json cleared = {{"figures", had}, {"gpus", gpus}};
  print(json ? in_lines(cleared)
             : fmt::format("cleared: {}, and what was measured of {} GPU{}\n",
                           had ? "the figures in " + path.string() : "no figures", gpus,
                           gpus == 1 ? "" : "s"));
  return kDone;
}

int calibrate(const Options& options) {
  const fs::path path = file_path();
  if (options.clear) return clear(path, options.json);
  Json figures;
  if (!options.show) {
    figures = measure(options);
    const Status saved = write_whole(path.string(), in_lines(figures));
    if (!saved.ok()) fail(kDirectory, saved.message());
  }
  // Read after measure(), which adds to them.
  const std::vector<cost::KeptRates> gpus = cost::all_kept_rates(cost::kept_rates_directory());
  if (options.show) {
    std::error_code error;
    if (!gpus.empty() && !fs::exists(path, error)) {
      print(options.json ? in_lines({{"gpus", to_json(gpus)}}) : as_text(gpus));
      return kDone;
    }
    figures = read_back(path);
  }
  try {
    const std::string text = as_text(figures) + as_text(gpus);
    figures["gpus"] = to_json(gpus);
    print(options.json ? in_lines(figures) : text + "             kept in " + path.string() + "\n");
  } catch (const Json::exception&) {  // Another program wrote into the file.
    fail(kDirectory, path.string() + " holds no figures: run innkeeper calibrate");
  }
  return kDone;
}

}  // namespace

void register_calibrate(CLI::App& program) {
  CLI::App& command = *program.add_subcommand(
      "calibrate", "Measure host memory, a disk, GPUs and their links, and keep the figures");
  const auto options = std::make_shared<Options>();
  command.add_option("--disk", options->directory, "The directory to measure the disk of (this one)")
      ->type_name("DIRECTORY");
  command.add_option("--size", options->size, "How much to copy, write and read (256MiB)")->type_name("SIZE");
  command
      .add_option("--python", options->python,
                  "Whose PyTorch measures the GPUs (the one beside this program)")
      ->type_name("PYTHON");
  CLI::Option* const show =
      command.add_flag("--show", options->show, "Show the figures that were kept, measure nothing");
  command.add_flag("--clear", options->clear, "Remove all figures, and what programs have measured of GPUs")
      ->excludes(show);
  command.add_flag("--json", options->json, "As JSON, for programs; rates are bytes per second");
  on_run(command, [options] { return calibrate(*options); });
}

}  // namespace innkeeper::cli
