// innkeeper._C: torch_layer's functions under the same names, one file per topic, no logic.
//
// Every function releases the GIL while it runs, because it may wait for a copy, a kernel or another thread
// (I10). c10's errors become the Python exceptions to which PyTorch maps them.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace innkeeper::bindings {

namespace py = pybind11;
using WithoutGil = py::call_guard<py::gil_scoped_release>;

void bind_settings(py::module_& m);
void bind_stats(py::module_& m);
void bind_blocks(py::module_& m);
void bind_placement(py::module_& m);
void bind_random(py::module_& m);
void bind_records(py::module_& m);
void bind_faults(py::module_& m);
void bind_leases(py::module_& m);
void bind_distributed(py::module_& m);
void bind_device_names(py::module_& m);
void bind_operators(py::module_& m);
void bind_mixed(py::module_& m);

}  // namespace innkeeper::bindings
