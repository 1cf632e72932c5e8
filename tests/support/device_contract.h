// What device_api.h promises, sentence by sentence, as checks that any device can be put through. Whoever has
// a device makes a RigKind for it (device_rig.h) and tries contract_cases() of it; what a device does not
// have is not tried on it. tests/unit/device_contract_broken_test.cc shows for each check a device that fails
// it.
//
// Bytes are the evidence: a wait that a device forgets shows where its work is late (the simulator's default,
// the fake CUDA runtime); elsewhere the checks are of arithmetic and accounts.
#pragma once

#include <algorithm>
#include <chrono>
#include <latch>
#include <random>
#include <thread>

#include "support/device_rig.h"

namespace innkeeper::test {
namespace contract {

inline constexpr size_t kBytes = 4096;
inline constexpr Bytes kSize(kBytes);

// ---- memory and its accounts

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
  const Bytes room = t.rig().charge_of(Bytes(1000));
  t.books().limit = room.count();
  const Memory held = t.take(Bytes(1000));
  const Result<Memory> more = t.device().allocate(Bytes(1));
  t.expect(!more.ok() && more.status().code() == Code::out_of_memory, "a refusal is what allocate says");
  t.expect(t.device().live() == room, "nothing was taken");
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

// As the engine makes room: inside the allocation that is short of it.
inline void may_be_used_while_it_charges(Trial& t) {
  const Contents& bytes = t.bytes(kBytes, 1);
  Contents& saved = t.room(kBytes);
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
  (void)t.take(MiB(1));  // is free by now
  t.expect(t.device().trim() >= Bytes(0), "how much went is no less than nothing");
  t.expect(t.device().live() == kSize, "what is alive stays");
  t.expect(t.read(memory, kBytes, in) == bytes, "with its bytes");
  const Memory again = t.take(MiB(1));
  const Contents& others = t.bytes(1 << 20, 2);
  t.expect(t.read(again, others.size(), t.put(again, others)) == others, "there is memory after it");
}

// ---- copies

inline void bytes_come_back(Trial& t) {
  for (const size_t size : {1, 3, 63, 64, 65, 4095, 4096, 4097, 1 << 20, (9 << 20) + 13}) {
    const Contents& bytes = t.bytes(size, size);
    Contents& host = t.room(size + 1);  // from an odd address, and to one
    std::copy(bytes.begin(), bytes.end(), host.begin() + 1);
    Contents& back = t.room(size + 2, 0xEE);
    const Bytes length(static_cast<int64_t>(size));
    Memory memory = t.take(length);
    const Event in = t.queued(t.device().copy_in(memory.data(), host.data() + 1, length));
    t.order(Queue::copy_out, in);
    const Event out = t.queued(t.device().copy_out(back.data() + 1, memory.data(), length));
    t.finish(out);
    t.expect(std::equal(bytes.begin(), bytes.end(), back.begin() + 1), std::to_string(size) + " come back");
    t.expect(back.front() == 0xEE && back.back() == 0xEE, "and nothing beside them is written");
    const Contents& half = t.read(memory, size / 2, out);
    t.expect(std::equal(half.begin(), half.end(), bytes.begin()), "the first half comes back");
    t.drop(std::move(memory), {in, out});
  }
}

inline void no_bytes_are_copied_without_harm(Trial& t) {
  Contents& none = t.room(0);
  const Memory memory = t.take(kSize);
  const Event in = t.put(memory, none);
  t.order(Queue::copy_out, in);
  const Event out = t.get(none, memory);
  t.finish(in);
  t.finish(out);
  const Contents& bytes = t.bytes(kBytes, 1);
  t.expect(t.read(memory, kBytes, t.put(memory, bytes)) == bytes, "others can be copied after it");
}

inline void copies_out_wait_for_copies_in(Trial& t) {
  const Contents& bytes = t.bytes(kBytes, 1);
  Memory memory = t.take(kSize);
  const Event in = t.put(memory, bytes);
  t.expect(t.read(memory, kBytes, in) == bytes, "a copy out that waits for the copy in has its bytes");
  t.drop(std::move(memory), {in});
}

inline void a_copy_lands_on_top_of_the_one_before(Trial& t) {
  const Contents& first = t.bytes(kBytes, 1);
  const Contents& second = t.bytes(kBytes, 2);
  Memory memory = t.take(kSize);
  (void)t.put(memory, first);
  const Event in = t.put(memory, second);
  t.expect(t.read(memory, kBytes, in) == second, "work on one queue happens in order");
  t.drop(std::move(memory), {in});
}

inline void peers_copy_in_order(Trial& t) {
  const Contents& bytes = t.bytes(kBytes, 1);
  const Contents& others = t.bytes(kBytes, 2);
  Device& peer = t.rig().peer();
  if (!t.expect(t.device().can_copy_from(peer), "a peer can be copied from")) return;
  Memory there = std::move(peer.allocate(kSize, Queue::copy_in)).value();
  Memory here = t.take(kSize);
  const Event filled = t.queued(peer.copy_in(there.data(), bytes.data(), kSize));
  t.order(Queue::copy_in, filled);
  const Event across = t.queued(t.device().copy_peer(here.data(), peer, there.data(), kSize));
  t.expect(peer.wait(Queue::copy_in, across).ok(), "a peer waits for the other's copy");
  const Event over = t.queued(peer.copy_in(there.data(), others.data(), kSize));
  t.expect(t.read(here, kBytes, across) == bytes, "what was there when it was copied arrives");
  peer.give_back(std::move(there), std::span(&over, 1));
  t.drop(std::move(here), {across});
  t.expect(peer.synchronize().ok(), "the peer is well");
  t.expect(t.books().charged(Books::kPeerNode) == Bytes(0), "its memory was its own");
}

// What has no peers, or another make, says no.
inline void strangers_are_no_peers(Trial& t) {
  struct Stranger final : Device {
    NodeKind kind() const override { return NodeKind::host; }
    const std::string& name() const override { return name_; }
    void attach(NodeId, Accountant*) override {}
    Result<Memory> allocate(Bytes, Queue) override { return Status(Code::unavailable, ""); }
    Bytes live() const override { return {}; }
    Result<Event> record(Queue) override { return Event(); }
    Status wait(Queue, const Event&) override { return {}; }
    Result<Event> copy_in(void*, const void*, Bytes) override { return Event(); }
    Result<Event> copy_out(void*, const void*, Bytes) override { return Event(); }
    bool can_copy_from(const Device&) const override { return false; }
    Result<Event> copy_peer(void*, Device&, const void*, Bytes) override { return Event(); }
    Status synchronize() override { return {}; }
    const std::string name_ = "stranger";
  } stranger;
  unsigned char byte = 0;
  const Memory memory = t.take(Bytes(1));
  t.expect(!t.device().can_copy_from(stranger), "a stranger is no peer");
  const Result<Event> copied = t.device().copy_peer(memory.data(), stranger, &byte, Bytes(1));
  t.expect(!copied.ok() && copied.status().code() == Code::invalid_argument, "and is refused by name");
}

// ---- kernels

inline void copies_out_wait_for_kernels(Trial& t) {
  Memory memory = t.take(kSize, Queue::compute);
  t.rig().fill(memory.data(), kSize, 7);
  const Event filled = t.queued(t.device().record(Queue::compute));
  t.expect(t.read(memory, kBytes, filled) == Contents(kBytes, 7), "a copy has what the kernel wrote");
}

inline void kernels_wait_for_copies_in(Trial& t) {
  const Contents& bytes = t.room(kBytes, 7);
  Memory memory = t.take(kSize);
  const Event in = t.put(memory, bytes);
  t.order(Queue::compute, in);
  t.expect(t.rig().look(memory.data(), kSize) == 7, "a kernel reads what was copied in");
  t.finish(in);
}

inline void kernels_wait_for_copies_out(Trial& t) {
  const Contents& bytes = t.bytes(kBytes, 1);
  Contents& back = t.room(kBytes);
  Memory memory = t.take(kSize);
  const Event in = t.put(memory, bytes);
  t.order(Queue::copy_out, in);
  const Event out = t.get(back, memory);
  t.order(Queue::compute, out);
  t.rig().fill(memory.data(), kSize, 7);
  t.expect(t.rig().look(memory.data(), kSize) == 7, "the kernel wrote");
  t.finish(out);
  t.expect(back == bytes, "after it had been copied out");
}

// ---- whose memory it is

// In a queue's order only: a kernel that nobody waited for wrote last what is given to a copy.
inline void memory_comes_after_the_kernels_that_used_it(Trial& t) {
  const Contents& bytes = t.room(kBytes, 9);
  Memory memory = t.take(kSize, Queue::compute);
  void* const before = memory.data();
  t.rig().fill(before, kSize, 7);
  memory.reset();
  Memory again = t.take(kSize);
  t.expect(!t.offers(kReuses) || again.data() == before, "the memory is given again");
  const Event in = t.put(again, bytes);
  t.finish(in);  // before anybody waits for the kernel
  t.order(Queue::compute, in);
  t.expect(t.rig().look(again.data(), kSize) == 9, "the copy comes after the kernel");
}

inline void a_copy_is_given_memory_after_its_users(Trial& t) {
  const Contents& bytes = t.bytes(kBytes, 1);
  const Contents& others = t.bytes(kBytes, 2);
  Contents& back = t.room(kBytes);
  Memory memory = t.take(kSize);
  void* const before = memory.data();
  const Event first = t.put(memory, bytes);
  t.order(Queue::copy_out, first);
  const Event out = t.get(back, memory);
  t.give_back(std::move(memory), {first, out, nullptr});
  Memory again = t.take(kSize);
  t.expect(!t.offers(kReuses) || again.data() == before, "the memory is given again");
  const Event in = t.put(again, others);
  t.finish(in);  // before anybody waits for its users
  t.expect(t.read(again, kBytes, in) == others, "who is given it has it for himself");
  t.finish(out);
  t.expect(back == bytes, "and comes after who used it");
  t.drop(std::move(again), {in});
}

inline void a_kernel_is_given_memory_after_its_users(Trial& t) {
  const Contents& bytes = t.bytes(kBytes, 1);
  Contents& back = t.room(kBytes);
  Memory memory = t.take(kSize);
  void* const before = memory.data();
  const Event in = t.put(memory, bytes);
  t.finish(in);
  const Event out = t.get(back, memory);
  t.give_back(std::move(memory), {out});
  Memory again = t.take(kSize, Queue::compute);
  t.expect(!t.offers(kReuses) || again.data() == before, "the memory is given again");
  t.rig().fill(again.data(), kSize, 7);
  t.expect(t.rig().look(again.data(), kSize) == 7, "who is given it has it for himself");
  t.finish(out);
  t.expect(back == bytes, "and comes after who used it");
}

// Memory carries its users: it is waited for by who is given it.
inline void only_who_is_given_memory_waits(Trial& t) {
  const Contents& bytes = t.bytes(kBytes, 1);
  Contents& back = t.room(kBytes);
  Memory memory = t.take(kSize);
  t.finish(t.put(memory, bytes));
  t.expect(t.device().synchronize().ok(), "the device is well");
  const Event out = t.get(back, memory);
  t.give_back(std::move(memory), {out});
  t.finish(t.queued(t.device().record(Queue::compute)));
  const bool passed = is_done(out);
  t.expect(!passed, "the compute queue waited for another's memory");
  t.finish(out);
  t.expect(back == bytes, "the copy is whole");
}

// Memory comes to a copy as soon as the kernels that used it are done.
inline void a_copy_waits_for_no_kernel_launched_since(Trial& t) {
  const Contents& bytes = t.bytes(kBytes, 1);
  Memory memory = t.take(kSize, Queue::compute);
  void* const before = memory.data();
  const Memory other = t.take(kSize, Queue::compute);
  t.rig().fill(memory.data(), kSize, 5);
  t.drop(std::move(memory), {});
  t.finish(t.queued(t.device().record(Queue::compute)));
  t.rig().fill(other.data(), kSize, 6);
  const Event since = t.queued(t.device().record(Queue::compute));
  Memory again = t.take(kSize);
  t.expect(!t.offers(kReuses) || again.data() == before, "the memory is given again");
  const Event in = t.put(again, bytes);
  t.finish(in);
  const bool passed = is_done(since);
  t.expect(!passed, "the copy waited for another's kernel");
  t.expect(t.read(again, kBytes, in) == bytes, "the copy is whole");
  t.expect(t.rig().look(other.data(), kSize) == 6, "and so is the other");
  t.drop(std::move(again), {in});
}

// ---- events

inline void a_record_covers_what_was_put_before(Trial& t) {
  std::vector<Memory> pieces;
  std::vector<Event> events;
  for (uint64_t i = 0; i < 20; ++i) pieces.push_back(t.take(kSize));
  for (uint64_t i = 0; i < 20; ++i) events.push_back(t.put(pieces[i], t.bytes(kBytes, i)));
  const Event all = t.queued(t.device().record(Queue::copy_in));
  t.order(Queue::copy_out, all);
  if (t.device().kind() != NodeKind::accelerator) {
    for (const Event& event : events) t.expect(is_done(event), "waiting has blocked the caller");
  }
  for (size_t i = 0; i < pieces.size(); ++i)
    t.expect(t.read(pieces[i], kBytes, all) == pattern(kBytes, i), "record() covers " + std::to_string(i));
  for (Memory& piece : pieces) t.drop(std::move(piece), {all});
}

inline void synchronize_covers_all_queues(Trial& t) {
  const Contents& bytes = t.bytes(kBytes, 1);
  Contents& back = t.room(kBytes);
  const Memory memory = t.take(kSize);
  const Event in = t.put(memory, bytes);
  t.order(Queue::copy_out, in);
  const Event out = t.get(back, memory);
  t.expect(t.device().synchronize().ok(), "all went well");
  t.expect(back == bytes, "the copies are made");
  t.expect(is_done(in) && is_done(out), "their events say so at once");
  for (const Queue queue : {Queue::compute, Queue::copy_in, Queue::copy_out})
    t.expect(is_done(t.queued(t.device().record(queue))), "nothing is left on any queue");
}

inline void what_was_waited_for_is_done(Trial& t) {
  const Contents& bytes = t.bytes(kBytes, 1);
  Contents& back = t.room(kBytes);
  const Memory memory = t.take(kSize);
  const Event in = t.put(memory, bytes);
  t.order(Queue::copy_out, in);
  const Event out = t.get(back, memory);
  t.finish(out);
  t.expect(back == bytes, "who waited has the bytes");
  for (int i = 0; i < 2; ++i)
    t.expect(is_done(out) && is_done(in), "and what he waited for is done for good");
  t.finish(out);
  t.expect(t.device().synchronize().ok(), "the device is well");
}

inline void done_is_said_when_it_is_true_and_in_time(Trial& t) {
  const Contents& bytes = t.bytes(kBytes, 1);
  Contents& back = t.room(kBytes);
  const Memory memory = t.take(kSize);
  const Event in = t.put(memory, bytes);
  t.order(Queue::copy_out, in);
  const Event out = t.get(back, memory);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!is_done(out) && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  t.expect(is_done(out), "asking ends");
  t.expect(back == bytes, "what is said to be done is done");
  t.expect(t.device().synchronize().ok(), "the device is well");
}

inline void events_may_outlive_their_device(Trial& t) {
  const Contents& bytes = t.bytes(kBytes, 1);
  std::vector<Event> events;
  {
    Memory memory = t.take(kSize);
    events.push_back(t.put(memory, bytes));
    t.drop(std::move(memory), {events.back()});
  }
  for (const Queue queue : {Queue::compute, Queue::copy_in, Queue::copy_out})
    events.push_back(t.queued(t.device().record(queue)));
  t.expect(t.device().synchronize().ok(), "the device is well");
  t.rig().end_device();
  for (const Event& event : events) {
    t.finish(event);
    t.expect(is_done(event), "its work is done");
  }
}

inline void a_null_event_is_long_past(Trial& t) {
  for (const Queue queue : {Queue::compute, Queue::copy_in, Queue::copy_out}) t.order(queue, nullptr);
  if (!t.broken().empty()) return;
  const Event nothing[] = {nullptr, nullptr};
  t.device().order_after(nothing);
  t.device().give_back(t.take(kSize), nothing);
}

// Of another device, which knows nothing of this one's queues.
inline void others_events_are_waited_for(Trial& t) {
  struct Other final : EventState {
    explicit Other(Contents& into) : bytes(into) {}
    bool done() override { return over; }
    Status synchronize() override {
      std::fill(bytes.begin(), bytes.end(), 7);
      over = true;
      return {};
    }
    Contents& bytes;
    bool over = false;
  };
  Contents& bytes = t.room(kBytes);
  const Memory memory = t.take(kSize);
  t.order(Queue::copy_in, std::make_shared<Other>(bytes));
  t.expect(t.read(memory, kBytes, t.put(memory, bytes)) == Contents(kBytes, 7),
           "what comes after another's event comes after it");
}

inline void others_failures_are_told(Trial& t) {
  struct Failed final : EventState {
    bool done() override { return true; }
    Status synchronize() override { return Status(Code::io_error, "the disk is gone"); }
  };
  const Event failed = std::make_shared<Failed>();
  for (const Queue queue : {Queue::compute, Queue::copy_in, Queue::copy_out}) {
    const Status status = t.device().wait(queue, failed);
    t.expect(status.code() == Code::io_error && status.message() == "the disk is gone", "as they were told");
  }
  t.give_back(t.take(kSize), {failed});  // it is over, in vain
}

// ---- failures

inline void a_copy_that_fails_says_so_and_is_over(Trial& t) {
  const Contents& bytes = t.bytes(kBytes, 1);
  Contents& back = t.room(kBytes);
  Memory memory = t.take(kSize);
  for (const bool in : {true, false}) {
    const Event before = t.put(memory, bytes);
    t.order(Queue::copy_out, before);
    t.rig().fail_next_copy();
    const Result<Event> copy = in ? t.device().copy_in(memory.data(), bytes.data(), kSize)
                                  : t.device().copy_out(back.data(), memory.data(), kSize);
    if (copy.ok()) {
      t.expect(copy.value() != nullptr && !copy.value()->synchronize().ok(), "who waits hears of it");
      t.expect(is_done(copy.value()), "it is over");
    }
    const Event again = t.put(memory, bytes);
    t.expect(t.read(memory, kBytes, again) == bytes, "the next one is made");
    t.expect(t.device().live() == kSize && t.books().charged() == kSize, "the books are as they were");
  }
  t.give_back(std::move(memory), {t.queued(t.device().record(Queue::copy_in))});
}

inline void once_lost_it_refuses_everything(Trial& t) {
  Contents& bytes = t.room(kBytes);
  Memory memory = t.take(kSize);
  t.expect(!t.device().is_lost(), "it is there");
  t.rig().lose();
  t.expect(t.device().is_lost(), "it is known to be lost");
  const auto lost = [&](const Status& status, const char* what) {
    t.expect(status.code() == Code::device_lost, std::string(what) + " fails with loss()");
  };
  lost(t.device().loss(), "loss()");
  lost(t.device().allocate(kSize).status(), "allocate()");
  lost(t.device().record(Queue::compute).status(), "record()");
  lost(t.device().copy_in(memory.data(), bytes.data(), kSize).status(), "copy_in()");
  lost(t.device().copy_out(bytes.data(), memory.data(), kSize).status(), "copy_out()");
  memory.reset();  // does no harm
}

// ---- threads

inline void threads_share_it(Trial& t) {
  constexpr unsigned kThreads = 4;
  std::latch all(kThreads);
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    all.arrive_and_wait();
    for (int step = 0; step < t.steps(); ++step) {
      const size_t size = 1 + random() % 20'000;
      const Contents& bytes = t.bytes(size, seed * 1000 + static_cast<uint64_t>(step));
      Contents& back = t.room(size);
      const bool for_a_copy = random() % 2 == 0;
      Memory memory = t.take(Bytes(static_cast<int64_t>(size)), for_a_copy ? Queue::copy_in : Queue::compute);
      if (!for_a_copy) t.order(Queue::copy_in, t.queued(t.device().record(Queue::compute)));
      const Event in = t.put(memory, bytes);
      t.order(Queue::copy_out, in);
      const Event out = t.get(back, memory);
      switch (random() % 3) {
        case 0: t.give_back(std::move(memory), {in, out}); break;
        case 1: t.drop(std::move(memory), {in, out}); break;
        default: t.finish(t.queued(t.device().record(Queue::copy_out)));
      }
      if (random() % 8 == 0) (void)t.device().trim();
      t.finish(out);
      if (!t.expect(back == bytes, "each thread has its own bytes")) return;
      if (memory) t.drop(std::move(memory), {in, out});
    }
  };
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= kThreads; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace contract

struct ContractCheck {
  const char* name;
  void (*run)(Trial&);
  unsigned needs = 0;  // Offers
};

inline constexpr ContractCheck kDeviceContract[] = {
    {"ChargesBeforeItTakes", contract::charges_before_it_takes},
    {"TakesNothingThatIsRefused", contract::takes_nothing_that_is_refused},
    {"GivesBackWhatItCharged", contract::gives_back_what_it_charged},
    {"WhatItHasNotIsNotCharged", contract::what_it_has_not_is_not_charged, kFull},
    {"AskedForNothingItTakesNothing", contract::asked_for_nothing_it_takes_nothing},
    {"MayBeUsedWhileItCharges", contract::may_be_used_while_it_charges},
    {"PiecesAreAlignedAndApart", contract::pieces_are_aligned_and_apart},
    {"LiveIsARecount", contract::live_is_a_recount},
    {"TrimmingLeavesWhatIsAlive", contract::trimming_leaves_what_is_alive},
    {"BytesComeBack", contract::bytes_come_back},
    {"NoBytesAreCopiedWithoutHarm", contract::no_bytes_are_copied_without_harm},
    {"CopiesOutWaitForCopiesIn", contract::copies_out_wait_for_copies_in},
    {"ACopyLandsOnTopOfTheOneBefore", contract::a_copy_lands_on_top_of_the_one_before, kKernels},
    {"PeersCopyInOrder", contract::peers_copy_in_order, kPeer},
    {"StrangersAreNoPeers", contract::strangers_are_no_peers},
    {"CopiesOutWaitForKernels", contract::copies_out_wait_for_kernels, kKernels},
    {"KernelsWaitForCopiesIn", contract::kernels_wait_for_copies_in, kKernels},
    {"KernelsWaitForCopiesOut", contract::kernels_wait_for_copies_out, kKernels},
    {"MemoryComesAfterTheKernelsThatUsedIt", contract::memory_comes_after_the_kernels_that_used_it, kKernels},
    {"ACopyIsGivenMemoryAfterItsUsers", contract::a_copy_is_given_memory_after_its_users},
    {"AKernelIsGivenMemoryAfterItsUsers", contract::a_kernel_is_given_memory_after_its_users, kKernels},
    {"OnlyWhoIsGivenMemoryWaits", contract::only_who_is_given_memory_waits, kKernels | kLate},
    {"ACopyWaitsForNoKernelLaunchedSince", contract::a_copy_waits_for_no_kernel_launched_since,
     kKernels | kLate},
    {"ARecordCoversWhatWasPutBefore", contract::a_record_covers_what_was_put_before},
    {"SynchronizeCoversAllQueues", contract::synchronize_covers_all_queues},
    {"WhatWasWaitedForIsDone", contract::what_was_waited_for_is_done},
    {"DoneIsSaidWhenItIsTrueAndInTime", contract::done_is_said_when_it_is_true_and_in_time, kPolls},
    {"EventsMayOutliveTheirDevice", contract::events_may_outlive_their_device},
    {"ANullEventIsLongPast", contract::a_null_event_is_long_past},
    {"OthersEventsAreWaitedFor", contract::others_events_are_waited_for},
    {"OthersFailuresAreTold", contract::others_failures_are_told},
    {"ACopyThatFailsSaysSoAndIsOver", contract::a_copy_that_fails_says_so_and_is_over, kFailures},
    {"OnceLostItRefusesEverything", contract::once_lost_it_refuses_everything, kLoss},
    {"ThreadsShareIt", contract::threads_share_it},
};

// Puts a device through a check. Returns what it found broken, or nothing.
inline std::string verdict(const RigKind& kind, const ContractCheck& check, int steps,
                           const Rig::Wrap& around = nullptr) {
  Trial trial(kind, steps);
  if (around) trial.rig().wrap(around);
  check.run(trial);
  if (trial.rig().has_device()) {
    const Status status = trial.device().synchronize();
    trial.expect(status.ok() || trial.device().is_lost(), "the device is well: " + status.message());
    trial.expect(trial.device().live() == Bytes(0), "nothing is left");
  }
  trial.expect(trial.books().charged() == Bytes(0), "nothing is left in the books");
  return trial.broken();
}

struct ContractCase {
  RigKind kind;
  ContractCheck check;
};

// What each device is to be put through.
inline std::vector<ContractCase> contract_cases(const std::vector<RigKind>& kinds) {
  std::vector<ContractCase> cases;
  for (const RigKind& kind : kinds) {
    for (const ContractCheck& check : kDeviceContract)
      if ((check.needs & ~kind.offers) == 0) cases.push_back({kind, check});
  }
  return cases;
}

inline std::string name_of(const ContractCase& tried) { return tried.kind.name + "_" + tried.check.name; }

}  // namespace innkeeper::test
