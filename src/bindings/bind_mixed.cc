#include <string>
#include <string_view>

#include "bindings/bindings.h"
#include "torch/operator/mixed_move.h"

namespace innkeeper::bindings {
namespace {

// The function is kept until the process ends, since operators may run while the interpreter shuts down.
void set_notice(py::function tell) {
  PyObject* const function = tell.release().ptr();
  torch_layer::set_mixed_notice([function](std::string_view op, c10::IntArrayRef sizes, Bytes bytes) {
    if (Py_IsInitialized() == 0) return;
    const py::gil_scoped_acquire gil;
    py::reinterpret_borrow<py::function>(function)(std::string(op), sizes.vec(), bytes.count());
  });
}

}  // namespace

void bind_mixed(py::module_& m) {
  m.def("moves_cpu_tensors", &torch_layer::moves_cpu_tensors,
        "Whether operators move CPU tensors that stand beside managed ones, or refuse them.");
  m.def("set_moves_cpu_tensors", &torch_layer::set_moves_cpu_tensors, py::arg("moves"), "Sets that.");
  m.def("set_mixed_notice", &set_notice, py::arg("tell"),
        "Has tell(operator, shape, bytes) called before each such move.");
}

}  // namespace innkeeper::bindings
