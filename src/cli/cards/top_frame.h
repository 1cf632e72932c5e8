// What top shows: a pure function of the machine, its past and what the keys have chosen.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "cli/cards/survey.h"
#include "cli/screen.h"

namespace innkeeper::cli {

enum class Sort : uint8_t { number, used, utilization, left };
const char* to_string(Sort sort);

struct Sample {
  double memory = 0, utilization = 0;  // parts, 0 to 1
};

struct TopState {
  std::map<std::string, std::deque<Sample>> past;  // by UUID, newest last
  Sort sort = Sort::number;
  int selected = -1;  // a row of cards as they are sorted; -1: none, so that everything is listed below
  bool help = false;
  bool paused = false;
  double interval = 1;  // seconds

  // Adds the survey to the past of its cards, which is kept as long as the widest plot.
  void remember(const Survey& survey);
  // One key, or an arrow's escape sequence. False: quit.
  bool press(std::string_view key, int cards);
};

// At most screen.height lines of at most screen.width columns, each ending in a newline.
std::string top_frame(const Survey& survey, const TopState& state, const Screen& screen);

}  // namespace innkeeper::cli
