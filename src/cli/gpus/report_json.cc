// Prints the survey as JSON. Sizes are in bytes; an unknown value is null.
#include <nlohmann/json.hpp>

#include "cli/gpus/report.h"

namespace innkeeper::cli {
namespace {

using Json = nlohmann::ordered_json;

Json bytes(const std::optional<Bytes>& size) { return size ? Json(size->count()) : Json(nullptr); }

template <class T>
Json reading(const telemetry::Reading<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json lease_json(const Survey& survey, const Held& held) {
  const lease::Record& record = held.entry.record;
  Json claims = Json::array();
  for (size_t i = 0; i < record.claims.size(); ++i)
    claims.push_back({{"uuid", record.claims[i].uuid},
                      {"gpu", held.labels[i]},
                      {"bytes", record.claims[i].bytes.count()}});
  Json json = {{"id", held.entry.id},
               {"uid", record.uid},
               {"user", held.owner},
               {"pid", record.process.pid},
               {"command", record.command},
               {"job", record.job},
               {"exclusive", record.exclusive},
               {"inside", record.inside.empty() ? Json(nullptr) : Json(record.inside.front())},
               {"claims", claims},
               {"age_seconds", static_cast<double>(survey.now_ns - record.since_ns) / 1e9}};
  if (record.kind == lease::Kind::waiting) {
    json["gpus_wanted"] = record.count;
    json["bytes_wanted_each"] = record.exclusive ? Json(nullptr) : Json(record.each.count());
    return json;
  }
  json["used_bytes"] = bytes(held.used);
  json["expires_in_seconds"] = record.expires_ns == 0
                                   ? Json(nullptr)
                                   : Json(static_cast<double>(record.expires_ns - survey.now_ns) / 1e9);
  return json;
}

Json all_leases(const Survey& survey, const std::vector<Held>& all) {
  Json list = Json::array();
  for (const Held& held : all) list.push_back(lease_json(survey, held));
  return list;
}

Json resident_json(const Resident& resident) {
  Json nodes = Json::array();
  for (const board::NodeRow& node : resident.nodes)
    nodes.push_back({{"node", node.name},
                     {"budget_bytes", node.budget.count()},
                     {"resident_bytes", node.resident.count()},
                     {"peak_bytes", node.peak.count()},
                     {"evictions", node.evictions},
                     {"operators", node.operators}});
  return {{"pid", resident.pid},
          {"in_this_pid_namespace", resident.here},
          {"user", resident.owner},
          {"command", resident.command},
          {"nodes", nodes}};
}

Json place_json(const Survey& survey, const Place& place) {
  const telemetry::Gpu& gpu = survey.snapshot.gpus[place.gpu];
  Json users = Json::array();
  for (const User& user : place.users)
    users.push_back({{"pid", user.pid},
                     {"used_bytes", bytes(user.used)},
                     {"user", user.name.empty() ? Json(nullptr) : Json(user.name)},
                     {"command", user.command.empty() ? Json(nullptr) : Json(user.command)},
                     {"lease", user.lease.empty() ? Json(nullptr) : Json(user.lease)}});
  Json holders = Json::array();
  for (const Held& held : survey.leases)
    for (const lease::Claim& claim : held.entry.record.claims)
      if (claim.uuid == place.uuid) holders.push_back(held.entry.id);
  Json memory = nullptr;
  if (place.memory)
    memory = {{"total_bytes", place.memory->total.count()},
              {"reserved_bytes", place.memory->reserved.count()},
              {"used_bytes", place.memory->used.count()},
              {"free_bytes", place.memory->free.count()},
              {"unified", place.memory->unified}};
  Json power = nullptr;
  if (gpu.power)
    power = {{"watts", gpu.power->watts},
             {"limit_watts", gpu.power->limit_watts ? Json(*gpu.power->limit_watts) : Json(nullptr)}};
  const bool load = gpu.utilization.ok() && !place.instance;
  const lease::Standing& standing = place.standing;
  const auto if_known = [&](int64_t bytes) { return survey.directory.ok() ? Json(bytes) : Json(nullptr); };
  return {{"gpu", place.label},
          {"uuid", place.uuid},
          {"bus_id", gpu.bus_id},
          {"name", place.name},
          {"mig_instance_of", place.instance ? Json(gpu.uuid) : Json(nullptr)},
          {"memory", memory},
          {"utilization_percent", load ? Json(gpu.utilization->compute_percent) : Json(nullptr)},
          {"memory_bandwidth_percent", load ? Json(gpu.utilization->memory_percent) : Json(nullptr)},
          {"power", power},
          {"temperature_celsius", reading(gpu.temperature_c)},
          {"sm_clock_mhz", gpu.clocks ? Json(gpu.clocks->sm_mhz) : Json(nullptr)},
          {"memory_clock_mhz", gpu.clocks ? Json(gpu.clocks->memory_mhz) : Json(nullptr)},
          {"promised_bytes", if_known(standing.promised.count())},
          {"foreign_bytes", if_known(standing.foreign.count())},
          {"left_bytes", if_known(standing.taken ? 0 : std::max<int64_t>(0, standing.available.count()))},
          {"whole", standing.taken},
          {"waiting", standing.waiting},
          {"leases", holders},
          {"processes", place.users_known ? users : Json(nullptr)}};
}

}  // namespace

std::string to_json(const Survey& survey) {
  Json gpus = Json::array();
  for (const Place& place : survey.places) gpus.push_back(place_json(survey, place));
  Json lost = Json::array();
  for (const telemetry::LostGpu& gpu : survey.snapshot.lost)
    lost.push_back(
        {{"uuid", gpu.uuid}, {"bus_id", gpu.bus_id}, {"why", gpu.why}, {"forbidden", gpu.forbidden}});
  Json residents = Json::array();
  for (const Resident& resident : survey.residents) residents.push_back(resident_json(resident));
  Json driver = {
      {"works", survey.snapshot.driver.ok()}, {"version", nullptr}, {"cuda", nullptr}, {"trouble", nullptr}};
  if (const auto& read = survey.snapshot.driver) {
    driver["version"] = read->version;
    if (read->cuda_major > 0)
      driver["cuda"] = std::to_string(read->cuda_major) + "." + std::to_string(read->cuda_minor);
  } else {
    driver["trouble"] = survey.snapshot.driver.text();
  }
  const Json visible = survey.visible.restricted ? Json(survey.visible.uuids) : Json(nullptr);
  const Json directory = {
      {"path", survey.directory_path.empty() ? Json(nullptr) : Json(survey.directory_path)},
      {"weakness", survey.directory_weakness.empty() ? Json(nullptr) : Json(survey.directory_weakness)},
      {"unseen_outside", survey.directory_unseen.empty() ? Json(nullptr) : Json(survey.directory_unseen)},
      {"others", survey.other_directories},
      {"trouble", survey.directory.ok() ? Json(nullptr) : Json(survey.directory.message())}};
  const Json json = {{"schema", 1},
                     {"time_unix_seconds", static_cast<double>(survey.now_ns) / 1e9},
                     {"driver", driver},
                     {"gpus", gpus},
                     {"lost", lost},
                     {"visible", visible},
                     {"lease_directory", directory},
                     {"leases", all_leases(survey, survey.leases)},
                     {"waiting", all_leases(survey, survey.line)},
                     {"managed", residents}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string leases_json(const Survey& survey) {
  const Json json = {{"schema", 1},
                     {"leases", all_leases(survey, survey.leases)},
                     {"waiting", all_leases(survey, survey.line)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace innkeeper::cli
