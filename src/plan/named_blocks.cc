#include "plan/named_blocks.h"

namespace innkeeper::plan {

void NamedBlocks::add(Name name, Block* block) {
  NamedBlock& place = recent_[static_cast<size_t>(name) % kRecent];
  if (place.block != nullptr) long_lived_.emplace(place.name, place.block);
  place = {name, block};
}

void NamedBlocks::remove(Name name) {
  NamedBlock& place = recent_[static_cast<size_t>(name) % kRecent];
  if (place.name == name) {
    place.block = nullptr;
  } else {
    long_lived_.erase(name);
  }
}

Block* NamedBlocks::find(Name name) const {
  if (name <= 0) return nullptr;
  const NamedBlock& place = recent_[static_cast<size_t>(name) % kRecent];
  if (place.name == name) return place.block;
  const auto found = long_lived_.find(name);
  return found == long_lived_.end() ? nullptr : found->second;
}

}  // namespace innkeeper::plan
