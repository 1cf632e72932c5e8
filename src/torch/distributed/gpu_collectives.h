// Collectives between GPUs, by another backend (NCCL) on tensors that are pinned at this process's GPU. A sum
// runs on the GPU concurrently with the backward operators that compute the next operands.
//
// For the host, NCCL's works end when they have been launched. The exposed tensors must stay until the works
// have run, so a thread waits for that.
//
// Thread safety: all methods.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <deque>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "base/thread_annotations.h"
#include "torch/distributed/collective.h"

namespace innkeeper::torch_layer {

class GpuCollectives {
 public:
  // `node`: the process's own; `device`: the device of its real tensors, which `backend` takes.
  GpuCollectives(c10::intrusive_ptr<c10d::Backend> backend, NodeId node, c10::Device device);
  // Waits for all started collectives.
  ~GpuCollectives();
  GpuCollectives(const GpuCollectives&) = delete;
  GpuCollectives& operator=(const GpuCollectives&) = delete;

  // Whether NCCL knows the type. Every process must make the same choice, so it depends on nothing else of
  // the tensors.
  static bool take(c10::ScalarType type);

  c10d::Backend& backend() const { return *backend_; }
  NodeId node() const { return node_; }
  c10::Device device() const { return device_; }
  // Ends a collective when the GPU is through with it. Requires: its `inner` is started, and look_after() was
  // called for it.
  void watch(Collective& collective);

 private:
  void run();
  Collective* next();
  std::exception_ptr await(Collective& collective) const;

  const c10::intrusive_ptr<c10d::Backend> backend_;
  const NodeId node_;
  const c10::Device device_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Collective*> started_ IK_GUARDED_BY(mutex_);
  bool stop_ IK_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace innkeeper::torch_layer
