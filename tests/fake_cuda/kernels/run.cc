#include "kernels/run.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>

#include "kernels/place.h"
#include "kernels/shapes.h"
#include "kernels/values.h"
#include "runtime/control.h"

namespace fake_cuda {
namespace {

// One argument, as the work keeps it: addresses of tensors on a GPU, copies of tensors on the host.
struct Kept {
  struct Operand {
    std::optional<Place> place;
    at::Tensor host;
  };
  c10::IValue value;  // The argument, with nothing in place of its tensors.
  std::vector<Operand> operands;
};

// Numbers that depend on the GPU's generator alone: deterministic, but not CUDA's.
c10::IValue host_generator(const c10::IValue& given, c10::DeviceIndex gpu) {
  at::Generator generator =
      given.isNone() ? at::cuda::detail::getDefaultCUDAGenerator(gpu) : given.toGenerator();
  if (generator.device().is_cpu()) return generator;
  const std::lock_guard<std::mutex> lock(generator.mutex());
  const uint64_t offset = generator.get_offset();
  generator.set_offset(offset + 4);
  constexpr uint64_t kSpread = 0x9E3779B97F4A7C15ULL;
  return at::make_generator<at::CPUGeneratorImpl>(generator.current_seed() * kSpread + offset);
}

Kept keep(const c10::IValue& value) {
  static const at::Tensor nothing = at::empty({0});
  Kept kept;
  for_each_tensor(value, [&](const at::Tensor& tensor) {
    if (tensor.is_cuda()) {
      kept.operands.push_back({Place(tensor), {}});
      return;
    }
    at::Tensor copy = tensor.clone();
    copy.unsafeGetTensorImpl()->set_wrapped_number(tensor.unsafeGetTensorImpl()->is_wrapped_number());
    kept.operands.push_back({std::nullopt, std::move(copy)});
  });
  kept.value = replace_tensors(value, [](const at::Tensor&) { return nothing; });
  return kept;
}

// The operator's work on a stream.
class Work {
 public:
  Work(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments, c10::DeviceIndex gpu)
      : op_(op) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      const bool draws = is_generator(op.schema().arguments()[i]);
      kept_.push_back(keep(draws ? host_generator(arguments[i], gpu) : arguments[i]));
    }
  }

  // Records the destination of each new result; in-place results stay where they are.
  void add_targets(const std::vector<c10::IValue>& results) {
    for (size_t i = 0; i < results.size(); ++i) {
      const bool is_new = argument_of_result(op_.schema(), i) < 0;
      for_each_tensor(results[i], [&](const at::Tensor& tensor) {
        targets_.push_back(is_new ? std::optional<Place>(Place(tensor)) : std::nullopt);
      });
    }
  }

  Stack compute() const {
    Stack stack;
    for (const Kept& kept : kept_) {
      size_t next = 0;
      stack.push_back(with_device(replace_tensors(kept.value,
                                                  [&](const at::Tensor&) {
                                                    const Kept::Operand& operand = kept.operands[next++];
                                                    return operand.place ? operand.place->open()
                                                                         : operand.host;
                                                  }),
                                  at::kCPU));
    }
    plain_call(op_, stack);
    return stack;
  }

  // Runs on any thread that waits for the stream, in any state of that thread: modes, gradients, devices.
  void run() const noexcept {
    static const auto& clean = *new at::ThreadLocalState;
    try {
      const at::ThreadLocalStateGuard as_at_start(clean);
      size_t next = 0;
      for (const c10::IValue& result : compute()) {
        for_each_tensor(result, [&](const at::Tensor& tensor) {
          const std::optional<Place>& target = targets_.at(next++);
          if (target) target->open().copy_(tensor);
        });
      }
    } catch (const std::exception& error) {
      fprintf(stderr, "fake_cuda: %s failed: %s\n", op_.schema().name().c_str(), error.what());
      abort();
    }
  }

 private:
  c10::OperatorHandle op_;
  std::vector<Kept> kept_;
  std::vector<std::optional<Place>> targets_;
};

c10::Device device_of(const std::vector<c10::IValue>& arguments) {
  c10::Device device(at::kCUDA, c10::cuda::current_device());
  for (const c10::IValue& value : arguments) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (tensor.is_cuda()) device = tensor.device();
    });
  }
  return device;
}

void compute_now(const Work& work, const std::vector<c10::IValue>& arguments,
                 const c10::FunctionSchema& schema, c10::Device device, Stack* stack) {
  C10_CUDA_CHECK(cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream()));
  const Stack results = work.compute();
  for (size_t i = 0; i < results.size(); ++i) {
    const int argument = argument_of_result(schema, i);
    stack->push_back(argument >= 0
                         ? arguments[static_cast<size_t>(argument)]
                         : replace_tensors(results[i], [&](const at::Tensor& t) { return t.to(device); }));
  }
}

}  // namespace

void run_on_gpu(const c10::OperatorHandle& op, Stack* stack) {
  const size_t count = op.schema().arguments().size();
  std::vector<c10::IValue> arguments(stack->end() - static_cast<long>(count), stack->end());
  torch::jit::drop(*stack, count);
  const c10::Device device = device_of(arguments);
  const c10::cuda::CUDAGuard guard(device);
  std::optional<std::vector<c10::IValue>> results = results_by_shape(op, arguments, device);
  auto work = std::make_unique<Work>(op, arguments, device.index());
  if (!results) return compute_now(*work, arguments, op.schema(), device, stack);
  work->add_targets(*results);
  const int error = fake_cuda_launch(
      c10::cuda::getCurrentCUDAStream().stream(), [](void* data) { static_cast<Work*>(data)->run(); },
      work.release(), [](void* data) { delete static_cast<Work*>(data); });
  C10_CUDA_CHECK(static_cast<cudaError_t>(error));
  for (c10::IValue& result : *results) stack->push_back(std::move(result));
}

}  // namespace fake_cuda
