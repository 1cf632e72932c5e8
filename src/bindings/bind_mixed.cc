#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "torch/operator/mixed_move.h"

namespace innkeeper::bindings {
namespace {

// Kept until the process ends, since operators may run while the interpreter goes.
void set_notice(py::function tell) {
  PyObject* const function = tell.release().ptr();
  torch_layer::set_mixed_notice([function](std::string_view op, const at::Tensor& moved) {
    if (Py_IsInitialized() == 0) return;
    const std::vector<int64_t> shape = moved.sizes().vec();
    const auto bytes = moved.layout() == c10::kStrided ? static_cast<int64_t>(moved.nbytes()) : int64_t{0};
    const py::gil_scoped_acquire gil;
    py::reinterpret_borrow<py::function>(function)(std::string(op), shape, bytes);
  });
}

}  // namespace

void bind_mixed(py::module_& m) {
  m.def("moves_cpu_tensors", &torch_layer::moves_cpu_tensors,
        "Whether operators move CPU tensors that stand beside managed ones, or refuse them.");
  m.def("set_moves_cpu_tensors", &torch_layer::set_moves_cpu_tensors, py::arg("moves"), "Sets that.");
  m.def("bytes_moved_from_cpu", &torch_layer::bytes_moved_from_cpu,
        "Bytes that operators moved, of CPU tensors beside managed ones.");
  m.def("reset_bytes_moved_from_cpu", &torch_layer::reset_bytes_moved_from_cpu, "Counts them from 0.");
  m.def("set_mixed_notice", &set_notice, py::arg("tell"),
        "Has tell(operator, shape, bytes) called before each such move.");
}

}  // namespace innkeeper::bindings
