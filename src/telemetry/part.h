// One vendor's part of a snapshot: its library's results, or the reason for their absence. snapshot.cc
// merges the parts.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "telemetry/session.h"
#include "telemetry/snapshot.h"

namespace innkeeper::telemetry {

struct Part {
  std::vector<Gpu> gpus;
  std::vector<LostGpu> lost;
  std::vector<Link> links;  // gpus.size() squared links, row by row; empty unless Wanted::links.
  Driver driver;
  // Not Outcome::value: there is no driver and no GPU; `trouble` names the kind, and `text` is one line.
  Outcome outcome = Outcome::value;
  Trouble trouble = Trouble::none;
  std::string text;
};

// Outcome of reading a part. Not Outcome::value: the part is void.
struct Read {
  Outcome outcome = Outcome::value;
  std::string text;
  bool gone = false;  // True: other code in this process has stopped the library.
};

// Reads a part by `read(library, part) -> Read`; if the library turns out to be stopped, once more.
template <class Library, class Reader>
Part take_part(Sessions<Library>& sessions, const Reader& read) {
  for (bool again = false;; again = true) {
    Part part;
    Start<Library> start = sessions.start_or_join(again);
    if (!start.use) {
      part.outcome = Outcome::no_driver;
      part.trouble = start.failure.trouble;
      part.text = std::move(start.failure.text);
      return part;
    }
    Read result = read(start.use.library(), part);
    if (result.outcome == Outcome::value) {
      const auto came_off = [](const LostGpu& gpu) { return !gpu.forbidden; };
      if (std::any_of(part.lost.begin(), part.lost.end(), came_off)) start.use.suspect();
      return part;
    }
    if (result.gone) start.use.gone();
    if (result.gone && !again) continue;
    start.use.suspect();
    part = Part();
    part.outcome = result.outcome;
    part.trouble = Trouble::other;
    part.text = std::move(result.text);
    return part;
  }
}

Part read_nvidia(Wanted wanted);  // Defined in nvidia.cc.
Part read_amd(Wanted wanted);     // Defined in amd.cc.
// Reads the simulated GPUs of INNKEEPER_NODES; none if it names none or is no valid setting. Defined
// in simulated.cc.
Part read_simulated(Wanted wanted);
void shut_down_nvidia();
void shut_down_amd();

}  // namespace innkeeper::telemetry
