// A collective under way: another backend's, on tensors that are lent to it until it has ended.
//
// References to Python's objects are in what it holds, and only threads that call us may drop those: the
// other backend's would ask for Python's lock, and where the interpreter is ending that ends the process. The
// tensors may be Python's; the other's work keeps its caller's thread-local state.
//
// Thread safety: as Work's; end() is for the thread that sees the other's end.
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

  // The other's has ended, with `error` or without one: gives the tensors back and fulfils the future.
  // The caller touches nothing of this any more.
  void end(std::exception_ptr error);
  // After the other's end without error: what it wrote goes to the tensors. What went wrong, if anything.
  std::exception_ptr collect();

  WorkPtr inner;
  LentTensors lent;
  std::vector<at::Tensor> outputs;
  c10::IValue value;  // of the future: the outputs
  c10::intrusive_ptr<c10::ivalue::Future> future =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  std::atomic<bool> left{false};  // end() is through
};

// Who tells when a collective has ended.
enum class Ends {
  by_its_future,  // of the other's work, on the other's thread
  by_a_watcher,   // a watcher calls end()
};

// Starts to look after a collective that has been started.
WorkPtr look_after(int rank, c10d::OpType type, std::shared_ptr<Collective> collective, Ends ends);

// Drops those that have ended, and that have no other owner.
void drop_ended_collectives();

}  // namespace innkeeper::torch_layer
