// Copies, and kernels that run concurrently with them.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "support/contract/size.h"

namespace innkeeper::test::contract {

inline void bytes_come_back(Trial& t) {
  for (const size_t size : {1, 3, 63, 64, 65, 4095, 4096, 4097, 1 << 20, (9 << 20) + 13}) {
    const Contents& bytes = t.bytes(size, size);
    Contents& host = t.buffer(size + 1);  // Odd addresses on the host, for the source and the destination.
    std::copy(bytes.begin(), bytes.end(), host.begin() + 1);
    Contents& back = t.buffer(size + 2, 0xEE);
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
  Contents& none = t.buffer(0);
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

// A device without peers, or of another make, refuses.
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

inline void copies_out_wait_for_kernels(Trial& t) {
  Memory memory = t.take(kSize, Queue::compute);
  t.rig().fill(memory.data(), kSize, 7);
  const Event filled = t.queued(t.device().record(Queue::compute));
  t.expect(t.read(memory, kBytes, filled) == Contents(kBytes, 7), "a copy has what the kernel wrote");
}

inline void kernels_wait_for_copies_in(Trial& t) {
  const Contents& bytes = t.buffer(kBytes, 7);
  Memory memory = t.take(kSize);
  const Event in = t.put(memory, bytes);
  t.order(Queue::compute, in);
  t.expect(t.rig().look(memory.data(), kSize) == 7, "a kernel reads what was copied in");
  t.finish(in);
}

inline void kernels_wait_for_copies_out(Trial& t) {
  const Contents& bytes = t.bytes(kBytes, 1);
  Contents& back = t.buffer(kBytes);
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

}  // namespace innkeeper::test::contract
