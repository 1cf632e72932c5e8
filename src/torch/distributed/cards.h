// Collectives between cards, by another backend (NCCL) on tensors that are pinned at this process's card:
// sums run on the card beside the operators of the backward that makes the next of them.
//
// NCCL's works end for the host when they have been launched. What was lent must stay until they have run, so
// a thread waits for that.
//
// Thread safety: all.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <deque>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "base/thread_annotations.h"
#include "torch/distributed/collective.h"

namespace innkeeper::torch_layer {

class Cards {
 public:
  // `node`: the process's own; `device`: of its real tensors, which `backend` takes.
  Cards(c10::intrusive_ptr<c10d::Backend> backend, NodeId node, c10::Device device);
  // Waits for all that was started.
  ~Cards();
  Cards(const Cards&) = delete;
  Cards& operator=(const Cards&) = delete;

  // Whether NCCL knows the type. Every process must choose alike, so nothing else is asked of tensors.
  static bool take(c10::ScalarType type);

  c10d::Backend& backend() const { return *backend_; }
  NodeId node() const { return node_; }
  c10::Device device() const { return device_; }
  // A collective whose `inner` has been started, and that is looked after: ends it when the card is through
  // with it.
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
