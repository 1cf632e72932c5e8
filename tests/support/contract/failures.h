// Failures.
#pragma once

#include <string>
#include <utility>

#include "support/contract/size.h"

namespace innkeeper::test::contract {

inline void a_copy_that_fails_says_so_and_is_over(Trial& t) {
  const Contents& bytes = t.bytes(kBytes, 1);
  Contents& back = t.buffer(kBytes);
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
  Contents& bytes = t.buffer(kBytes);
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
  memory.reset();  // The release does no harm.
}

}  // namespace innkeeper::test::contract
