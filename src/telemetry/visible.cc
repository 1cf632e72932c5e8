#include "telemetry/visible.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>

namespace innkeeper::telemetry {

namespace {

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

bool starts_with(std::string_view text, std::string_view beginning) {
  return text.substr(0, beginning.size()) == beginning;
}

// For a note: short, and without what would break the line.
std::string shown(std::string_view text) {
  std::string result = "\"" + std::string(text.substr(0, 60)) + (text.size() > 60 ? "...\"" : "\"");
  for (char& c : result) {
    if (c < ' ' || c > '~') c = '?';
  }
  return result;
}

// The number at the beginning of `text`, as strtol reads it; none if there is none or it is negative.
std::optional<size_t> leading_index(std::string_view text) {
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  size_t index = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (failure != std::errc{} || end == text.data()) return std::nullopt;
  return index;
}

// What an entry that names a card makes visible. A card with MIG on is its first instance: CUDA takes no
// more.
std::optional<std::string> usable(const Card& card) {
  if (!card.mig) return card.uuid;
  if (card.instances.empty()) return std::nullopt;
  return card.instances.front().uuid;
}

// One entry's device, or why there is none.
struct Entry {
  std::optional<std::string> uuid;
  std::string why;
  bool lost = false;  // it counts, but its card does not
};

// What an index counts: the cards by bus id, with nullptr in the places of those that are lost.
std::vector<const Card*> places_of(const Snapshot& cards) {
  std::vector<std::pair<std::string_view, const Card*>> places;
  for (const Card& card : cards.cards) places.emplace_back(card.bus_id, &card);
  for (const LostCard& lost : cards.lost) {
    if (lost.forbidden) continue;
    auto place = places.begin() + std::min<std::ptrdiff_t>(lost.driver_index, std::ssize(places));
    if (!lost.bus_id.empty()) {
      place = std::find_if(places.begin(), places.end(), [&](const auto& other) {
        return other.first.empty() || other.first > lost.bus_id;
      });
    }
    places.emplace(place, lost.bus_id, nullptr);
  }
  std::vector<const Card*> result;
  for (const auto& [bus_id, card] : places) result.push_back(card);
  return result;
}

Entry by_index(std::string_view text, const std::vector<const Card*>& places) {
  const std::optional<size_t> index = leading_index(text);
  if (!index) return {std::nullopt, "is no index"};
  if (*index >= places.size()) {
    return {std::nullopt, "is beyond the " + std::to_string(places.size()) + " cards that are here"};
  }
  const Card* card = places[*index];
  if (card == nullptr) return {std::nullopt, "is a card that is lost", true};
  const std::optional<std::string> uuid = usable(*card);
  return {uuid, uuid ? "" : "is a card with MIG on and no instance"};
}

// MIG-GPU-<uuid>/<gi>/<ci>, the name of an instance before each had a UUID of its own.
Entry by_place(std::string_view text, const Snapshot& cards) {
  const size_t slash = text.find('/');
  const std::string_view parent = text.substr(4, slash - 4);
  int ids[2] = {-1, -1};
  std::string_view rest = text.substr(std::min(slash, text.size()));
  for (int& id : ids) {
    if (!starts_with(rest, "/")) return {std::nullopt, "is not MIG-GPU-<uuid>/<gi>/<ci>"};
    rest.remove_prefix(1);
    const auto [end, failure] = std::from_chars(rest.data(), rest.data() + rest.size(), id);
    if (failure != std::errc{} || id < 0) return {std::nullopt, "is not MIG-GPU-<uuid>/<gi>/<ci>"};
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
  }
  if (!rest.empty()) return {std::nullopt, "is not MIG-GPU-<uuid>/<gi>/<ci>"};
  for (const Card& card : cards.cards) {
    if (card.uuid != parent) continue;
    for (const Instance& instance : card.instances) {
      if (instance.gpu_instance == ids[0] && instance.compute_instance == ids[1]) return {instance.uuid, ""};
    }
  }
  return {std::nullopt, "is not here"};
}

Entry by_uuid(std::string_view text, const Snapshot& cards) {
  if (starts_with(text, "MIG-GPU-") && text.find('/') != std::string_view::npos) {
    // Newer drivers name instances otherwise; older ones have this very text as the UUID.
    if (cards.find_instance(text) != nullptr) return {std::string(text), ""};
    return by_place(text, cards);
  }
  // "GPU-" alone would be the beginning of any.
  if (text.size() <= 4 || !(starts_with(text, "GPU-") || starts_with(text, "MIG-"))) {
    return {std::nullopt, "is no UUID"};
  }
  const Card* card = nullptr;
  const Instance* instance = nullptr;
  int matches = 0;
  for (const Card& one : cards.cards) {
    if (starts_with(one.uuid, text)) ++matches, card = &one;
    for (const Instance& part : one.instances) {
      if (starts_with(part.uuid, text)) ++matches, instance = &part;
    }
  }
  if (matches == 0) return {std::nullopt, "is not here"};
  if (matches > 1) return {std::nullopt, "is the beginning of " + std::to_string(matches) + " UUIDs"};
  if (instance != nullptr) return {instance->uuid, ""};
  const std::optional<std::string> uuid = usable(*card);
  return {uuid, uuid ? "" : "is a card with MIG on and no instance"};
}

bool of_one_model(const Snapshot& cards) {
  return std::all_of(cards.cards.begin(), cards.cards.end(), [&](const Card& card) {
    return card.name == cards.cards.front().name && card.mig == cards.cards.front().mig;
  });
}

bool order_is_known(std::string_view order, const Snapshot& cards) {
  if (trimmed(order) == "PCI_BUS_ID") return true;
  return cards.cards.empty() || of_one_model(cards);
}

Visible everything(const Snapshot& cards, bool ordered) {
  Visible all;
  all.ordered = ordered;
  for (const Card& card : cards.cards) {
    if (!card.mig) all.uuids.push_back(card.uuid);
    for (const Instance& instance : card.instances) all.uuids.push_back(instance.uuid);
    all.ordered = all.ordered && !card.mig;  // CUDA shows fewer than all instances
  }
  return all;
}

}  // namespace

Visible resolve_visible(std::optional<std::string_view> list, std::string_view order, const Snapshot& cards) {
  const bool ordered = order_is_known(order, cards);
  if (!list) return everything(cards, ordered);
  Visible visible;
  visible.restricted = true;
  std::string_view rest = *list;
  if (trimmed(rest).empty()) return visible;
  const std::string_view first = trimmed(rest.substr(0, rest.find(',')));
  const bool indices = !starts_with(first, "GPU-") && !starts_with(first, "MIG-");
  if (indices && !ordered && leading_index(first)) {
    visible.unclear = true;
    visible.note = "CUDA_VISIBLE_DEVICES=" + shown(*list) +
                   ": cards of several models are here, and only CUDA knows their order: set "
                   "CUDA_DEVICE_ORDER=PCI_BUS_ID, or name UUIDs";
    return visible;
  }
  const std::vector<const Card*> places = places_of(cards);
  for (;;) {
    const size_t comma = rest.find(',');
    const std::string_view text = trimmed(rest.substr(0, comma));
    Entry entry = indices ? by_index(text, places) : by_uuid(text, cards);
    if (entry.lost) {
      visible.note = "CUDA_VISIBLE_DEVICES: " + shown(text) + " " + entry.why;
      visible.ordered = false;
    } else if (!entry.uuid) {
      visible.note =
          "CUDA_VISIBLE_DEVICES: " + shown(text) + " " + entry.why + "; it and what follows do not count";
      return visible;
    } else if (std::find(visible.uuids.begin(), visible.uuids.end(), *entry.uuid) != visible.uuids.end()) {
      visible.uuids.clear();
      visible.note =
          "CUDA_VISIBLE_DEVICES: " + shown(text) + " stands there twice, so CUDA sees no card at all";
      return visible;
    } else {
      visible.uuids.push_back(std::move(*entry.uuid));
    }
    if (comma == std::string_view::npos) return visible;
    rest.remove_prefix(comma + 1);
  }
}

Visible visible_from_environment(const Snapshot& cards) {
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  const char* order = std::getenv("CUDA_DEVICE_ORDER");
  return resolve_visible(list == nullptr ? std::nullopt : std::optional<std::string_view>(list),
                         order == nullptr ? "" : order, cards);
}

}  // namespace innkeeper::telemetry
