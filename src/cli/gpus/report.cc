#include "cli/gpus/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/command.h"

namespace innkeeper::cli {
namespace {

using lease::Claim;

constexpr size_t kDigitsOfPid = 7;  // Width of the PID column, digits; Linux counts to 4,194,304.

Colour load_colour(double part) {
  if (part >= 0.9) return Colour::red;
  return part >= 0.5 ? Colour::yellow : Colour::green;
}

std::string claim_text(const lease::Record& record) {
  if (record.exclusive) return "whole";
  Bytes most;
  for (const Claim& claim : record.claims) most = std::max(most, claim.bytes);
  return to_string(most) + (record.claims.size() > 1 ? " each" : "");
}

std::string holders_text(const Survey& survey, const Place& place) {
  std::vector<std::string> names;
  for (const Held& held : survey.leases)
    for (const Claim& claim : held.entry.record.claims)
      if (claim.uuid == place.uuid && std::find(names.begin(), names.end(), held.owner) == names.end())
        names.push_back(held.owner);
  return names.empty() ? "-" : joined(names, ",");
}

// Returns "56.0 / 60.0 GiB", or "4.0 MiB / 60.0 GiB" if one unit would not show both.
std::string part_text(Bytes part, Bytes whole) {
  const std::string parts = to_string(part), wholes = to_string(whole);
  const auto unit = [](const std::string& text) { return text.substr(text.find(' ')); };
  if (part == Bytes(0)) return "0 / " + wholes;
  if (unit(parts) != unit(wholes)) return parts + " / " + wholes;
  return parts.substr(0, parts.find(' ')) + " / " + wholes;
}

Cell memory_cell(const Place& place) {
  if (!place.memory) return {"?", Colour::dim};
  const double total = static_cast<double>(place.memory->total.count());
  const double part = total > 0 ? static_cast<double>(place.memory->used.count()) / total : 0;
  return {fmt::format("{} / {}", gib(place.memory->used), gib(place.memory->total)), load_colour(part)};
}

Cell bytes_cell(Bytes size, Colour colour) {
  return size > Bytes(0) ? Cell{gib(size), colour} : Cell{"-", Colour::dim};
}

std::vector<Cell> gpu_row(const Survey& survey, const Place& place, const Screen& screen) {
  const telemetry::Gpu& gpu = survey.snapshot.gpus[place.gpu];
  const lease::Standing& standing = place.standing;
  const bool load = gpu.utilization.ok() && !place.instance;
  const double busy = load ? gpu.utilization->compute_percent / 100.0 : 0;
  std::string power = gpu.power ? fmt::format("{:.0f}", gpu.power->watts) : "?";
  if (gpu.power && gpu.power->limit_watts) power += fmt::format("/{:.0f}", *gpu.power->limit_watts);
  const Bytes left = standing.taken ? Bytes(0) : std::max(Bytes(0), standing.available);
  // True: the leases, and so the promised and foreign bytes, are known.
  const bool known = survey.directory.ok();
  return {{place.label, Colour::bold},
          {place.name.empty() ? "?" : place.name},
          {load ? fmt::format("{}%", gpu.utilization->compute_percent) : "?", load_colour(busy)},
          {load ? bar(screen, busy, 8) : "", load_colour(busy)},
          memory_cell(place),
          known ? bytes_cell(standing.promised, Colour::cyan) : Cell{"?"},
          known ? bytes_cell(standing.foreign, Colour::yellow) : Cell{"?"},
          known && place.memory ? Cell{gib(left), left > Bytes(0) ? Colour::green : Colour::red} : Cell{"?"},
          {gpu.temperature_c ? std::to_string(*gpu.temperature_c) : "?"},
          {power},
          {known ? holders_text(survey, place) : "?"},
          {place.uuid}};
}

}  // namespace

std::string gib(Bytes size) { return fmt::format("{:.1f}", static_cast<double>(size.count()) / (1 << 30)); }

std::string name_of(const telemetry::LostGpu& lost) {
  std::string name = lost.bus_id;
  if (!lost.uuid.empty()) name += (name.empty() ? "" : " ") + lost.uuid;
  return name.empty() ? "a GPU (it does not say which)" : "the GPU " + name;
}

std::string driver_text(const Survey& survey) {
  if (survey.snapshot.simulated) return "simulated";
  std::string text;
  if (const auto& driver = survey.snapshot.driver) {
    if (!driver->version.empty()) text += ", driver " + driver->version;
    if (driver->cuda_major > 0) text += fmt::format(", CUDA {}.{}", driver->cuda_major, driver->cuda_minor);
  }
  return text.empty() ? text : text.substr(2);
}

std::string heading(const Survey& survey, const std::string& between) {
  const size_t gpus = survey.snapshot.gpus.size(), leases = survey.leases.size();
  const std::string text =
      fmt::format("{} GPU{}{}{}", gpus, gpus == 1 ? "" : "s", between.empty() ? "" : ", ", between);
  if (!survey.directory.ok()) return text + ", leases not known";
  return text + fmt::format(", {} lease{}, {} waiting", leases, leases == 1 ? "" : "s", survey.line.size());
}

Table gpus_table(const Survey& survey, const Screen& screen) {
  Table table;
  table.columns = {{"GPU"},
                   {"NAME", false, 5},
                   {"UTIL", true, 2},
                   {"", false, 8},
                   {"USED / GiB", true, 0},
                   {"PROMISED", true, 1},
                   {"FOREIGN", true, 3},
                   {"LEFT", true, 0},
                   {"C", true, 7},
                   {"W", true, 6},
                   {"HELD BY", false, 4},
                   {"UUID", false, 9}};
  for (const Place& place : survey.places) table.rows.push_back(gpu_row(survey, place, screen));
  return table;
}

Table leases_table(const Survey& survey, const Screen& screen) {
  (void)screen;
  Table table;
  table.columns = {{"LEASE"},
                   {"GPU"},
                   {"CLAIM", true, 1},
                   {"USED", true, 2},
                   {"OWNER", false, 0},
                   {"PID", true, 4, kDigitsOfPid},
                   {"AGE", true, 3},
                   {"ENDS IN", true, 5},
                   {"COMMAND", false, 6}};
  for (const Held& held : survey.leases) {
    const lease::Record& record = held.entry.record;
    table.rows.push_back({{held.entry.id, Colour::bold},
                          {joined(held.labels, ",")},
                          {claim_text(record), Colour::cyan},
                          {held.used ? to_string(*held.used) : "?"},
                          {held.owner},
                          {std::to_string(record.process.pid)},
                          {age_text(survey.now_ns - record.since_ns)},
                          {record.expires_ns == 0 ? "-" : age_text(record.expires_ns - survey.now_ns)},
                          {lease::shown_command(record)}});
  }
  return table;
}

Table line_table(const Survey& survey, const Screen& screen) {
  (void)screen;
  Table table;
  table.columns = {{"WAITING"},
                   {"GPUS", true, 0},
                   {"EACH", true, 1},
                   {"OWNER", false, 0},
                   {"PID", true, 4, kDigitsOfPid},
                   {"FOR", true, 3},
                   {"COMMAND", false, 6}};
  for (const Held& held : survey.line) {
    const lease::Record& record = held.entry.record;
    table.rows.push_back({{held.entry.id, Colour::bold},
                          {std::to_string(record.count)},
                          {record.exclusive ? "whole" : to_string(record.each), Colour::cyan},
                          {held.owner},
                          {std::to_string(record.process.pid)},
                          {age_text(survey.now_ns - record.since_ns)},
                          {lease::shown_command(record)}});
  }
  return table;
}

Table users_table(const Survey& survey, const Screen& screen) {
  (void)screen;
  Table table;
  table.columns = {{"GPU"},
                   {"PID", true, 0, kDigitsOfPid},
                   {"USED", true, 0},
                   {"USER", false, 2},
                   {"LEASE", false, 1},
                   {"COMMAND", false, 3}};
  for (const Place& place : survey.places) {
    for (const User& user : place.users) {
      const bool foreign = user.lease.empty();
      table.rows.push_back({{place.label, Colour::bold},
                            {std::to_string(user.pid)},
                            {user.used ? to_string(*user.used) : "?"},
                            {user.name.empty() ? "?" : user.name},
                            {foreign ? "foreign" : user.lease, foreign ? Colour::yellow : Colour::none},
                            {user.command.empty() ? "?" : user.command}});
    }
  }
  return table;
}

Table residents_table(const Survey& survey, const Screen& screen) {
  Table table;
  table.columns = {
      {"MANAGED", true, 0}, {"NODE"},           {"RESIDENT", true, 0}, {"", false, 5}, {"PEAK", true, 3},
      {"EVICTED", true, 2}, {"USER", false, 4}, {"COMMAND", false, 6}};
  for (const Resident& resident : survey.residents) {
    for (const board::NodeRow& node : resident.nodes) {
      const bool first = &node == resident.nodes.data();
      const double budget = static_cast<double>(node.budget.count());
      const double part = budget > 0 ? static_cast<double>(node.resident.count()) / budget : 0;
      table.rows.push_back(
          {{first ? fmt::format("{}{}", resident.pid, resident.here ? "" : "*") : "", Colour::bold},
           {node.name},
           {part_text(node.resident, node.budget), Colour::cyan},
           {bar(screen, part, 8), Colour::cyan},
           {to_string(node.peak)},
           {std::to_string(node.evictions)},
           {first ? resident.owner : ""},
           {first ? resident.command : ""}});
    }
  }
  return table;
}

std::vector<std::string> remarks(const Survey& survey) {
  std::vector<std::string> lines;
  int hidden = 0;
  for (const telemetry::LostGpu& lost : survey.snapshot.lost) {
    if (lost.forbidden)
      ++hidden;
    else
      lines.push_back(fmt::format("lost: {}: {}", name_of(lost), lost.why));
  }
  if (hidden > 0) lines.push_back(fmt::format("{} more GPUs are not this process's to use", hidden));
  for (const telemetry::Gpu& gpu : survey.snapshot.gpus)
    if (gpu.mig && gpu.instances.empty())
      lines.push_back(gpu.uuid + ": MIG is on and there is no instance: nothing of it can be used");
  if (survey.visible.restricted) {
    lines.push_back(fmt::format("{} gives this process {} of them{}{}",
                                names_of_lists(telemetry::own_variables()), survey.visible.uuids.size(),
                                survey.visible.note.empty() ? "" : ": ", survey.visible.note));
  }
  if (std::any_of(survey.residents.begin(), survey.residents.end(),
                  [](const Resident& resident) { return !resident.here; }))
    lines.push_back("*: the process's number in its container");
  if (!survey.directory.ok())
    lines.push_back("leases are not known: " + survey.directory.message());
  else if (!survey.directory_weakness.empty())
    lines.push_back("leases protect among friends only: " + survey.directory_weakness +
                    ". As root: innkeeper setup");
  if (!survey.directory_unseen.empty()) lines.push_back(survey.directory_unseen);
  for (const std::string& line : survey.other_directories)
    lines.push_back("leases are in " + survey.directory_path + "; " + line);
  return lines;
}

}  // namespace innkeeper::cli
