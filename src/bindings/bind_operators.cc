#include <torch/csrc/Exceptions.h>

#include "bindings/bindings.h"
#include "torch/errors.h"
#include "torch/operator/process_settings.h"
#include "torch/registry/library_operators.h"

namespace innkeeper::bindings {
namespace {

PyObject* out_of_memory = nullptr;  // The Python class; PyTorch's C++ interface does not export it.

// Handles the exception in flight.
void throw_out_of_memory() {
  try {
    throw;
  } catch (python_error& error) {
    const py::gil_scoped_acquire gil;
    error.persist();
    if (PyErr_GivenExceptionMatches(error.type, out_of_memory) != 0)
      C10_THROW_ERROR(OutOfMemoryError, error.what());
  } catch (const py::error_already_set& error) {
    const py::gil_scoped_acquire gil;
    if (error.matches(out_of_memory)) C10_THROW_ERROR(OutOfMemoryError, py::str(error.value()));
  } catch (...) {
  }
}

}  // namespace

void bind_operators(py::module_& m) {
  out_of_memory = py::module_::import("torch").attr("OutOfMemoryError").cast<py::object>().release().ptr();
  torch_layer::set_throw_out_of_memory(&throw_out_of_memory);
  m.def("look_again", py::overload_cast<const std::string&, const std::string&>(&torch_layer::look_again),
        py::arg("name"), py::arg("overload"), WithoutGil(),
        "Looks whether a library's operator has come to choose by device.");
  m.def("look_again_at_all", py::overload_cast<>(&torch_layer::look_again), WithoutGil(),
        "The same for all operators.");
  m.def("look_at_new", &torch_layer::look_at_new, WithoutGil(),
        "The same, where any operator was defined since.");
  py::class_<torch_layer::SettingChange>(m, "SettingChange",
                                         "While it lives a setting of all of the process may change.")
      .def(py::init(), WithoutGil());
}

}  // namespace innkeeper::bindings
