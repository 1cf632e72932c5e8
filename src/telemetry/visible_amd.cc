// ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>

#include "telemetry/visible.h"
#include "telemetry/visible_words.h"

namespace innkeeper::telemetry {

namespace {

// GPUs in the runtime's order; nullptr: a lost GPU.
using Places = std::vector<const Gpu*>;

Places places_by_node(const Snapshot& gpus) {
  Places places = places_of(Vendor::amd, gpus);
  const bool known =
      std::all_of(places.begin(), places.end(), [](const Gpu* gpu) { return gpu && gpu->kfd_node >= 0; });
  if (known) {
    std::stable_sort(places.begin(), places.end(),
                     [](const Gpu* a, const Gpu* b) { return a->kfd_node < b->kfd_node; });
  }
  return places;
}

std::string in_small_letters(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

bool is_named(const Gpu* gpu, std::string_view beginning) {
  return gpu != nullptr && starts_with(in_small_letters(gpu->uuid), beginning);
}

// Place of one entry, or the reason for its absence.
struct AmdEntry {
  std::optional<size_t> place;
  std::string why;
};

// Resolves `text` as an entry of ROCR's list.
AmdEntry rocr_entry(const std::string& text, const Places& places) {
  if (text.empty()) return {std::nullopt, "is empty"};
  if (text.front() == 'g' || text.front() == 'G') {
    constexpr size_t kLeast = 5, kMost = 20;
    if (text.size() < kLeast || text.size() > kMost) return {std::nullopt, "is no UUID"};
    const std::string beginning = in_small_letters(text);
    const auto fits = [&](const Gpu* gpu) { return is_named(gpu, beginning); };
    const auto matches = std::count_if(places.begin(), places.end(), fits);
    if (matches == 0) return {std::nullopt, "is not here"};
    if (matches > 1) return {std::nullopt, "is the beginning of " + std::to_string(matches) + " UUIDs"};
    return {static_cast<size_t>(std::find_if(places.begin(), places.end(), fits) - places.begin()), ""};
  }
  char* end = nullptr;
  const long long index = std::strtoll(text.c_str(), &end, 0);
  if (*end != '\0' || index < 0) return {std::nullopt, "is no index"};
  if (static_cast<unsigned long long>(index) >= places.size())
    return {std::nullopt, is_beyond(places.size())};
  return {static_cast<size_t>(index), ""};
}

// Resolves `text` as an entry of HIP's list.
AmdEntry hip_entry(std::string_view text, const Places& places) {
  if (starts_with(text, "GPU-")) {
    const auto fits = [&](const Gpu* gpu) { return gpu != nullptr && starts_with(gpu->uuid, text); };
    const auto found = std::find_if(places.begin(), places.end(), fits);
    if (found == places.end()) return {std::nullopt, "is not here"};
    return {static_cast<size_t>(found - places.begin()), ""};
  }
  size_t index = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (failure != std::errc{} || std::to_string(index) != text) return {std::nullopt, "is no index"};
  if (index >= places.size()) return {std::nullopt, is_beyond(places.size())};
  return {index, ""};
}

// Splits a list. Empty text after the last comma is no entry.
std::vector<std::string_view> entries_of(std::string_view list) {
  std::vector<std::string_view> entries;
  while (!list.empty()) {
    const size_t comma = list.find(',');
    entries.push_back(list.substr(0, comma));
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
  }
  return entries;
}

Places left_by_rocr(std::string_view list, const Places& places, std::string& note) {
  std::vector<std::string_view> entries = entries_of(list);
  if (entries.size() > places.size()) entries.resize(places.size());
  std::vector<size_t> taken;
  for (const std::string_view entry : entries) {
    AmdEntry found = rocr_entry(std::string(trimmed(entry)), places);
    if (found.place && std::find(taken.begin(), taken.end(), *found.place) != taken.end())
      found = {std::nullopt, "stands there twice"};
    if (!found.place) {
      note = ends_there("ROCR_VISIBLE_DEVICES", trimmed(entry), found.why);
      break;
    }
    taken.push_back(*found.place);
  }
  Places left;
  for (const size_t place : taken) left.push_back(places[place]);
  return left;
}

Places left_by_hip(const char* variable, std::string_view list, const Places& places, std::string& note) {
  std::vector<size_t> taken;
  for (const std::string_view entry : entries_of(list)) {
    const AmdEntry found = hip_entry(entry, places);
    if (!found.place) {
      note += (note.empty() ? "" : "; ") + ends_there(variable, entry, found.why);
      break;
    }
    if (std::find(taken.begin(), taken.end(), *found.place) == taken.end()) taken.push_back(*found.place);
  }
  Places left;
  for (const size_t place : taken) left.push_back(places[place]);
  return left;
}

}  // namespace

Visible resolve_visible_amd(const AmdLists& lists, const Snapshot& gpus) {
  Visible visible;
  visible.restricted = lists.rocr || lists.hip || lists.cuda;
  Places places = places_by_node(gpus);
  if (lists.rocr) places = left_by_rocr(*lists.rocr, places, visible.note);
  if (lists.hip)
    places = left_by_hip("HIP_VISIBLE_DEVICES", *lists.hip, places, visible.note);
  else if (lists.cuda)
    places = left_by_hip("CUDA_VISIBLE_DEVICES", *lists.cuda, places, visible.note);
  for (const Gpu* gpu : places) {
    if (gpu != nullptr) {
      visible.uuids.push_back(gpu->uuid);
    } else if (visible.restricted) {
      visible.ordered = false;
      visible.note += std::string(visible.note.empty() ? "" : "; ") + "a GPU that was given is lost";
    }
  }
  return visible;
}

}  // namespace innkeeper::telemetry
