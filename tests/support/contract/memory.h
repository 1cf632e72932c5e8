// Memory and its accounts.
#pragma once

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "support/contract/size.h"

namespace innkeeper::test::contract {

inline void charges_before_it_takes(Trial& t) {
  const Bytes before = t.device().live();
  Bytes then(-1);
  int asked = 0;
  t.books().on_charge = [&] {
    ++asked;
    then = t.device().live();
  };
  const Memory memory = t.take(Bytes(1000));
  t.books().on_charge = nullptr;
  t.expect(asked == 1, "an allocation is charged once");
  t.expect(then == before, "memory is charged before it is taken");
}

inline void takes_nothing_that_is_refused(Trial& t) {
  const Bytes space = t.rig().charge_of(Bytes(1000));
  t.books().limit = space.count();
  const Memory held = t.take(Bytes(1000));
  const Result<Memory> more = t.device().allocate(Bytes(1));
  t.expect(!more.ok() && more.status().code() == Code::out_of_memory, "a refusal is what allocate says");
  t.expect(t.device().live() == space, "nothing was taken");
}

inline void gives_back_what_it_charged(Trial& t) {
  for (const int64_t size : {1, 63, 64, 65, 4096, (1 << 20) + 1}) {
    const Bytes rounded = t.rig().charge_of(Bytes(size));
    const auto nothing_left = [&](const char* how) {
      t.expect(t.books().charged() == Bytes(0) && t.device().live() == Bytes(0), how);
    };
    Memory memory = t.take(Bytes(size));
    t.expect(t.books().charged() == rounded, "a whole number of kAlignment is charged");
    t.expect(t.device().live() == rounded, "and alive");
    t.expect(round_up(memory.size()) == round_up(Bytes(size)), "and what the memory says of itself");
    memory.reset();
    nothing_left("all is given back by reset()");
    t.give_back(t.take(Bytes(size)), {});
    nothing_left("all is given back by give_back()");
    const Memory::Raw raw = t.take(Bytes(size)).take();
    t.expect(t.books().charged() == rounded, "whoever took over the duty to release has the memory");
    raw.release(raw.context);
    nothing_left("all is given back by release()");
  }
}

inline void what_it_has_not_is_not_charged(Trial& t) {
  const Memory held = t.take(kSize);
  const Result<Memory> much = t.device().allocate(t.rig().too_much());
  t.expect(!much.ok() && much.status().code() == Code::out_of_memory,
           "what a device has not is out_of_memory");
  t.expect(t.books().charged() == kSize && t.device().live() == kSize, "and costs nothing");
  (void)t.take(kSize);
}

inline void asked_for_nothing_it_takes_nothing(Trial& t) {
  for (const int64_t size : {0, -1}) {
    const Result<Memory> nothing = t.device().allocate(Bytes(size));
    t.expect(!nothing.ok() && nothing.status().code() == Code::invalid_argument, "no bytes are no memory");
  }
  t.expect(t.books().charged() == Bytes(0), "and cost nothing");
}

// The engine evicts so: inside the allocation that is short of space.
inline void may_be_used_while_it_charges(Trial& t) {
  const Contents& bytes = t.bytes(kBytes, 1);
  Contents& saved = t.buffer(kBytes);
  Memory victim = t.take(kSize);
  const Event in = t.put(victim, bytes);
  int asked = 0;
  t.books().on_charge = [&] {
    if (++asked > 1) return;
    t.order(Queue::copy_out, in);
    const Event out = t.get(saved, victim);
    (void)t.device().live();
    (void)t.device().trim();
    t.give_back(std::move(victim), {in, out});
    (void)t.take(kSize);
    t.finish(out);
  };
  t.books().on_uncharge = [&] { (void)t.device().live(); };
  (void)t.take(kSize);
  t.books().on_charge = t.books().on_uncharge = nullptr;
  t.expect(asked == 2, "an allocation within an allocation is charged");
  t.expect(saved == bytes, "what is moved meanwhile is whole");
}

inline void pieces_are_aligned_and_apart(Trial& t) {
  std::vector<Memory> pieces;
  for (int64_t size = 1; size < 200'000; size = size * 3 / 2 + 7) pieces.push_back(t.take(Bytes(size)));
  std::vector<std::pair<uintptr_t, uintptr_t>> ranges;
  for (const Memory& piece : pieces) {
    const auto begin = reinterpret_cast<uintptr_t>(piece.data());
    t.expect(begin != 0 && begin % kAlignment == 0, "memory is aligned to kAlignment");
    ranges.emplace_back(begin, begin + static_cast<uintptr_t>(round_up(piece.size()).count()));
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i)
    t.expect(ranges[i - 1].second <= ranges[i].first, "pieces do not overlap");
}

inline void live_is_a_recount(Trial& t) {
  std::mt19937 random(5);
  std::vector<Memory> pieces;
  Bytes alive{0};
  for (int step = 0; step < 200; ++step) {
    if (pieces.empty() || random() % 3 != 0) {
      const Bytes size(1 + random() % 50'000);
      pieces.push_back(t.take(size, random() % 2 == 0 ? Queue::copy_in : Queue::compute));
      alive += t.rig().charge_of(size);
    } else {
      const size_t which = random() % pieces.size();
      alive -= t.rig().charge_of(pieces[which].size());
      std::swap(pieces[which], pieces.back());
      pieces.pop_back();
    }
    if (!t.expect(t.device().live() == alive && t.books().charged() == alive, "live() counts what is alive"))
      return;
  }
}

inline void trimming_leaves_what_is_alive(Trial& t) {
  const Contents& bytes = t.bytes(kBytes, 1);
  const Memory memory = t.take(kSize);
  const Event in = t.put(memory, bytes);
  t.finish(in);
  (void)t.take(MiB(1));  // Its memory is free by now.
  t.expect(t.device().trim() >= Bytes(0), "how much went is no less than nothing");
  t.expect(t.device().live() == kSize, "what is alive stays");
  t.expect(t.read(memory, kBytes, in) == bytes, "with its bytes");
  const Memory again = t.take(MiB(1));
  const Contents& others = t.bytes(1 << 20, 2);
  t.expect(t.read(again, others.size(), t.put(again, others)) == others, "there is memory after it");
}

}  // namespace innkeeper::test::contract
