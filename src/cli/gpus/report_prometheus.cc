// Prints the survey as metrics in Prometheus' text format (version 0.0.4). An unknown value has no sample.
#include <fmt/format.h>

#include <functional>

#include "cli/gpus/report.h"

namespace innkeeper::cli {
namespace {

// Escapes a label's value: the format requires it for backslash, quote and newline.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || c == '"') result += '\\';
    result += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return result;
}

class Metrics {
 public:
  void begin(const char* name, const char* help) {
    name_ = name;
    text_ += fmt::format("# HELP {} {}\n# TYPE {} gauge\n", name, help, name);
  }
  void sample(const std::string& labels, double value) {
    text_ += fmt::format("{}{}{}{} {}\n", name_, labels.empty() ? "" : "{", labels, labels.empty() ? "" : "}",
                         value);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string name_, text_;
};

double number(Bytes size) { return static_cast<double>(size.count()); }

void add_residents(const Survey& survey, Metrics& metrics) {
  const auto each = [&](const char* name, const char* help, auto value) {
    metrics.begin(name, help);
    for (const Resident& resident : survey.residents)
      for (const board::NodeRow& node : resident.nodes)
        metrics.sample(fmt::format("pid=\"{}\",user=\"{}\",node=\"{}\"", resident.pid,
                                   escaped(resident.owner), escaped(node.name)),
                       value(node));
  };
  using board::NodeRow;
  each("innkeeper_node_budget_bytes", "What a managed device may use of a node.",
       [](const NodeRow& node) { return number(node.budget); });
  each("innkeeper_node_resident_bytes", "What a managed device uses of a node.",
       [](const NodeRow& node) { return number(node.resident); });
  each("innkeeper_node_evictions", "Replicas evicted from a node since the start or the last reset.",
       [](const NodeRow& node) { return static_cast<double>(node.evictions); });
}

}  // namespace

std::string to_prometheus(const Survey& survey) {
  Metrics metrics;
  using Value = std::function<std::optional<double>(const Place&, const telemetry::Gpu&)>;
  const auto each = [&](const char* name, const char* help, const Value& value) {
    metrics.begin(name, help);
    for (const Place& place : survey.places)
      if (const auto now = value(place, survey.snapshot.gpus[place.gpu]))
        metrics.sample(fmt::format("gpu=\"{}\",uuid=\"{}\",name=\"{}\"", escaped(place.label),
                                   escaped(place.uuid), escaped(place.name)),
                       *now);
  };
  const auto memory = [](auto member) -> Value {
    return [member](const Place& place, const telemetry::Gpu&) -> std::optional<double> {
      return place.memory ? std::optional(number((*place.memory).*member)) : std::nullopt;
    };
  };
  using telemetry::Gpu;
  using telemetry::Memory;
  each("innkeeper_gpu_memory_total_bytes", "Memory of the GPU.", memory(&Memory::total));
  each("innkeeper_gpu_memory_used_bytes", "Memory used by processes.", memory(&Memory::used));
  each("innkeeper_gpu_memory_free_bytes", "Memory that nobody uses.", memory(&Memory::free));
  const auto if_known = [&](double (*value)(const lease::Standing&)) -> Value {
    return [&survey, value](const Place& place, const Gpu&) -> std::optional<double> {
      return survey.directory.ok() ? std::optional(value(place.standing)) : std::nullopt;
    };
  };
  using lease::Standing;
  each("innkeeper_gpu_promised_bytes", "Memory promised to leases.",
       if_known([](const Standing& standing) { return number(standing.promised); }));
  each("innkeeper_gpu_foreign_bytes", "Memory used by processes without a lease.",
       if_known([](const Standing& standing) { return number(standing.foreign); }));
  each("innkeeper_gpu_left_bytes", "Memory that can be leased now.", if_known([](const Standing& standing) {
         return standing.taken ? 0.0 : std::max(0.0, number(standing.available));
       }));
  each("innkeeper_gpu_leases", "Leases on the GPU.",
       if_known([](const Standing& standing) { return static_cast<double>(standing.leases); }));
  each("innkeeper_gpu_utilization_ratio", "Part of the time in which a kernel ran.",
       [](const Place& place, const Gpu& gpu) -> std::optional<double> {
         if (!gpu.utilization || place.instance) return std::nullopt;
         return gpu.utilization->compute_percent / 100.0;
       });
  each("innkeeper_gpu_power_watts", "Power drawn by the GPU.",
       [](const Place&, const Gpu& gpu) -> std::optional<double> {
         return gpu.power ? std::optional(gpu.power->watts) : std::nullopt;
       });
  each("innkeeper_gpu_temperature_celsius", "Temperature of the GPU.",
       [](const Place&, const Gpu& gpu) -> std::optional<double> {
         return gpu.temperature_c ? std::optional<double>(*gpu.temperature_c) : std::nullopt;
       });
  metrics.begin("innkeeper_driver_up", "1 if the driver works.");
  metrics.sample("", survey.snapshot.driver.ok() ? 1 : 0);
  metrics.begin("innkeeper_gpus_lost", "GPUs that are there and cannot be used.");
  metrics.sample("", static_cast<double>(survey.snapshot.lost.size()));
  metrics.begin("innkeeper_leases", "Leases held on this machine.");
  metrics.sample("", static_cast<double>(survey.leases.size()));
  metrics.begin("innkeeper_waiting", "Places in the line.");
  metrics.sample("", static_cast<double>(survey.line.size()));
  metrics.begin("innkeeper_lease_used_bytes", "Memory used by a lease's processes.");
  for (const Held& held : survey.leases)
    if (held.used)
      metrics.sample(fmt::format("lease=\"{}\",user=\"{}\"", held.entry.id, escaped(held.owner)),
                     number(*held.used));
  add_residents(survey, metrics);
  return metrics.take();
}

}  // namespace innkeeper::cli
