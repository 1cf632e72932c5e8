// Events that a test writes to a stream and reads back.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/check.h"
#include "trace/stream.h"

namespace innkeeper::test {

struct Told {
  trace::EventKind kind = trace::EventKind::mark;
  std::string name = {};
  NodeId node = kNoNode;
  trace::Work work = {};
  std::vector<trace::RecordedAccess> accesses = {};
  BlockId block{};
  std::string text = {};
};

inline bool operator==(const Told& a, const Told& b) {
  const auto same = [](const trace::RecordedAccess& x, const trace::RecordedAccess& y) {
    return x.block == y.block && x.size == y.size && x.kind == y.kind;
  };
  return a.kind == b.kind && a.name == b.name && a.node == b.node && a.work.flops == b.work.flops &&
         a.work.bytes == b.work.bytes && a.work.kernels == b.work.kernels &&
         std::equal(a.accesses.begin(), a.accesses.end(), b.accesses.begin(), b.accesses.end(), same) &&
         a.block == b.block && a.text == b.text;
}

inline Told told_by(const trace::Event& event, const trace::Stream& stream) {
  Told told{.kind = event.kind,
            .name = std::string(stream.names()[static_cast<uint32_t>(event.name)]),
            .node = event.node,
            .work = event.work,
            .block = event.block,
            .text = std::string(event.text)};
  for (size_t i = 0; i < event.accesses.size(); ++i) told.accesses.push_back(event.accesses[i]);
  return told;
}

// Writes the event. Returns an operation as the thread itself reads it, and an empty event for other kinds.
inline Told tell(trace::Stream& stream, const Told& told) {
  switch (told.kind) {
    case trace::EventKind::operation:
      return told_by(stream.operation({stream.name(told.name), told.work}, told.node, told.accesses.size(),
                                      [&](size_t i) { return told.accesses[i]; }),
                     stream);
    case trace::EventKind::freed: stream.freed(told.block); break;
    case trace::EventKind::mark: stream.mark(told.text); break;
  }
  return {};
}

inline std::vector<Told> read_all(trace::Merged events, const trace::Stream& stream) {
  std::vector<Told> all;
  uint64_t last = 0;
  for (trace::Event event; events.next(event); last = event.order) {
    IK_CHECK(event.order > last, "out of order");
    all.push_back(told_by(event, stream));
  }
  return all;
}

}  // namespace innkeeper::test
