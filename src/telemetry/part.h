// One vendor's part of a snapshot: what its library gave, or why there is none. snapshot.cc puts the parts
// together.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "telemetry/session.h"
#include "telemetry/snapshot.h"

namespace innkeeper::telemetry {

struct Part {
  std::vector<Card> cards;
  std::vector<LostCard> lost;
  std::vector<Link> links;  // cards.size() squared, row by row; empty unless Wanted::links
  Driver driver;
  // Not Outcome::value: there is no driver (`trouble` says which, `text` is one line), and no card.
  Outcome outcome = Outcome::value;
  Trouble trouble = Trouble::none;
  std::string text;
};

// How reading went. Not Outcome::value: nothing of it counts.
struct Read {
  Outcome outcome = Outcome::value;
  std::string text;
  bool gone = false;  // the library was stopped by other code in this process
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
      const auto came_off = [](const LostCard& card) { return !card.forbidden; };
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

Part read_nvidia(Wanted wanted);  // nvidia.cc
Part read_amd(Wanted wanted);     // amd.cc
// The simulated GPUs of INNKEEPER_NODES; no card where it names none, or is no setting. simulated.cc
Part read_simulated(Wanted wanted);
void shut_down_nvidia();
void shut_down_amd();

}  // namespace innkeeper::telemetry
