#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "bindings/bindings.h"
#include "torch/distributed/process_group.h"

namespace innkeeper::bindings {
namespace {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
// A raw pointer, because PyTorch's holder of backends is its own. The called function keeps the
// returned backend alive.
using GpusOfPython = std::function<std::optional<std::pair<c10d::Backend*, std::string>>()>;

torch_layer::MakeGpus make_gpus_of(const GpusOfPython& gpus) {
  if (gpus == nullptr) return nullptr;
  return [gpus]() -> std::optional<torch_layer::GpuBackend> {
    const auto made = gpus();
    if (!made.has_value()) return std::nullopt;
    return torch_layer::GpuBackend{BackendPtr::reclaim_copy(made->first), made->second};
  };
}

}  // namespace

void bind_distributed(py::module_& m) {
  m.def(
      "make_process_group",
      [](c10d::Backend& inner, const GpusOfPython& gpus) {
        return torch_layer::make_process_group(BackendPtr::reclaim_copy(&inner), make_gpus_of(gpus));
      },
      py::arg("inner"), py::arg("gpus") = nullptr, WithoutGil(),
      "A c10d backend that hands collectives on managed tensors to `inner`, a backend of CPU tensors,\n"
      "or to the one of this process's GPU that `gpus()` returns with the GPU's node, if any.");
}

}  // namespace innkeeper::bindings
