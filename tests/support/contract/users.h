// Ownership of memory: the next user of memory comes after its earlier users.
#pragma once

#include <utility>

#include "support/contract/size.h"

namespace innkeeper::test::contract {

// The order of a queue is the only one here: a kernel without a wait wrote the memory last, and a copy gets
// it next.
inline void memory_comes_after_the_kernels_that_used_it(Trial& t) {
  const Contents& bytes = t.buffer(kBytes, 9);
  Memory memory = t.take(kSize, Queue::compute);
  void* const before = memory.data();
  t.rig().fill(before, kSize, 7);
  memory.reset();
  Memory again = t.take(kSize);
  t.expect(!t.offers(kReuses) || again.data() == before, "the memory is given again");
  const Event in = t.put(again, bytes);
  t.finish(in);  // Ends the copy before any wait for the kernel.
  t.order(Queue::compute, in);
  t.expect(t.rig().look(again.data(), kSize) == 9, "the copy comes after the kernel");
}

inline void a_copy_is_given_memory_after_its_users(Trial& t) {
  const Contents& bytes = t.bytes(kBytes, 1);
  const Contents& others = t.bytes(kBytes, 2);
  Contents& back = t.buffer(kBytes);
  Memory memory = t.take(kSize);
  void* const before = memory.data();
  const Event first = t.put(memory, bytes);
  t.order(Queue::copy_out, first);
  const Event out = t.get(back, memory);
  t.give_back(std::move(memory), {first, out, nullptr});
  Memory again = t.take(kSize);
  t.expect(!t.offers(kReuses) || again.data() == before, "the memory is given again");
  const Event in = t.put(again, others);
  t.finish(in);  // Ends the copy before any wait for the memory's users.
  t.expect(t.read(again, kBytes, in) == others, "who is given it has it for himself");
  t.finish(out);
  t.expect(back == bytes, "and comes after who used it");
  t.drop(std::move(again), {in});
}

inline void a_kernel_is_given_memory_after_its_users(Trial& t) {
  const Contents& bytes = t.bytes(kBytes, 1);
  Contents& back = t.buffer(kBytes);
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

// Memory carries its users: the next owner waits for them, no other work does.
inline void only_who_is_given_memory_waits(Trial& t) {
  const Contents& bytes = t.bytes(kBytes, 1);
  Contents& back = t.buffer(kBytes);
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

// A copy gets memory as soon as the kernels that used it are done.
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

}  // namespace innkeeper::test::contract
