// Streams, events and graphs. Work waits in its stream's queue and runs as late as it may: when a thread
// waits for it (late), at once (early), or now and then (random). A program that forgets to wait reads old
// bytes, or poison.
//
// An event is a position in a stream; a stream that waits for one has work that runs the other stream up to
// there. While a stream is captured its work goes to a graph instead, in the order in which it was
// enqueued.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "runtime/abi.h"

namespace fake_cuda {

struct HostRange {
  const void* data = nullptr;
  size_t size = 0;
};

struct Work {
  std::function<void()> run;
  HostRange host;  // page-locked memory that it touches
};

struct Graph {
  unsigned long long id = 0;
  std::vector<Work> work;
};

struct Stream {
  int gpu = 0;
  unsigned flags = 0;
  int priority = 0;
  std::deque<Work> queue;
  uint64_t done = 0;  // work that has run
  int asked = 0;      // queries that were answered "not ready"
  Graph* capture = nullptr;
  uint64_t end() const { return done + queue.size(); }
};

struct Event {
  int gpu = 0;
  unsigned flags = 0;
  Stream* stream = nullptr;  // null: nothing was recorded yet
  uint64_t position = 0;
  int asked = 0;
  Graph* capture = nullptr;
};

enum class Mode { late, early, random };
void set_mode(Mode mode, unsigned seed);

Stream* new_stream(int gpu, unsigned flags, int priority);
void forget_stream(Stream* stream);  // The stream's work runs at some later time.
Stream* stream_of(
    StreamHandle handle);  // the calling thread's GPU's default stream for 0; null if it is none
Stream* default_stream(int gpu);
Event* new_event(int gpu, unsigned flags);
Event* event_of(EventHandle handle);  // null if it is none
void forget_event(Event* event);

void enqueue(Stream& stream, std::function<void()> run, HostRange host = {});
void record(Event& event, Stream& stream);
void wait_for(Stream& stream, const Event& event);
// Default streams wait for all others of their GPU that did not ask to be left out, and these for them.
void join_default(Stream& stream);

// Whether the work is done. Enough calls make it run (a GPU makes progress by itself).
bool is_through(Stream& stream);
bool is_through(Event& event);
void run_stream(Stream& stream);
void run_event(const Event& event);
void run_gpu(int gpu);
void run_all();
void run_some();  // Runs a little work on any stream, in random mode.

void drop_work(int gpu);
// The first work that has not run and touches the range; null if none does.
const HostRange* pending_host(const void* data, size_t size);
size_t pending_work();
// The GPU whose work runs on the calling thread; -1 outside of any.
int running_gpu();

Graph* begin_capture(Stream& stream);
Graph* end_capture(Stream& stream);

}  // namespace fake_cuda
