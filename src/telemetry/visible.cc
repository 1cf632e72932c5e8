#include "telemetry/visible.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "telemetry/visible_words.h"

namespace innkeeper::telemetry {

namespace {

// Returns the number at the beginning of `text`, as strtol reads it; none: there is no number
// or it is negative.
std::optional<size_t> leading_index(std::string_view text) {
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  size_t index = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (failure != std::errc{} || end == text.data()) return std::nullopt;
  return index;
}

// Returns the device that an entry naming this GPU makes visible. For a GPU with MIG on it is the first
// instance: CUDA accepts no more.
std::optional<std::string> usable(const Gpu& gpu) {
  if (!gpu.mig) return gpu.uuid;
  if (gpu.instances.empty()) return std::nullopt;
  return gpu.instances.front().uuid;
}

// Device of one entry, or the reason for its absence.
struct Entry {
  std::optional<std::string> uuid;
  std::string why;
  bool lost = false;  // True: the entry counts, but its GPU is lost.
};

Entry of_gpu(const Gpu& gpu) {
  const std::optional<std::string> uuid = usable(gpu);
  return {uuid, uuid ? "" : "is a GPU with MIG on and no instance"};
}

Entry by_index(std::string_view text, const std::vector<const Gpu*>& places) {
  const std::optional<size_t> index = leading_index(text);
  if (!index) return {std::nullopt, "is no index"};
  if (*index >= places.size()) {
    return {std::nullopt, is_beyond(places.size())};
  }
  const Gpu* gpu = places[*index];
  if (gpu == nullptr) return {std::nullopt, "is a GPU that is lost", true};
  return of_gpu(*gpu);
}

// Resolves MIG-GPU-<uuid>/<gi>/<ci>, the name of an instance before each had a UUID of its own.
Entry by_place(std::string_view text, const Snapshot& gpus) {
  const size_t slash = text.find('/');
  const std::string_view parent = text.substr(4, slash - 4);
  int ids[2] = {-1, -1};
  std::string_view rest = text.substr(std::min(slash, text.size()));
  for (int& id : ids) {
    if (!starts_with(rest, "/")) return {std::nullopt, "is not MIG-GPU-<uuid>/<gi>/<ci>"};
    rest.remove_prefix(1);
    const auto [end, failure] = std::from_chars(rest.data(), rest.data() + rest.size(), id);
    const std::string_view digits = rest.substr(0, static_cast<size_t>(end - rest.data()));
    // Each place has one name: neither 01 nor -0 is accepted.
    if (failure != std::errc{} || digits != std::to_string(id) || id < 0)
      return {std::nullopt, "is not MIG-GPU-<uuid>/<gi>/<ci>"};
    rest.remove_prefix(digits.size());
  }
  if (!rest.empty()) return {std::nullopt, "is not MIG-GPU-<uuid>/<gi>/<ci>"};
  for (const Gpu& gpu : gpus.gpus) {
    if (gpu.vendor != Vendor::nvidia || gpu.uuid != parent) continue;
    for (const Instance& instance : gpu.instances) {
      if (instance.gpu_instance == ids[0] && instance.compute_instance == ids[1]) return {instance.uuid, ""};
    }
  }
  return {std::nullopt, "is not here"};
}

Entry by_uuid(std::string_view text, const Snapshot& gpus) {
  // A complete name is that device, even if another name begins with it. The same holds for the text by which
  // older drivers name instances, which newer ones name otherwise.
  if (gpus.find_instance(text) != nullptr) return {std::string(text), ""};
  if (starts_with(text, "MIG-GPU-") && text.find('/') != std::string_view::npos) return by_place(text, gpus);
  // "GPU-" alone would be the beginning of every UUID.
  if (text.size() <= 4 || !(starts_with(text, "GPU-") || starts_with(text, "MIG-"))) {
    return {std::nullopt, "is no UUID"};
  }
  const Gpu* gpu = nullptr;
  const Instance* instance = nullptr;
  int matches = 0;
  for (const Gpu* one : gpus_of(Vendor::nvidia, gpus)) {
    if (one->uuid == text) return of_gpu(*one);
    if (starts_with(one->uuid, text)) ++matches, gpu = one;
    for (const Instance& part : one->instances) {
      if (starts_with(part.uuid, text)) ++matches, instance = &part;
    }
  }
  if (matches == 0) return {std::nullopt, "is not here"};
  if (matches > 1) return {std::nullopt, "is the beginning of " + std::to_string(matches) + " UUIDs"};
  return instance != nullptr ? Entry{instance->uuid, ""} : of_gpu(*gpu);
}

bool order_is_known(std::string_view order, const std::vector<const Gpu*>& gpus) {
  if (trimmed(order) == "PCI_BUS_ID") return true;
  return std::all_of(gpus.begin(), gpus.end(), [&](const Gpu* gpu) {
    return gpu->name == gpus.front()->name && gpu->mig == gpus.front()->mig;
  });
}

Visible everything(const std::vector<const Gpu*>& gpus, bool ordered) {
  Visible all;
  all.ordered = ordered;
  for (const Gpu* gpu : gpus) {
    if (!gpu->mig) all.uuids.push_back(gpu->uuid);
    for (const Instance& instance : gpu->instances) all.uuids.push_back(instance.uuid);
    all.ordered = all.ordered && !gpu->mig;  // CUDA shows fewer than all instances.
  }
  return all;
}

std::optional<std::string> variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::nullopt : std::optional<std::string>(text);
}

std::string listed(const std::vector<std::string>& words) {
  std::string list;
  for (const std::string& word : words) list += (list.empty() ? "" : ",") + word;
  return list;
}

}  // namespace

Visible resolve_visible(std::optional<std::string_view> list, std::string_view order, const Snapshot& gpus) {
  const std::vector<const Gpu*> own = gpus_of(Vendor::nvidia, gpus);
  const bool ordered = order_is_known(order, own);
  if (!list) return everything(own, ordered);
  Visible visible;
  visible.restricted = true;
  std::string_view rest = *list;
  if (trimmed(rest).empty()) return visible;
  const std::string_view first = trimmed(rest.substr(0, rest.find(',')));
  const bool indices = !starts_with(first, "GPU-") && !starts_with(first, "MIG-");
  if (indices && !ordered && leading_index(first)) {
    visible.unclear = true;
    visible.note = "CUDA_VISIBLE_DEVICES=" + in_quotes(*list, kMost) +
                   ": GPUs of several models are here, and only CUDA knows their order: set "
                   "CUDA_DEVICE_ORDER=PCI_BUS_ID, or name UUIDs";
    return visible;
  }
  const std::vector<const Gpu*> places = places_of(Vendor::nvidia, gpus);
  for (;;) {
    const size_t comma = rest.find(',');
    const std::string_view text = trimmed(rest.substr(0, comma));
    Entry entry = indices ? by_index(text, places) : by_uuid(text, gpus);
    if (entry.lost) {
      visible.note = "CUDA_VISIBLE_DEVICES: " + in_quotes(text, kMost) + " " + entry.why;
      visible.ordered = false;
    } else if (!entry.uuid) {
      visible.note = ends_there("CUDA_VISIBLE_DEVICES", text, entry.why);
      return visible;
    } else if (std::find(visible.uuids.begin(), visible.uuids.end(), *entry.uuid) != visible.uuids.end()) {
      visible.uuids.clear();
      visible.note = "CUDA_VISIBLE_DEVICES: " + in_quotes(text, kMost) +
                     " stands there twice, so CUDA sees no GPU at all";
      return visible;
    } else {
      visible.uuids.push_back(std::move(*entry.uuid));
    }
    if (comma == std::string_view::npos) return visible;
    rest.remove_prefix(comma + 1);
  }
}

std::array<NamedVariable, 4> by_name(const Variables& variables) {
  return {NamedVariable{"CUDA_VISIBLE_DEVICES", variables.cuda},
          {"ROCR_VISIBLE_DEVICES", variables.rocr},
          {"HIP_VISIBLE_DEVICES", variables.hip},
          {"CUDA_DEVICE_ORDER", variables.order}};
}

std::string names_of_lists(const Variables& variables) {
  std::vector<std::string> names;
  for (const auto& [name, value] : by_name({variables.cuda, variables.rocr, variables.hip, std::nullopt}))
    if (value) names.emplace_back(name);
  return names.empty() ? "the machine" : listed(names);
}

Variables own_variables() {
  return {variable("CUDA_VISIBLE_DEVICES"), variable("ROCR_VISIBLE_DEVICES"), variable("HIP_VISIBLE_DEVICES"),
          variable("CUDA_DEVICE_ORDER")};
}

void set_own_variables(const Variables& variables) {
  const auto now = by_name(own_variables());
  const auto wanted = by_name(variables);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto& [name, value] = wanted[i];
    if (value == now[i].second) continue;
    if (value)
      setenv(name, value->c_str(), 1);
    else
      unsetenv(name);
  }
}

Visible visible_from_environment(const Snapshot& gpus) { return visible_with(own_variables(), gpus); }

Visible visible_with(const Variables& variables, const Snapshot& gpus) {
  Visible visible = resolve_visible(variables.cuda, variables.order.value_or(""), gpus);
  const std::vector<const Gpu*> amd = gpus_of(Vendor::amd, gpus);
  if (amd.empty()) return visible;
  AmdLists lists{variables.rocr, variables.hip, std::nullopt};
  const bool alone = amd.size() == gpus.gpus.size() && places_of(Vendor::nvidia, gpus).empty();
  if (alone) {
    lists.cuda = variables.cuda;
    return resolve_visible_amd(lists, gpus);
  }
  Visible other = resolve_visible_amd(lists, gpus);
  visible.restricted = visible.restricted || other.restricted;
  visible.ordered = visible.ordered && other.ordered;
  visible.unclear = visible.unclear || other.unclear;
  visible.note += (visible.note.empty() || other.note.empty() ? "" : "; ") + other.note;
  std::move(other.uuids.begin(), other.uuids.end(), std::back_inserter(visible.uuids));
  return visible;
}

Chosen by_vendor(const std::vector<std::string>& uuids, const Snapshot& gpus) {
  Chosen chosen;
  for (const std::string& uuid : uuids) {
    const Gpu* gpu = gpus.find(uuid);
    (gpu != nullptr && gpu->vendor == Vendor::amd ? chosen.amd : chosen.nvidia).push_back(uuid);
  }
  chosen.both_here = !gpus_of(Vendor::nvidia, gpus).empty() && !gpus_of(Vendor::amd, gpus).empty();
  return chosen;
}

Variables showing(const Chosen& chosen, Variables variables) {
  if (!chosen.nvidia.empty() || chosen.amd.empty() || chosen.both_here)
    variables.cuda = listed(chosen.nvidia);
  if (!chosen.amd.empty() || chosen.nvidia.empty() || chosen.both_here) variables.rocr = listed(chosen.amd);
  if (!chosen.amd.empty()) {
    std::vector<std::string> places;
    for (size_t i = 0; i < chosen.amd.size(); ++i) places.push_back(std::to_string(i));
    variables.hip = listed(places);
  }
  return variables;
}

}  // namespace innkeeper::telemetry
