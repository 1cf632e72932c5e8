#include "cli/gpus/top_frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "cli/gpus/report.h"

namespace innkeeper::cli {
namespace {

constexpr size_t kPastLength = 600;
constexpr double kFastest = 0.5, kSlowest = 60;

using Spans = std::vector<Cell>;

std::string line(const Screen& screen, const Spans& spans) {
  size_t space = static_cast<size_t>(std::max(1, screen.width));
  std::string text;
  for (const Cell& span : spans) {
    const std::string shown = for_terminal(span.text);
    const std::string_view words = cut(shown, space);
    space -= columns_of(words);
    text += paint(screen, span.colour, words);
  }
  return text + "\n";
}

double used_part(const Place& place) {
  if (!place.memory || place.memory->total <= Bytes(0)) return 0;
  return static_cast<double>((place.memory->used + place.memory->reserved).count()) /
         static_cast<double>(place.memory->total.count());
}

double load(const Survey& survey, const Place& place) {
  const telemetry::Gpu& gpu = survey.snapshot.gpus[place.gpu];
  return gpu.utilization && !place.instance ? gpu.utilization->compute_percent / 100.0 : 0;
}

std::vector<size_t> sorted(const Survey& survey, Sort sort) {
  std::vector<size_t> order(survey.places.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto key = [&](size_t i) -> double {
    const Place& place = survey.places[i];
    switch (sort) {
      case Sort::number: return 0;
      case Sort::used: return -used_part(place);
      case Sort::utilization: return -load(survey, place);
      case Sort::left: return -static_cast<double>(place.standing.available.count());
    }
    return 0;
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  return order;
}

// Returns the newest samples, as many as the plot is wide; 0 where no sample exists yet.
std::vector<double> recent(const TopState& state, const std::string& uuid, int width,
                           double Sample::*member) {
  std::vector<double> values(static_cast<size_t>(std::max(0, width)), 0.0);
  const auto found = state.past.find(uuid);
  if (found == state.past.end()) return values;
  auto sample = found->second.rbegin();
  for (auto value = values.rbegin(); value != values.rend() && sample != found->second.rend();
       ++value, ++sample)
    *value = (*sample).*member;
  return values;
}

std::string gpu_lines(const Survey& survey, const TopState& state, const Screen& screen, size_t index,
                      bool chosen) {
  const Place& place = survey.places[index];
  const telemetry::Gpu& gpu = survey.snapshot.gpus[place.gpu];
  const lease::Standing& standing = place.standing;
  Spans head = {{chosen ? ">" : " ", Colour::yellow}, {fmt::format("{:<4}", place.label), Colour::bold}};
  if (place.memory)
    head.push_back(
        {fmt::format("{:>5} of {} GiB", gib(place.memory->used), gib(place.memory->total)), Colour::none});
  else
    head.push_back({"memory unknown", Colour::dim});
  head.push_back({fmt::format("  promised {}", gib(standing.promised)),
                  standing.promised > Bytes(0) ? Colour::cyan : Colour::dim});
  head.push_back({fmt::format("  foreign {}", gib(standing.foreign)),
                  standing.foreign > Bytes(0) ? Colour::yellow : Colour::dim});
  if (gpu.temperature_c) head.push_back({fmt::format("  {} C", *gpu.temperature_c)});
  if (gpu.power) head.push_back({fmt::format("  {:.0f} W", gpu.power->watts)});
  if (!place.name.empty()) head.push_back({"  " + place.name, Colour::dim});

  const int width = std::clamp((screen.width - 26) / 2, 4, 120);
  const auto percent = [](double part) { return fmt::format(" {:3.0f}%", part * 100); };
  const double busy = load(survey, place);
  const bool has_load = gpu.utilization.ok() && !place.instance;
  const Spans plots = {{"     mem "},
                       {plot(screen, recent(state, place.uuid, width, &Sample::memory)), Colour::cyan},
                       {percent(used_part(place))},
                       {"  util "},
                       {plot(screen, recent(state, place.uuid, width, &Sample::utilization)), Colour::green},
                       {has_load ? percent(busy) : "   ?"}};
  return line(screen, head) + line(screen, plots);
}

std::string help_text(const Screen& screen) {
  std::string text;
  for (const char* row :
       {"q          quit", "s          sort by number, memory used, utilisation, memory left",
        "up, down   choose a GPU: its leases and processes are listed below (also k, j)",
        "a          choose none: list all", "+, -       refresh more often, less often", "p, space   pause",
        "h          this help; any key goes back"})
    text += line(screen, {{row}});
  text += line(screen, {{""}});
  for (const char* row :
       {"used      by processes, as the driver says", "promised  to leases, from the moment of the grant",
        "foreign   used by processes without a lease",
        "managed   processes on the managed device: what is resident on each of their nodes"})
    text += line(screen, {{row, Colour::dim}});
  return text;
}

bool uses(const Survey& survey, const std::string& uuid, int64_t pid) {
  return std::any_of(survey.places.begin(), survey.places.end(), [&](const Place& place) {
    return place.uuid == uuid && std::any_of(place.users.begin(), place.users.end(),
                                             [&](const User& user) { return user.pid == pid; });
  });
}

// Lists leases, waiting requests, processes and managed memory of the selected GPU or of all.
std::string lists(Survey survey, const Screen& screen, const std::string& uuid) {
  if (!uuid.empty()) {
    const auto elsewhere = [&](const Held& held) {
      return std::none_of(held.entry.record.claims.begin(), held.entry.record.claims.end(),
                          [&](const lease::Claim& claim) { return claim.uuid == uuid; });
    };
    std::erase_if(survey.leases, elsewhere);
    std::erase_if(survey.residents, [&](const Resident& resident) {
      return !resident.here || !uses(survey, uuid, resident.pid);
    });
    std::erase_if(survey.line, elsewhere);
    std::erase_if(survey.places, [&](const Place& place) { return place.uuid != uuid; });
  }
  std::string text;
  const auto add = [&](const Table& table) {
    if (!table.rows.empty()) text += "\n" + table.render(screen);
  };
  add(leases_table(survey, screen));
  add(line_table(survey, screen));
  add(users_table(survey, screen));
  add(residents_table(survey, screen));
  return text;
}

std::string first_lines(const std::string& text, int count) {
  size_t at = 0;
  for (int i = 0; i < count; ++i) {
    at = text.find('\n', at);
    if (at == std::string::npos) return text;
    ++at;
  }
  return text.substr(0, at);
}

}  // namespace

const char* to_string(Sort sort) {
  switch (sort) {
    case Sort::number: return "number";
    case Sort::used: return "used";
    case Sort::utilization: return "utilization";
    case Sort::left: return "left";
  }
  return "?";
}

void TopState::remember(const Survey& survey) {
  std::map<std::string, std::deque<Sample>> kept;
  for (const Place& place : survey.places) {
    std::deque<Sample>& samples = kept[place.uuid] = std::move(past[place.uuid]);
    samples.push_back({used_part(place), load(survey, place)});
    if (samples.size() > kPastLength) samples.pop_front();
  }
  past = std::move(kept);
}

bool TopState::press(std::string_view key, int gpus) {
  if (help) {
    help = false;
    return key != "q";
  }
  if (key == "q") return false;
  if (key == "h" || key == "?") help = true;
  if (key == "s") sort = static_cast<Sort>((static_cast<int>(sort) + 1) % 4);
  if (key == "a") selected = -1;
  if (key == "p" || key == " ") paused = !paused;
  if (key == "+") interval = std::max(kFastest, interval / 2);
  if (key == "-") interval = std::min(kSlowest, interval * 2);
  if (key == "\033[B" || key == "\033OB" || key == "j") selected = std::min(selected + 1, gpus - 1);
  if (key == "\033[A" || key == "\033OA" || key == "k")
    selected = std::max(selected - 1, std::min(0, gpus - 1));
  return true;
}

std::string top_frame(const Survey& survey, const TopState& state, const Screen& screen) {
  const int height = std::max(1, screen.height);
  std::string text =
      line(screen, {{"innkeeper  ", Colour::bold},
                    {heading(survey)},
                    // The least important text is last, because a narrow terminal cuts it off.
                    {"  h help  q quit", Colour::dim},
                    {fmt::format("  every {:g} s, sorted by {}{}  {}", state.interval, to_string(state.sort),
                                 state.paused ? ", paused" : "", driver_text(survey)),
                     Colour::dim}});
  if (state.help) return first_lines(text + "\n" + help_text(screen), height);
  if (survey.places.empty())
    text += line(screen, {{survey.snapshot.driver.ok() ? "no GPU can be used" : survey.snapshot.driver.text(),
                           Colour::red}});
  const std::vector<size_t> order = sorted(survey, state.sort);
  const int count = static_cast<int>(order.size());
  const int selected = std::min(state.selected, count - 1);
  // Each GPU takes two lines; at least a third of the screen is left for the lists.
  const int space = std::max(1, std::min(count, (height - 1) * 2 / 3 / 2));
  const int first = std::clamp(selected - space + 1, 0, std::max(0, count - space));
  for (int i = first; i < std::min(count, first + space); ++i)
    text += gpu_lines(survey, state, screen, order[static_cast<size_t>(i)], i == selected);
  if (space < count) text += line(screen, {{fmt::format("     {} of {} GPUs", space, count), Colour::dim}});
  for (const std::string& remark : remarks(survey)) text += line(screen, {{remark, Colour::yellow}});
  text += lists(survey, screen, selected < 0 ? "" : survey.places[order[static_cast<size_t>(selected)]].uuid);
  return first_lines(text, height);
}

}  // namespace innkeeper::cli
