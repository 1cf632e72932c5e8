// A running collective of another backend, on tensors that are exposed to it until it has ended.
//
// It holds references to Python's objects: the tensors may be Python's, and the other backend's work keeps
// its caller's thread-local state. Only threads that call this backend may release them. A thread of the
// other backend would need Python's lock, and a wait for it ends the process while the interpreter ends.
//
// Thread safety: as Work's; end() is called by the thread that sees the other work's end.
#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <exception>
#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "torch/distributed/lent_tensors.h"

namespace innkeeper::torch_layer {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

struct Collective {
  Collective() = default;
  ~Collective();
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  // Called when the other work has ended, with `error` or without one: releases the tensors and fulfils the
  // future. The caller uses the collective no more afterwards.
  void end(std::exception_ptr error);
  // Copies the other work's results to the tensors, after its end without error. Returns an error, if any.
  std::exception_ptr collect();

  WorkPtr inner;
  LentTensors lent;
  std::vector<at::Tensor> outputs;
  c10::IValue value;  // Value of the future: the outputs.
  c10::intrusive_ptr<c10::ivalue::Future> future =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  std::atomic<bool> left{false};  // Whether end() has finished.
};

// The source of the notice that a collective has ended.
enum class Ends {
  by_its_future,  // The other work's future, on the other backend's thread.
  by_a_watcher,   // A watcher calls end().
};

// Makes a work for a started collective, which it ends with the other work.
WorkPtr look_after(int rank, c10d::OpType type, std::shared_ptr<Collective> collective, Ends ends);

// Destroys the ended collectives that have no other owner.
void drop_ended_collectives();

}  // namespace innkeeper::torch_layer
