// The cards, and the one lock. Whoever waits for a card runs what it has to do, under that lock, so a
// program is as deterministic here as its own threads are. Recursive: work that runs may be waited for by
// work.
//
// All of this folder but the C interface (api_*.cc, driver.cc, control.cc) is called with the lock held.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/abi.h"

namespace fake_cuda {

std::recursive_mutex& machine_mutex();

struct Card {
  int index = 0;  // as this process sees it
  std::string name;
  std::string uuid;  // "GPU-..." or "MIG-..."
  unsigned char uuid_bytes[16] = {};
  size_t total = 0;
  size_t used = 0;
  size_t others = 0;
  Error broken = kSuccess;  // sticky: what every call for this card answers
  std::vector<bool> peers;  // whose memory its kernels may touch

  size_t left() const { return used + others > total ? 0 : total - used - others; }
};

std::vector<Card>& cards();  // those that are visible
bool is_card(int index);
Card& card(int index);
int& current_card();  // of the calling thread

// From now on every call for the card answers `error`; what it had to do is dropped, what it held is poison.
// What other cards were given before is through.
void break_card(int index, Error error);
// The fake's own: a card that works again, empty-handed. No real one does that without a new process.
void repair_card(int index);

}  // namespace fake_cuda
