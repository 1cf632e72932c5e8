#include "runtime/machine.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "runtime/memory.h"
#include "runtime/report.h"
#include "runtime/settings.h"
#include "runtime/stream.h"

namespace fake_cuda {
namespace {

std::vector<Card> all_cards() {
  std::vector<Card> all;
  for (int i = 0; i < settings().cards; ++i) {
    Card card;
    card.total = settings().memory;
    card.others = settings().others;
    card.name = settings().mig ? "Fake CUDA card MIG 1g.1gb" : "Fake CUDA card";
    card.uuid_bytes[0] = static_cast<unsigned char>(0xA0 + i);
    char text[64];
    snprintf(text, sizeof text, "%s-%02x000000-0000-0000-0000-000000000000", settings().mig ? "MIG" : "GPU",
             card.uuid_bytes[0]);
    card.uuid = text;
    all.push_back(std::move(card));
  }
  return all;
}

// As the driver reads it: up to the first name that is none; a GPU named twice leaves nothing.
std::vector<Card> visible_cards() {
  std::vector<Card> all = all_cards();
  std::vector<Card> seen;
  std::vector<bool> taken(all.size(), false);
  if (!settings().has_visible) seen = all;
  std::istringstream list(settings().has_visible ? settings().visible : "");
  for (std::string name; std::getline(list, name, ',');) {
    size_t at = all.size();
    char* end = nullptr;
    const long index = strtol(name.c_str(), &end, 10);
    if (!name.empty() && *end == 0) {
      if (index >= 0) at = static_cast<size_t>(index);
    } else if (name.size() > 4) {
      for (size_t i = 0; i < all.size(); ++i) {
        if (all[i].uuid.compare(0, name.size(), name) == 0) at = i;
      }
    }
    if (at >= all.size()) break;
    if (taken[at]) return {};
    taken[at] = true;
    seen.push_back(all[at]);
  }
  for (size_t i = 0; i < seen.size(); ++i) {
    seen[i].index = static_cast<int>(i);
    seen[i].peers.assign(seen.size(), false);
    seen[i].peers[i] = true;
  }
  return seen;
}

}  // namespace

std::recursive_mutex& machine_mutex() {
  static auto& it = *new std::recursive_mutex;  // leaked: deleters call at the very end
  return it;
}

std::vector<Card>& cards() {
  static auto& it = *new std::vector<Card>(visible_cards());
  return it;
}

bool is_card(int index) { return index >= 0 && static_cast<size_t>(index) < cards().size(); }
Card& card(int index) { return cards()[static_cast<size_t>(index)]; }

int& current_card() {
  thread_local int it = 0;
  return it;
}

void break_card(int index, Error error) {
  for (const Card& other : cards()) {
    if (other.index != index && other.broken == kSuccess) run_card(other.index);
  }
  card(index).broken = error;
  drop_work(index);
  poison_card(index);
}

void repair_card(int index) { card(index).broken = kSuccess; }

}  // namespace fake_cuda
