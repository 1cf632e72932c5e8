#include "torch/process/samples.h"

#include "base/thread_annotations.h"
#include "innkeeper/torch/runtime.h"
#include "torch/errors.h"
#include "torch/process/fork.h"
#include "torch/process/runtime_state.h"

namespace innkeeper::torch_layer {

std::atomic<bool> g_sampling{false};

namespace {

// Maximum number of rows. At this number every second row is removed, and the distance between rows doubles.
constexpr size_t kRows = 4096;

struct Recording {
  Mutex mutex;
  Samples rows IK_GUARDED_BY(mutex);
  int64_t every IK_GUARDED_BY(mutex) = 1;
};

Recording& recording() {
  static auto& it = *new Recording;
  return it;
}

std::atomic<int64_t> operators{0};
std::atomic<int64_t> next_sample{0};

void thin_out(Samples& rows) {
  const auto halve = [](auto& column) {
    for (size_t i = 0; 2 * i < column.size(); ++i) column[i] = std::move(column[2 * i]);
    column.resize((column.size() + 1) / 2);
  };
  halve(rows.op);
  halve(rows.resident);
  halve(rows.bytes_fetched);
  halve(rows.bytes_written_back);
}

}  // namespace

void sample(Engine& engine) {
  const int64_t op = operators.fetch_add(1, std::memory_order_relaxed);
  if (op < next_sample.load(std::memory_order_relaxed)) return;
  const Stats stats = engine.stats();
  Recording& all = recording();
  MutexLock lock(all.mutex);
  if (op < next_sample.load(std::memory_order_relaxed)) return;
  next_sample.store(op + all.every, std::memory_order_relaxed);
  std::vector<int64_t> resident;
  for (const std::string& node : all.rows.nodes) {
    const auto found = stats.nodes.find(node);
    resident.push_back(found == stats.nodes.end() ? 0 : found->second.resident);
  }
  all.rows.op.push_back(op);
  all.rows.resident.push_back(std::move(resident));
  all.rows.bytes_fetched.push_back(stats.bytes_fetched);
  all.rows.bytes_written_back.push_back(stats.bytes_written_back);
  if (all.rows.op.size() >= kRows) {
    thin_out(all.rows);
    all.every *= 2;
  }
}

void sample_start(int64_t every_ops) {
  refuse_in_forked_child();
  if (every_ops < 1) {
    throw_status(Status(Code::invalid_argument,
                        "every_ops is a number of operators, 1 or more; got " + std::to_string(every_ops)),
                 "sample_start");
  }
  Runtime& machine = runtime();
  Recording& all = recording();
  MutexLock lock(all.mutex);
  all.rows = Samples();
  for (size_t i = 0; i < machine.engine().node_count(); ++i) {
    all.rows.nodes.push_back(machine.engine().device(NodeId{static_cast<uint8_t>(i)}).name());
  }
  all.every = every_ops;
  operators.store(0);
  next_sample.store(0);
  g_sampling.store(true);
}

Samples sample_stop() {
  refuse_in_forked_child();
  g_sampling.store(false);
  Recording& all = recording();
  MutexLock lock(all.mutex);
  return std::exchange(all.rows, Samples());
}

}  // namespace innkeeper::torch_layer
