// The C interface: streams, events, host functions, graphs.
#include "runtime/call.h"
#include "runtime/report.h"
#include "runtime/stream.h"

namespace fake_cuda {
namespace {

// `body` for a stream that there is, on a GPU that works.
template <class Body>
Error with_stream(const char* name, StreamHandle handle, Body&& body) {
  return call(name, Needs::driver, [&] {
    Stream* stream = stream_of(handle);
    if (stream == nullptr) return kInvalidHandle;
    if (Error broken = gpu(stream->gpu).broken) return broken;
    return body(*stream);
  });
}

template <class Body>
Error with_event(const char* name, EventHandle handle, Body&& body) {
  return call(name, Needs::driver, [&] {
    Event* event = event_of(handle);
    if (event == nullptr) {
      violation("%s of an event that is none (any more)", name);
      return kInvalidHandle;
    }
    if (Error broken = gpu(event->gpu).broken) return broken;
    return body(*event);
  });
}

Error broken_now(int index) { return gpu(index).broken; }

Error record_on(const char* name, EventHandle event_handle, StreamHandle stream_handle) {
  return with_event(name, event_handle, [&](Event& event) {
    Stream* stream = stream_of(stream_handle);
    if (stream == nullptr || stream->gpu != event.gpu) return kInvalidHandle;
    record(event, *stream);
    return kSuccess;
  });
}

}  // namespace

extern "C" {

Error cudaStreamCreateWithPriority(StreamHandle* stream, unsigned flags, int priority) {
  return call("cudaStreamCreateWithPriority", Needs::gpu, [&] {
    *stream = new_stream(current_gpu(), flags, priority);
    return kSuccess;
  });
}
Error cudaStreamCreate(StreamHandle* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
Error cudaStreamDestroy(StreamHandle handle) {
  return with_stream("cudaStreamDestroy", handle, [&](Stream& stream) {
    forget_stream(&stream);
    return kSuccess;
  });
}
Error cudaStreamGetPriority(StreamHandle handle, int* priority) {
  return with_stream("cudaStreamGetPriority", handle, [&](Stream& stream) {
    *priority = stream.priority;
    return kSuccess;
  });
}
Error cudaStreamSynchronize(StreamHandle handle) {
  return with_stream("cudaStreamSynchronize", handle, [&](Stream& stream) {
    if (stream.capture != nullptr) return kCaptureUnsupported;
    join_default(stream);
    run_stream(stream);
    return broken_now(stream.gpu);
  });
}
Error cudaStreamQuery(StreamHandle handle) {
  return with_stream("cudaStreamQuery", handle, [&](Stream& stream) {
    if (stream.capture != nullptr) return kCaptureUnsupported;
    if (!is_through(stream)) return kNotReady;
    return broken_now(stream.gpu);
  });
}
Error cudaStreamWaitEvent(StreamHandle handle, EventHandle event_handle, unsigned) {
  return with_stream("cudaStreamWaitEvent", handle, [&](Stream& stream) {
    Event* event = event_of(event_handle);
    if (event == nullptr) return kInvalidHandle;
    if (Error broken = gpu(event->gpu).broken) return broken;
    wait_for(stream, *event);
    return kSuccess;
  });
}
Error cudaLaunchHostFunc(StreamHandle handle, HostFunction function, void* data) {
  return with_stream("cudaLaunchHostFunc", handle, [&](Stream& stream) {
    enqueue(stream, [=] { function(data); });
    return kSuccess;
  });
}
Error cudaStreamAddCallback(StreamHandle handle, StreamCallback function, void* data, unsigned) {
  return with_stream("cudaStreamAddCallback", handle, [&](Stream& stream) {
    enqueue(stream, [=] { function(handle, kSuccess, data); });
    return kSuccess;
  });
}

Error cudaEventCreateWithFlags(EventHandle* event, unsigned flags) {
  return call("cudaEventCreateWithFlags", Needs::gpu, [&] {
    *event = new_event(current_gpu(), flags);
    return kSuccess;
  });
}
Error cudaEventCreate(EventHandle* event) { return cudaEventCreateWithFlags(event, 0); }
Error cudaEventDestroy(EventHandle handle) {
  return call("cudaEventDestroy", Needs::driver, [&] {
    Event* event = event_of(handle);
    if (event == nullptr) return kInvalidHandle;
    forget_event(event);
    return kSuccess;
  });
}
Error cudaEventRecordWithFlags(EventHandle event, StreamHandle stream, unsigned) {
  return record_on("cudaEventRecord", event, stream);
}
Error cudaEventRecord(EventHandle event, StreamHandle stream) {
  return record_on("cudaEventRecord", event, stream);
}
Error cudaEventQuery(EventHandle handle) {
  return with_event("cudaEventQuery", handle, [&](Event& event) {
    if (!is_through(event)) return kNotReady;
    return broken_now(event.gpu);
  });
}
Error cudaEventSynchronize(EventHandle handle) {
  return with_event("cudaEventSynchronize", handle, [&](Event& event) {
    run_event(event);
    return broken_now(event.gpu);
  });
}
Error cudaEventElapsedTime(float* milliseconds, EventHandle begin_handle, EventHandle end_handle) {
  return with_event("cudaEventElapsedTime", begin_handle, [&](Event& begin) {
    const Event* end = event_of(end_handle);
    if (end == nullptr || begin.stream == nullptr || end->stream == nullptr) return kInvalidHandle;
    if (begin.stream->done < begin.position || end->stream->done < end->position) return kNotReady;
    *milliseconds = 0.001F;  // A constant: the fake has no clock.
    return kSuccess;
  });
}

// ---------------------------------------------------------------- graphs

Error cudaStreamBeginCapture(StreamHandle handle, int) {
  return with_stream("cudaStreamBeginCapture", handle, [&](Stream& stream) {
    if (stream.capture != nullptr || &stream == default_stream(stream.gpu)) return kCaptureUnsupported;
    begin_capture(stream);
    return kSuccess;
  });
}
Error cudaStreamEndCapture(StreamHandle handle, GraphHandle* graph) {
  return with_stream("cudaStreamEndCapture", handle, [&](Stream& stream) {
    if (stream.capture == nullptr) return kIllegalState;
    *graph = end_capture(stream);
    return kSuccess;
  });
}
Error cudaStreamIsCapturing(StreamHandle handle, int* status) {
  return with_stream("cudaStreamIsCapturing", handle, [&](Stream& stream) {
    *status = stream.capture == nullptr ? kCaptureNone : kCaptureActive;
    return kSuccess;
  });
}
Error cudaStreamGetCaptureInfo(StreamHandle handle, int* status, unsigned long long* id, GraphHandle* graph,
                               const void**, const void**, size_t* dependencies) {
  return with_stream("cudaStreamGetCaptureInfo", handle, [&](Stream& stream) {
    *status = stream.capture == nullptr ? kCaptureNone : kCaptureActive;
    if (id != nullptr) *id = stream.capture == nullptr ? 0 : stream.capture->id;
    if (graph != nullptr) *graph = stream.capture;
    if (dependencies != nullptr) *dependencies = 0;
    return kSuccess;
  });
}
Error cudaGraphGetNodes(GraphHandle graph, void*, size_t* count) {
  return call("cudaGraphGetNodes", Needs::driver, [&] {
    *count = static_cast<Graph*>(graph)->work.size();
    return kSuccess;
  });
}
Error cudaGraphInstantiateWithFlags(GraphHandle* executable, GraphHandle graph, unsigned long long) {
  return call("cudaGraphInstantiateWithFlags", Needs::gpu, [&] {
    *executable = graph;
    return kSuccess;
  });
}
Error cudaGraphLaunch(GraphHandle executable, StreamHandle handle) {
  return with_stream("cudaGraphLaunch", handle, [&](Stream& stream) {
    for (const Work& work : static_cast<Graph*>(executable)->work) enqueue(stream, work.run, work.host);
    return kSuccess;
  });
}
Error cudaGraphDestroy(GraphHandle) { return kSuccess; }
Error cudaGraphExecDestroy(GraphHandle) { return kSuccess; }
Error cudaThreadExchangeStreamCaptureMode(int*) { return kSuccess; }

}  // extern "C"

}  // namespace fake_cuda
