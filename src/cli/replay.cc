// innkeeper replay: estimates the time of a recorded program (innkeeper.record) on a GPU that the machine
// need not have. The GPU's memory may be smaller than the program's working set.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/printable.h"
#include "base/size.h"
#include "cli/command.h"
#include "replay/comparison.h"
#include "replay/truth.h"

namespace innkeeper::cli {
namespace {

using Json = nlohmann::ordered_json;
using replay::Alternative;
using replay::Comparison;
using replay::Row;
using replay::StepCost;
using replay::Varied;
using replay::VariedComparison;

constexpr double kGiga = 1e9, kMicro = 1e-6;

struct Options {
  std::string file;
  std::string gpu = "H100", link;
  std::vector<double> shares = {0.9, 0.8, 0.7, 0.6, 0.5, 0.4};
  int64_t steps = 12;
  double host_bandwidth = replay::kHostBandwidth / kGiga;  // Host bandwidth, GB/s.
  bool as_recorded = false;
  std::string times = "told";
  double host_pace = 0;  // Time of the host per operator, us.
  bool one_clock = false;
  std::optional<uint64_t> truth;
  bool json = false;
  Json figures;  // Figures of the GPU and the link, as JSON.
};

constexpr double kLeast = 0.01;

std::string read_all(const std::string& path) {
  std::FILE* file = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) fail(kUsage, "cannot read " + path + ": " + std::strerror(errno));
  std::string text;
  char buffer[1 << 16];
  for (size_t got = 0; (got = std::fread(buffer, 1, sizeof buffer, file)) > 0;) text.append(buffer, got);
  const bool whole = std::ferror(file) == 0;
  if (file != stdin) std::fclose(file);
  if (!whole) fail(kUsage, "cannot read " + path);
  if (text.starts_with("\x1f\x8b"))
    fail(kUsage, path + " is compressed: zcat " + path + " | innkeeper replay -");
  return text;
}

template <class Model>
Model known(const std::string& what, const std::string& name, Result<Model> model) {
  if (!model.ok()) fail(kUsage, what + ": " + in_quotes(name) + " " + model.status().message());
  return std::move(model.value());
}

// Returns rates per second, and times in seconds.
Json to_json(const cost::GpuModel& gpu, const cost::LinkModel& link) {
  Json flops;
  for (size_t i = 0; i < cost::kPrecisionNames.size(); ++i)
    flops[cost::kPrecisionNames[i]] = gpu.flops(static_cast<cost::Precision>(i));
  return {{"flops", std::move(flops)},
          {"bytes", gpu.bytes()},
          {"launch_seconds", gpu.launch_seconds},
          {"link_bytes", link.bandwidth},
          {"link_seconds", link.latency}};
}

Json to_json(const StepCost& cost) {
  return {{"seconds", cost.seconds}, {"bytes_in", cost.in.count()}, {"bytes_out", cost.out.count()}};
}

Json to_json(const Alternative& other) {
  Json json = {{"least_room", other.least.count()}};
  if (other.cost) json.update(to_json(*other.cost));
  if (other.by_host) json["by_host"] = true;
  return json;
}

Json to_json(const std::vector<StepCost>& steps) {
  Json all = Json::array();
  for (const StepCost& step : steps) all.push_back(to_json(step));
  return all;
}

// Drops the engine's advice at the message's end, which concerns only a running program.
template <class AnyRow>
std::string too_little(const AnyRow& row) {
  const std::string& why = row.fits.message();
  return "too little: " + why.substr(0, why.find("; a larger budget"));
}

// Describes the setting to which the figures apply.
Json setting(const Options& options) {
  Json json = {{"gpu", options.gpu},
               {"link", options.link},
               {"times", options.times},
               {"host_pace_seconds", options.host_pace * kMicro},
               {"one_clock", options.one_clock}};
  if (options.truth) json["truth"] = *options.truth;
  return json;
}

Json to_json(const Comparison& found, const Options& options) {
  Json rows = Json::array();
  for (const Row& row : found.rows) {
    if (!row.fits.ok()) {
      rows.push_back({{"share", row.share}, {"budget", row.budget.count()}, {"failed", too_little(row)}});
      continue;
    }
    rows.push_back({{"share", row.share},
                    {"budget", row.budget.count()},
                    {"planned", to_json(row.planned)},
                    {"recompute", to_json(row.recompute)},
                    {"on_demand", to_json(row.on_demand)},
                    {"by_use", to_json(row.by_use)},
                    {"pager", to_json(row.pager)},
                    {"modules", to_json(row.others.modules)},
                    {"activations", to_json(row.others.activations)},
                    {"optimizer", to_json(row.others.optimizer)},
                    {"offline", to_json(row.offline)},
                    {"host_bytes", row.host.used.count()},
                    {"host_bytes_held", row.host.held.count()},
                    {"roofline_seconds", row.roofline},
                    {"least_bytes_in", row.least_in.count()}});
  }
  Json json = setting(options);
  json.update({{"figures", options.figures},
               {"host_bandwidth", options.host_bandwidth * kGiga},
               {"peak", found.peak.count()},
               {"operators", found.operators},
               {"kernel_seconds", found.kernels},
               {"rows", std::move(rows)}});
  return json;
}

std::string as_text(const Comparison& found, const Options& options) {
  std::string text = fmt::format(
      "{} operators a step, {} at its peak; {:.3f} ms of kernels on a simulated {}, {}\n\n"
      "room                  planned  recompute  on demand  pager  modules  activations  optimizer  "
      "roofline   in, planned   Belady  out, planned   Belady\n",
      found.operators, to_string(found.peak), found.kernels * 1e3, options.gpu, options.link);
  for (const Row& row : found.rows) {
    if (!row.fits.ok()) {
      text += fmt::format("{:>3.0f} % {:>12}  {}\n", 100 * row.share, to_string(row.budget), too_little(row));
      continue;
    }
    const auto times = [&](double seconds) { return fmt::format("{:.2f}x", seconds / found.kernels); };
    const auto other = [&](const Alternative& way) { return way.cost ? times(way.cost->seconds) : "-"; };
    text += fmt::format(
        "{:>3.0f} % {:>12}  {:>9}  {:>9}  {:>9}  {:>5}  {:>7}  {:>11}  {:>9}  {:>8}  {:>12}  {:>7}  {:>12}  "
        "{:>7}\n",
        100 * row.share, to_string(row.budget), times(row.planned.seconds), times(row.recompute.seconds),
        times(row.on_demand.seconds), times(row.pager.seconds), other(row.others.modules),
        other(row.others.activations), other(row.others.optimizer), times(row.roofline),
        to_string(row.planned.in), to_string(row.offline.in), to_string(row.planned.out),
        to_string(row.offline.out));
  }
  return text;
}

Json to_json(const VariedComparison& found, const Options& options) {
  Json rows = Json::array();
  for (const Varied& row : found.rows) {
    Json json = {{"share", row.share}, {"budget", row.budget.count()}};
    if (row.fits.ok()) {
      json.update({{"planned", to_json(row.planned)}, {"on_demand", to_json(row.on_demand)}});
    } else {
      json["failed"] = too_little(row);
    }
    rows.push_back(std::move(json));
  }
  Json json = setting(options);
  json.update({{"peak", found.peak.count()}, {"kernel_seconds", found.kernels}, {"rows", std::move(rows)}});
  return json;
}

StepCost sum_of(const std::vector<StepCost>& steps) {
  StepCost sum;
  for (const StepCost& step : steps) {
    sum.seconds += step.seconds;
    sum.in += step.in;
    sum.out += step.out;
  }
  return sum;
}

std::string as_text(const VariedComparison& found, const Options& options) {
  const double kernels = std::accumulate(found.kernels.begin(), found.kernels.end(), 0.0);
  std::string text = fmt::format(
      "{} steps as recorded, {} at their peak; {:.3f} ms of kernels in all on a simulated {}, {}\n\n"
      "room                  planned  on demand  in, planned  on demand  out, planned  on demand\n",
      found.kernels.size(), to_string(found.peak), kernels * 1e3, options.gpu, options.link);
  for (const Varied& row : found.rows) {
    if (!row.fits.ok()) {
      text += fmt::format("{:>3.0f} % {:>12}  {}\n", 100 * row.share, to_string(row.budget), too_little(row));
      continue;
    }
    const StepCost planned = sum_of(row.planned), on_demand = sum_of(row.on_demand);
    text += fmt::format("{:>3.0f} % {:>12}  {:>8.2f}x {:>9.2f}x  {:>11}  {:>9}  {:>12}  {:>9}\n",
                        100 * row.share, to_string(row.budget), planned.seconds / kernels,
                        on_demand.seconds / kernels, to_string(planned.in), to_string(on_demand.in),
                        to_string(planned.out), to_string(on_demand.out));
  }
  return text;
}

template <class Found>
void show(const Found& found, const Options& options) {
  print(options.json ? to_json(found, options).dump(2, ' ', false, Json::error_handler_t::replace) + "\n"
                     : as_text(found, options));
}

template <class Found>
int outcome_of(const Result<Found>& found, const Options& options) {
  if (!found.ok()) fail(kUsage, options.file + ": " + found.status().message());
  show(found.value(), options);
  const auto& rows = found.value().rows;
  const bool any = std::any_of(rows.begin(), rows.end(), [](const auto& row) { return row.fits.ok(); });
  return any ? kDone : kTrouble;
}

int run(Options options) {
  for (const double share : options.shares)
    if (!(share >= kLeast && share <= 1)) fail(kUsage, "--share: a part is from 0.01 to 1");
  auto gpu = known("--gpu", options.gpu, cost::gpu_named(options.gpu));
  if (options.link.empty()) options.link = gpu.link;
  auto link = known("--link", options.link, cost::link_named(options.link));
  options.gpu = gpu.name;
  options.link = link.name;
  options.figures = to_json(gpu, link);
  const Result<trace::AccessRecord> record = trace::parse_record(read_all(options.file));
  if (!record.ok()) fail(kUsage, options.file + ": " + record.status().message());
  trace::AccessRecord truth = record.value();
  if (options.truth) {
    const cost::Truth drawn(*options.truth);
    truth = replay::with_true_kernels(truth, drawn);
    gpu = drawn.with_true_memory(gpu);
    link = drawn.with_true_rate(link);
  }
  using By = replay::KernelTimes::By;
  replay::KernelTimes times;
  if (options.times == "model") times = {By::model, &record.value()};
  if (options.times == "unknown") times.by = By::none;
  times.host_seconds = options.host_pace * kMicro;
  times.one_clock = options.one_clock;
  if (options.as_recorded)
    return outcome_of(replay::compare_as_recorded(truth, gpu, link, options.shares, times), options);
  return outcome_of(
      replay::compare(truth, gpu, link, options.shares, options.steps, options.host_bandwidth * kGiga, times),
      options);
}

// Used instead of CLI::Range, which accepts NaN. It reads text as CLI11 does, by strtod.
CLI::Validator between(double least, double most) {
  const auto says_why = [=](const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    const bool fits = !text.empty() && *end == '\0' && value >= least && value <= most;
    return fits ? std::string() : fmt::format("{} is no number from {:g} to {:g}", text, least, most);
  };
  return CLI::Validator(says_why, fmt::format("NUMBER in [{:g} - {:g}]", least, most));
}

}  // namespace

void register_replay(CLI::App& program) {
  auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand(
      "replay", "What a recorded program would take on another GPU, or with less room");
  command->add_option("FILE", options->file, "A record that innkeeper.record() wrote; - is standard input")
      ->required();
  command
      ->add_option("--gpu", options->gpu,
                   "A GPU that the simulator knows (docs/settings.md), or custom:TFLOPS:GB/s:SIZE")
      ->capture_default_str();
  command->add_option("--link", options->link, "The link between it and the host, or custom:GB/s")
      ->default_str("the GPU's usual one");
  command->add_option("--share", options->shares, "Room, as parts of what the program wants at its peak")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--steps", options->steps, "Steps more than were recorded, each as the last one")
      ->check(CLI::Range(8, 1000))
      ->capture_default_str();
  command
      ->add_option("--host-bandwidth", options->host_bandwidth,
                   "GB/s of the host's memory, where the host makes the optimizer's step")
      ->check(between(1, 1e6))
      ->capture_default_str();
  command->add_flag("--as-recorded", options->as_recorded,
                    "Each step as it was recorded, and no more: with plans and without");
  command
      ->add_option("--times", options->times,
                   "How plans know what kernels take: told by the GPU, by the model, or unknown")
      ->check(CLI::IsMember({"told", "model", "unknown"}))
      ->capture_default_str();
  command
      ->add_option("--truth", options->truth,
                   "A seed: kernels take half to twice what the model says, memory and link 0.6 to all of "
                   "their rates")
      ->type_name("SEED");
  command
      ->add_option("--host-pace", options->host_pace,
                   "Microseconds that the host takes to launch each kernel")
      ->check(between(0, 1e6))
      ->capture_default_str();
  command->add_flag("--one-clock", options->one_clock, "Plans know the GPU's clock, and not the host's");
  command->add_flag("--json", options->json, "As JSON: seconds and bytes a step");
  on_run(*command, [options] { return run(*options); });
}

}  // namespace innkeeper::cli
