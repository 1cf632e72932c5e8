#include "telemetry/snapshot.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "telemetry/cards.h"
#include "telemetry/links.h"
#include "telemetry/nvml.h"

namespace innkeeper::telemetry {

namespace {

using nvml::Library;

constexpr uint32_t kMostCards = 256;

std::string system_text(nvml::Code (*function)(char*, uint32_t)) {
  std::array<char, nvml::kTextSize> buffer = {};
  if (nvml::ask(function, buffer.data(), nvml::kTextSize) != nvml::kSuccess) return {};
  return nvml::clean_text(buffer.data(), buffer.size());
}

Driver read_driver(const Library& library) {
  Driver driver;
  driver.version = system_text(library.driver_version);
  driver.nvml_version = system_text(library.nvml_version);
  int cuda = 0;
  nvml::Code code = nvml::ask(library.cuda_version_2, &cuda);
  if (code != nvml::kSuccess) code = nvml::ask(library.cuda_version_1, &cuda);
  if (code == nvml::kSuccess && cuda > 0 && cuda < 1'000'000) {
    driver.cuda_major = cuda / 1000;
    driver.cuda_minor = cuda % 1000 / 10;
  }
  return driver;
}

struct Found {
  Card card;
  nvml::Device device = nullptr;
};

// Cards whose place is unknown come last, by the driver's index.
bool before(const Found& a, const Found& b) {
  const auto key = [](const Card& card) {
    return std::tuple<bool, const std::string&, int>(card.bus_id.empty(), card.bus_id, card.driver_index);
  };
  return key(a.card) < key(b.card);
}

// Reads everything into `snapshot`, but for when and why there is no driver. kUninitialized: the library was
// shut down by somebody else in this process.
nvml::Code read_all(const Library& library, Wanted wanted, Snapshot& snapshot) {
  uint32_t count = 0;
  if (const nvml::Code code = nvml::ask(library.count, &count); code != nvml::kSuccess) return code;
  Driver driver = read_driver(library);
  const bool avoid_3 = nvml::third_list_is_broken(driver.version);
  snapshot.driver = std::move(driver);
  std::vector<Found> found;
  for (uint32_t i = 0; i < std::min(count, kMostCards); ++i) {
    Card card;
    card.driver_index = static_cast<int>(i);
    const auto lose = [&](std::string why, bool forbidden = false) {
      snapshot.lost.push_back({card.driver_index, card.uuid, card.bus_id, std::move(why), forbidden});
    };
    // Handles are taken anew each time: one of a card that was reset is stale.
    nvml::Device device = nullptr;
    if (const nvml::Code code = nvml::ask(library.handle, i, &device); code != nvml::kSuccess) {
      if (code == nvml::kUninitialized) return code;
      lose(nvml::describe(library, "nvmlDeviceGetHandleByIndex_v2", code), code == nvml::kNoPermission);
      continue;
    }
    nvml::CardReader reader(library, device);
    const bool known = reader.read_identity(card);
    if (known) reader.read(wanted, avoid_3, card);
    if (!known || reader.lost()) {
      lose(reader.why());
    } else if (std::any_of(found.begin(), found.end(),
                           [&](const Found& other) { return other.card.uuid == card.uuid; })) {
      lose("another card has the same UUID");
    } else {
      found.push_back({std::move(card), device});
    }
  }
  std::sort(found.begin(), found.end(), before);
  std::vector<nvml::LinkEnd> ends;
  for (Found& one : found) {
    ends.push_back({one.device, one.card.bus_id});
    snapshot.cards.push_back(std::move(one.card));
  }
  if (has(wanted, Wanted::links)) snapshot.links = nvml::read_links(library, ends);
  return nvml::kSuccess;
}

}  // namespace

Snapshot snapshot(Wanted wanted) {
  Snapshot result;
  for (bool again = false;; again = true) {
    result = Snapshot();
    const nvml::Start start = nvml::start_or_join(again);
    if (!start.use) {
      result.trouble = start.trouble;
      result.driver = Reading<Driver>::none(Outcome::no_driver, start.text);
      break;
    }
    const nvml::Code code = read_all(start.use.library(), wanted, result);
    if (code == nvml::kSuccess) {
      const auto came_off = [](const LostCard& card) { return !card.forbidden; };
      if (std::any_of(result.lost.begin(), result.lost.end(), came_off)) start.use.suspect();
      break;
    }
    if (code == nvml::kUninitialized) start.use.gone();
    if (code == nvml::kUninitialized && !again) continue;
    result = Snapshot();
    result.trouble = Trouble::other;
    result.driver = Reading<Driver>::none(nvml::outcome_of(code),
                                          nvml::describe(start.use.library(), "nvmlDeviceGetCount_v2", code));
    start.use.suspect();
    break;
  }
  result.taken = std::chrono::steady_clock::now();
  return result;
}

void shut_down() { nvml::end_session(); }

Link Snapshot::link(size_t a, size_t b) const {
  const size_t place = a * cards.size() + b;
  return a < cards.size() && b < cards.size() && place < links.size() ? links[place] : Link{};
}

const Card* Snapshot::find(std::string_view uuid) const {
  for (const Card& card : cards) {
    if (card.uuid == uuid) return &card;
    for (const Instance& instance : card.instances) {
      if (instance.uuid == uuid) return &card;
    }
  }
  return nullptr;
}

const Instance* Snapshot::find_instance(std::string_view uuid) const {
  for (const Card& card : cards) {
    for (const Instance& instance : card.instances) {
      if (instance.uuid == uuid) return &instance;
    }
  }
  return nullptr;
}

}  // namespace innkeeper::telemetry
