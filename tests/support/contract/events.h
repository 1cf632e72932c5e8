// Events.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/contract/size.h"

namespace innkeeper::test::contract {

// Copies in order: in, and out again.
struct ThereAndBack {
  const Contents& bytes;
  Contents& back;
  Memory memory;
  Event in, out;
};

inline ThereAndBack there_and_back(Trial& t) {
  const Contents& bytes = t.bytes(kBytes, 1);
  Contents& back = t.buffer(kBytes);
  Memory memory = t.take(kSize);
  Event in = t.put(memory, bytes);
  t.order(Queue::copy_out, in);
  Event out = t.get(back, memory);
  return {bytes, back, std::move(memory), std::move(in), std::move(out)};
}

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
  const auto [bytes, back, memory, in, out] = there_and_back(t);
  t.expect(t.device().synchronize().ok(), "all went well");
  t.expect(back == bytes, "the copies are made");
  t.expect(is_done(in) && is_done(out), "their events say so at once");
  for (const Queue queue : {Queue::compute, Queue::copy_in, Queue::copy_out})
    t.expect(is_done(t.queued(t.device().record(queue))), "nothing is left on any queue");
}

inline void what_was_waited_for_is_done(Trial& t) {
  const auto [bytes, back, memory, in, out] = there_and_back(t);
  t.finish(out);
  t.expect(back == bytes, "who waited has the bytes");
  for (int i = 0; i < 2; ++i)
    t.expect(is_done(out) && is_done(in), "and what he waited for is done for good");
  t.finish(out);
  t.expect(t.device().synchronize().ok(), "the device is well");
}

inline void done_is_said_when_it_is_true_and_in_time(Trial& t) {
  const auto [bytes, back, memory, in, out] = there_and_back(t);
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

// An event of another device, which knows nothing of this one's queues.
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
  Contents& bytes = t.buffer(kBytes);
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
  t.give_back(t.take(kSize), {failed});  // The event is over: its work failed.
}

}  // namespace innkeeper::test::contract
