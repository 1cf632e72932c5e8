#include "lease/places.h"

#include <algorithm>
#include <string>

#include "lease/process.h"

namespace innkeeper::lease {
namespace {

bool earlier(const Entry& a, const Entry& b) {
  return a.record.since_ns != b.record.since_ns ? a.record.since_ns < b.record.since_ns : a.id < b.id;
}

}  // namespace

bool is_lost(const Entry& place, int64_t now_ns, uint64_t pid_namespace) {
  const std::chrono::nanoseconds silent(now_ns - place.touched_ns);
  if (silent <= kPlaceLost) return false;
  if (silent > kStarvedAtMost || place.record.pid_namespace != pid_namespace) return true;
  const char state = process_state(place.record.process);
  return state == '\0' || state == 'T' || state == 't';
}

std::vector<const Entry*> places_ahead(const std::vector<Entry>& live, const Request& request, uint32_t user,
                                       const Entry* own, int64_t now_ns, uint64_t pid_namespace) {
  std::vector<const Entry*> places;
  for (const Entry& entry : live) {
    const std::vector<std::string>& its = entry.record.inside;
    if (entry.record.kind != Kind::waiting || (its.empty() ? "" : its.front()) != request.inside) continue;
    if (!its.empty() && entry.record.uid != user) continue;
    if (own != nullptr && (entry.id == own->id || !earlier(entry, *own))) continue;
    if (is_lost(entry, now_ns, pid_namespace)) continue;
    places.push_back(&entry);
  }
  std::sort(places.begin(), places.end(), [](const Entry* a, const Entry* b) { return earlier(*a, *b); });
  return places;
}

}  // namespace innkeeper::lease
