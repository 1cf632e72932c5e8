#include "trace/recorder.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <vector>

namespace innkeeper::trace {
namespace {

void append(std::string& text, int64_t number) {
  char digits[20];
  text.append(digits, std::to_chars(std::begin(digits), std::end(digits), number).ptr);
}
void append(std::string& text, BlockId block) {
  char digits[20];
  text.append(digits, std::to_chars(std::begin(digits), std::end(digits), static_cast<uint64_t>(block)).ptr);
}

void append_operation(std::string& text, std::string_view name, const Event& event) {
  text.append("O ").append(name);
  if (event.work.kernels != 0) {
    append(text.append(" ="), static_cast<int64_t>(event.work.flops));
    append(text.append(","), static_cast<int64_t>(event.work.bytes));
    append(text.append(","), event.work.kernels);
    if (event.work.flops > 0 && event.work.precision != cost::Precision::bf16)
      text.append(",").append(cost::name_of(event.work.precision));
  }
  for (size_t i = 0; i < event.accesses.size(); ++i) {
    const RecordedAccess access = event.accesses[i];
    append(text.append(" "), access.block);
    append(text.append(":"), access.size.count());
    text += static_cast<char>(access.kind);
  }
}

}  // namespace

void Recorder::op(std::string_view name, const Work& work, std::span<const RecordedAccess> accesses) {
  if (!on()) return;
  stream_->operation({stream_->name(name), work}, kNoNode, accesses.size(),
                     [accesses](size_t index) { return accesses[index]; });
}

std::string Recorder::stop() {
  Merged events = stream_->stop();
  const std::vector<std::string_view> names = stream_->names();
  std::string text;
  for (Event event; events.next(event);) {
    switch (event.kind) {
      case EventKind::operation:
        append_operation(text, names[static_cast<uint32_t>(event.name)], event);
        break;
      case EventKind::freed: append(text.append("F "), event.block); break;
      case EventKind::mark: {
        const size_t begin = text.append("M ").size();
        text.append(event.text);
        std::replace(text.begin() + static_cast<int64_t>(begin), text.end(), '\n', ' ');
        break;
      }
    }
    text += '\n';
  }
  if (events.dropped() != 0) text += "M dropped " + std::to_string(events.dropped()) + "\n";
  return text;
}

}  // namespace innkeeper::trace
