#include "base/size.h"
#include "bindings/bindings.h"
#include "config/said_once.h"
#include "innkeeper/torch/runtime.h"
#include "torch/process/nodes_setting.h"

namespace innkeeper::bindings {
namespace {

int64_t size_of_text(const std::string& text, const std::string& name) {
  const Result<Bytes> size = parse_size(text);
  if (!size.ok()) throw py::value_error(name + ": " + size.status().message());
  return size.value().count();
}

}  // namespace

void bind_settings(py::module_& m) {
  using namespace torch_layer;
  m.def("configure", &configure, py::arg("nodes"), WithoutGil(),
        "Sets the nodes, in the grammar of INNKEEPER_NODES. ValueError if they make no sense.");
  m.def("soft_placement", &soft_placement, "Whether the host runs what its node cannot.");
  m.def("set_soft_placement", &set_soft_placement, py::arg("soft"), "Sets that.");
  m.def("growth", &growth, "Whether the GPUs' memory is taken as it is needed.");
  m.def("set_growth", &set_growth, py::arg("growth"), "Sets that, for the next start or configure().");
  m.def("planning", &planning, "Whether movement is planned.");
  m.def("set_planning", &set_planning, py::arg("planning"), WithoutGil(), "Sets that.");
  m.def("recompute", &recompute, "Whether plans may discard blocks and recompute them.");
  m.def("set_recompute", &set_recompute, py::arg("recompute"), WithoutGil(), "Sets that.");
  m.def("start", &start, WithoutGil(), "Starts the runtime, if it has not started.");
  m.def("started", &started, "Whether the runtime has started.");
  m.def("expected_nodes", &expected_nodes, py::arg("visible_gpus"), WithoutGil(),
        "Names of the nodes that will compute, before the runtime starts. Does not start it.");
  m.def(
      "may_say_hidden", [] { return !is_in_run() || may_say_once(SaidOnce::hidden_devices); },
      "Whether this process is the one of its run that says that every device is hidden.");
  m.def("is_bad_fork", &is_bad_fork, "Whether this process was forked after the runtime had started.");
  py::class_<NodeInfo>(m, "NodeInfo", "One memory: its name, kind, budget and capacity in bytes.")
      .def_readonly("name", &NodeInfo::name)
      .def_readonly("kind", &NodeInfo::kind)
      .def_readonly("budget", &NodeInfo::budget)
      .def_readonly("capacity", &NodeInfo::capacity)
      .def_readonly("computes", &NodeInfo::computes)
      .def_readonly("host_kernels", &NodeInfo::host_kernels)
      .def("__repr__", [](const NodeInfo& node) { return "<node " + describe(node) + ">"; });
  m.def("parse_size", &size_of_text, py::arg("text"), py::arg("name"), WithoutGil(),
        "The bytes of a text such as 1.5GiB. ValueError, which begins with `name`, if it is no size.");
  m.def("nodes", &nodes, WithoutGil(), "The nodes, in order. Starts the runtime.");
  m.def("set_budget", &set_budget, py::arg("node"), py::arg("bytes"), WithoutGil(),
        "Limits a node to so many bytes; evicts until they suffice.");
}

}  // namespace innkeeper::bindings
