// The screen of top: a pure function of the survey, its past and the keys pressed.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "cli/gpus/survey.h"
#include "cli/screen.h"

namespace innkeeper::cli {

enum class Sort : uint8_t { number, used, utilization, left };
const char* to_string(Sort sort);

struct Sample {
  double memory = 0, utilization = 0;  // Shares, 0 to 1.
};

struct TopState {
  std::map<std::string, std::deque<Sample>> past;  // Samples by UUID, newest last.
  Sort sort = Sort::number;
  int selected = -1;  // Selected row of the sorted GPUs; -1: none, so that the lists below cover all GPUs.
  bool help = false;
  bool paused = false;
  double interval = 1;  // Refresh period, seconds.

  // Adds the survey to its GPUs' past, which is kept for the width of the widest plot.
  void remember(const Survey& survey);
  // Handles one key, or an arrow's escape sequence. Returns false to quit.
  bool press(std::string_view key, int gpus);
};

// Returns at most screen.height lines of at most screen.width columns, each ending in a newline.
std::string top_frame(const Survey& survey, const TopState& state, const Screen& screen);

}  // namespace innkeeper::cli
