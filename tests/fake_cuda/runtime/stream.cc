#include "runtime/stream.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <unordered_set>
#include <utility>

#include "runtime/machine.h"
#include "runtime/settings.h"

namespace fake_cuda {
namespace {

constexpr int kPatience = 2;  // queries answered "not ready" before one is answered by running

struct Schedule {
  Mode mode = Mode::late;
  std::minstd_rand draw;
  std::vector<std::unique_ptr<Stream>> streams;  // kept for good: work of others may wait for them
  std::unordered_set<const void*> handles;       // Handles of streams that were not destroyed.
  std::map<int, Stream*> defaults;
  std::unordered_set<Event*> events;
  unsigned long long graphs = 0;

  Schedule() {
    const std::string& text = settings().mode;
    if (text == "early") mode = Mode::early;
    if (text.compare(0, 6, "random") == 0) {
      mode = Mode::random;
      draw.seed(text.size() > 7 ? static_cast<unsigned>(atoi(text.c_str() + 7)) : 1U);
    }
  }
};
Schedule& schedule() {
  static auto& it = *new Schedule;
  return it;
}

thread_local int now_running = -1;

void run_until(Stream& stream, uint64_t position) {
  while (stream.done < position && !stream.queue.empty()) {
    Work work = std::move(stream.queue.front());
    stream.queue.pop_front();
    const int before = std::exchange(now_running, stream.gpu);
    work.run();  // May run other streams, never this one: the work waits only for earlier work.
    now_running = before;
    ++stream.done;
    if (gpu(stream.gpu).broken != kSuccess) drop_work(stream.gpu);
  }
}

void wait_until(Stream& stream, Stream& other, uint64_t position) {
  if (&other == &stream || other.done >= position) return;
  stream.queue.push_back({[&other, position] { run_until(other, position); }, {}});
}

}  // namespace

void set_mode(Mode mode, unsigned seed) {
  schedule().mode = mode;
  schedule().draw.seed(seed);
}

Stream* new_stream(int index, unsigned flags, int priority) {
  auto made = std::make_unique<Stream>();
  made->gpu = index;
  made->flags = flags;
  made->priority = priority;
  Stream* stream = made.get();
  schedule().streams.push_back(std::move(made));
  schedule().handles.insert(stream);
  return stream;
}

void forget_stream(Stream* stream) { schedule().handles.erase(stream); }

Stream* default_stream(int index) {
  Stream*& stream = schedule().defaults[index];
  if (stream == nullptr) stream = new_stream(index, 0, 0);
  return stream;
}

Stream* stream_of(StreamHandle handle) {
  constexpr uintptr_t kLegacy = 1, kPerThread = 2;
  const auto value = reinterpret_cast<uintptr_t>(handle);
  if (value == 0 || value == kLegacy || value == kPerThread) return default_stream(current_gpu());
  return schedule().handles.count(handle) == 0 ? nullptr : static_cast<Stream*>(handle);
}

Event* new_event(int index, unsigned flags) {
  auto* event = new Event;
  event->gpu = index;
  event->flags = flags;
  schedule().events.insert(event);
  return event;
}

Event* event_of(EventHandle handle) {
  auto* event = static_cast<Event*>(handle);
  return schedule().events.count(event) == 0 ? nullptr : event;
}

void forget_event(Event* event) {
  schedule().events.erase(event);
  delete event;
}

void enqueue(Stream& stream, std::function<void()> run, HostRange host) {
  if (stream.capture != nullptr) {
    stream.capture->work.push_back({std::move(run), host});
    return;
  }
  join_default(stream);
  stream.queue.push_back({std::move(run), host});
  if (schedule().mode == Mode::early) run_until(stream, stream.end());
  run_some();
}

void join_default(Stream& stream) {
  Stream* base = default_stream(stream.gpu);
  if (&stream != base) {
    if ((stream.flags & kNonBlocking) == 0) wait_until(stream, *base, base->end());
    return;
  }
  for (const auto& other : schedule().streams) {
    if (other->gpu == stream.gpu && (other->flags & kNonBlocking) == 0)
      wait_until(stream, *other, other->end());
  }
}

void record(Event& event, Stream& stream) {
  event.capture = stream.capture;
  event.stream = stream.capture != nullptr ? nullptr : &stream;
  event.position = stream.end();
  event.asked = 0;
}

void wait_for(Stream& stream, const Event& event) {
  if (event.capture != nullptr) {
    stream.capture = event.capture;  // joins it
  } else if (event.stream != nullptr && stream.capture == nullptr) {
    wait_until(stream, *event.stream, event.position);
  }
}

bool is_through(Stream& stream) {
  run_some();
  if (!stream.queue.empty()) {
    if (++stream.asked <= kPatience) return false;
    run_stream(stream);
  }
  stream.asked = 0;
  return true;
}

bool is_through(Event& event) {
  run_some();
  if (event.stream != nullptr && event.stream->done < event.position) {
    if (++event.asked <= kPatience) return false;
    run_event(event);
  }
  return true;
}

void run_stream(Stream& stream) { run_until(stream, stream.end()); }

void run_event(const Event& event) {
  if (event.stream != nullptr) run_until(*event.stream, event.position);
}

void run_gpu(int index) {
  for (size_t i = 0; i < schedule().streams.size(); ++i) {
    Stream& stream = *schedule().streams[i];
    if (stream.gpu == index) run_stream(stream);
  }
}

void run_all() {
  for (const Gpu& each : gpus()) run_gpu(each.index);
}

void run_some() {
  Schedule& s = schedule();
  if (s.mode != Mode::random || now_running != -1) return;
  std::vector<Stream*> pending;
  for (const auto& stream : s.streams) {
    if (!stream->queue.empty()) pending.push_back(stream.get());
  }
  if (pending.empty()) return;
  Stream& stream = *pending[s.draw() % pending.size()];
  run_until(stream, stream.done + s.draw() % 3);
}

void drop_work(int index) {
  for (const auto& stream : schedule().streams) {
    if (stream->gpu != index) continue;
    stream->done += stream->queue.size();
    stream->queue.clear();
    stream->capture = nullptr;
  }
}

const HostRange* pending_host(const void* data, size_t size) {
  const auto* begin = static_cast<const char*>(data);
  for (const auto& stream : schedule().streams) {
    for (const Work& work : stream->queue) {
      const auto* there = static_cast<const char*>(work.host.data);
      if (there != nullptr && there < begin + size && begin < there + work.host.size) return &work.host;
    }
  }
  return nullptr;
}

size_t pending_work() {
  size_t all = 0;
  for (const auto& stream : schedule().streams) all += stream->queue.size();
  return all;
}

int running_gpu() { return now_running; }

Graph* begin_capture(Stream& stream) {
  // Kept for good: a graph may be launched again and again.
  static auto& graphs = *new std::vector<std::unique_ptr<Graph>>;
  graphs.push_back(std::make_unique<Graph>(Graph{++schedule().graphs, {}}));
  return stream.capture = graphs.back().get();
}

Graph* end_capture(Stream& stream) {
  Graph* graph = stream.capture;
  for (const auto& other : schedule().streams) {
    if (other->capture == graph) other->capture = nullptr;
  }
  return graph;
}

}  // namespace fake_cuda
