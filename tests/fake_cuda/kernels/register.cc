// Puts the host's kernels in the place of CUDA's: every aten operator with one for CUDA, except those that
// move no numbers, and those whose CUDA kernel is composed of others.
#include <ATen/native/Copy.h>
#include <ATen/ops/copy_native.h>
#include <torch/library.h>

#include <string_view>

#include "kernels/run.h"

namespace fake_cuda {
namespace {

// Operators without a fake kernel, by the beginning of their names. The runtime answers for operators that
// allocate, view or wait; the others belong to libraries or formats that are absent here.
constexpr std::string_view kLeft[] = {"empty",
                                      "resize",
                                      "set_",
                                      "view",
                                      "as_strided",
                                      "_reshape_alias",
                                      "unfold",
                                      "alias",
                                      "is_set_to",
                                      "_efficientzerotensor",
                                      "_local_scalar_dense",
                                      "copy_",
                                      "_copy_from",
                                      "record_stream",
                                      "is_pinned",
                                      "_pin_memory",
                                      "_assert_async",
                                      "_fused_sdp_choice",
                                      "cudnn",
                                      "_cudnn",
                                      "_use_cudnn",
                                      "miopen",
                                      "_thnn",
                                      "_nested",
                                      "_sparse",
                                      "sparse",
                                      "_cslt",
                                      "_scaled_mm",
                                      "_fft",
                                      "_flash",
                                      "_efficient",
                                      "_fused_rms",
                                      "_triton"};

bool is_left(std::string_view name) {
  for (const std::string_view each : kLeft) {
    if (name.substr(0, each.size()) == each) return true;
  }
  return false;
}

// Between GPUs and to and from the host as ever: those are the runtime's copies. On one GPU with a change
// of type or layout CUDA runs a kernel.
at::Tensor& copy(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  const bool bytes_alone = self.scalar_type() == source.scalar_type() && self.is_contiguous() &&
                           source.is_contiguous() && self.sizes() == source.sizes();
  if (bytes_alone || !self.is_cuda() || !source.is_cuda() || self.device() != source.device())
    return at::native::copy_(self, source, non_blocking);
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  Stack stack{self, source, non_blocking};
  run_on_gpu(op, &stack);
  return self;
}

// Attention by operators that the host has: the plain formula.
void choose_plain_attention(const c10::OperatorHandle& op, Stack* stack) {
  torch::jit::drop(*stack, op.schema().arguments().size());
  stack->push_back(int64_t{0});
}

const bool registered = [] {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  constexpr std::string_view kAten = "aten::";
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind(kAten, 0) != 0 || is_left(std::string_view(name.name).substr(kAten.size()))) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || !op->hasKernelForDispatchKey(c10::DispatchKey::CUDA)) continue;
    const std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    library.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_gpu>());
  }
  library.impl("copy_", TORCH_FN(copy));
  library.impl("_fused_sdp_choice", torch::CppFunction::makeFromBoxedFunction<&choose_plain_attention>());
  return true;
}();

}  // namespace
}  // namespace fake_cuda
