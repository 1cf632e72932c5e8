#include "bindings/bindings.h"
#include "innkeeper/torch/runtime.h"

namespace innkeeper::bindings {

void bind_placement(py::module_& m) {
  using namespace torch_layer;
  m.def("home", &home, WithoutGil(), "The calling thread's home; '' if it has none yet.");
  m.def("set_home", &set_home, py::arg("node"), WithoutGil(),
        "Sets the thread's home; returns the one before.");
  m.def("find_device", &find_device, py::arg("nbytes"), py::arg("disperse") = false, WithoutGil(),
        "The node that best fits so many bytes more.");
  m.def("enter_experiment", &enter_experiment, py::arg("name"), py::arg("memory") = py::none(), WithoutGil(),
        "Gives the calling thread a home and a random stream of its own; returns a token.");
  m.def("leave_experiment", &leave_experiment, py::arg("token"), WithoutGil(),
        "Ends what enter_experiment began.");
  m.def("local_rank", &local_rank, "The process's LOCAL_RANK; -1 where it has none, or no number.");
  m.def("follow_visible_devices", &follow_visible_devices,
        "Makes CUDA_VISIBLE_DEVICES choose among simulated nodes too, when the runtime starts.");
  m.def("log_moves", &log_moves, py::arg("on"), WithoutGil(), "Logs placements and moves, or stops it.");
}

}  // namespace innkeeper::bindings
