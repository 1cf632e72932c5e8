#include "bindings/bindings.h"
#include "torch/operator/library_operators.h"

namespace innkeeper::bindings {

void bind_operators(py::module_& m) {
  m.def("look_again", &torch_layer::look_again, py::arg("name"), py::arg("overload"), WithoutGil(),
        "Looks whether a library's operator has come to choose by device; whether it has.");
}

}  // namespace innkeeper::bindings
