// Writes events to an access stream as the bytes say: in rings of any size, with records that begin and end
// in between, on threads that follow each other. A record holds the events since it began, up to the
// requested number. Its text, read back, agrees. An operation's own thread reads its own writes at once.
#include <array>
#include <memory>
#include <thread>

#include "base/check.h"
#include "fuzz/input.h"
#include "support/stream_events.h"
#include "trace/record.h"
#include "trace/recorder.h"

namespace {

using namespace innkeeper;
using namespace innkeeper::trace;
using fuzz::Input;
using test::Told;

Told some_event(Input& input) {
  const uint8_t first = input.byte();
  if (first % 4 == 0) return {.kind = EventKind::freed, .block = BlockId{input.number<uint64_t>()}};
  if (first % 4 == 1) return {.kind = EventKind::mark, .text = input.text(40)};
  Told told{.kind = EventKind::operation,
            .name = "op" + std::to_string(input.byte()),
            .node = NodeId{static_cast<uint8_t>(first / 8)}};
  if (first % 8 >= 4)
    told.work = {static_cast<double>(input.number<uint32_t>()), static_cast<double>(input.number<uint32_t>()),
                 1 + input.byte()};
  for (size_t accesses = input.upto(20); accesses > 0; --accesses) {
    constexpr std::array kKinds = {AccessKind::read, AccessKind::write, AccessKind::born, AccessKind::pure};
    told.accesses.push_back(
        {BlockId{input.number<uint32_t>()}, Bytes(input.number<uint32_t>()), input.one_of(kKinds)});
  }
  return told;
}

std::string line_of(const Told& told) {
  if (told.kind == EventKind::freed) return "F " + std::to_string(static_cast<uint64_t>(told.block)) + "\n";
  if (told.kind == EventKind::mark) {
    std::string text = told.text;
    std::replace(text.begin(), text.end(), '\n', ' ');
    return "M " + text + "\n";
  }
  std::string line = "O " + told.name;
  if (told.work.kernels != 0)
    line += " =" + std::to_string(static_cast<int64_t>(told.work.flops)) + "," +
            std::to_string(static_cast<int64_t>(told.work.bytes)) + "," + std::to_string(told.work.kernels);
  for (const RecordedAccess& access : told.accesses)
    line += " " + std::to_string(static_cast<uint64_t>(access.block)) + ":" +
            std::to_string(access.size.count()) + static_cast<char>(access.kind);
  return line + "\n";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const auto stream = std::make_shared<Stream>(size_t{8} << input.upto(5));
  Recorder recorder(stream);
  std::vector<Told> written;
  size_t most = 0;
  int threads = 0;
  const auto one = [&] {
    const Told told = some_event(input);
    const Told seen = test::tell(*stream, told);
    IK_CHECK(told.kind != EventKind::operation || seen == told, "the thread itself reads something else");
    if (stream->on()) written.push_back(told);
  };
  const auto kept = [&] { return std::min(written.size(), most); };
  while (!input.empty()) {
    switch (const uint8_t what = input.byte(); what) {
      case 0:
        most = input.upto(30);
        recorder.start(most);
        written.clear();
        break;
      case 1: {
        Merged events = stream->stop();
        IK_CHECK(events.dropped() == written.size() - kept());
        const std::vector<Told> read = test::read_all(std::move(events), *stream);
        written.resize(kept());
        IK_CHECK(read == written, "a record is read back as another");
        written.clear();
        break;
      }
      case 2: {
        std::string text;
        for (size_t i = 0; i < kept(); ++i) text += line_of(written[i]);
        if (kept() < written.size()) text += "M dropped " + std::to_string(written.size() - kept()) + "\n";
        IK_CHECK(recorder.stop() == text, text);
        written.clear();
        break;
      }
      case 3:
        if (++threads <= 4) std::thread(one).join();
        break;
      default: one();
    }
  }
  return 0;
}
