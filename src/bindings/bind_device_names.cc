// Device names and indices, as the Python modules request them.
#include <ATen/Context.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/utils/pybind.h>

#include "bindings/bindings.h"
#include "torch/memory/device_index.h"
#include "torch/memory/handle.h"
#include "torch/start/device_names.h"
#include "torch/start/keep_busy.h"
#include "torch/start/measure.h"

namespace innkeeper::bindings {
namespace {

bool is_managed(py::handle device) {
  return THPDevice_Check(device.ptr()) &&
         reinterpret_cast<THPDevice*>(device.ptr())->device.type() == torch_layer::kManagedType;
}

}  // namespace

void bind_device_names(py::module_& m) {
  m.def("is_managed", &is_managed, py::arg("device"),
        "Whether it is the managed device, however it is shown.");
  m.def("call_devices_cuda", &torch_layer::call_devices_cuda,
        "Makes PyTorch read and write the managed device's name as 'cuda', for the rest of the process.");
  m.def("use_device_per_node", &torch_layer::use_device_per_node, py::arg("visible_gpus"),
        "Gives each computing node a device index, for the rest of the process.");
  m.def("has_device_per_node", &torch_layer::has_device_per_node,
        "Whether each computing node has a device index.");
  m.def(
      "device_count", [] { return static_cast<int>(torch_layer::device_count()); },
      "Number of devices: 1, or that of the computing nodes.");
  m.def(
      "valid_index",
      [](c10::DeviceIndex index) {
        return static_cast<int>(torch_layer::index_of(c10::Device(torch_layer::kManagedType, index)));
      },
      py::arg("index"), "The index; the current one for -1. RuntimeError if there is no such device.");
  m.def(
      "current_index", [] { return static_cast<int>(torch_layer::current_index()); },
      "The calling thread's current device index.");
  m.def("measure_gpus", &torch_layer::measure_gpus, py::call_guard<py::gil_scoped_release>(),
        "Measures every GPU that is a node, keeps its rates; returns node and rates, as text.");
  m.def("keep_busy", &torch_layer::keep_busy, py::arg("seconds"), py::call_guard<py::gil_scoped_release>(),
        "Keeps the current device's compute queue busy: a simulated GPU by its clock, the host by sleeping.");
}

}  // namespace innkeeper::bindings
