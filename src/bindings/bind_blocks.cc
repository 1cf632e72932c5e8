#include "bindings/bindings.h"
#include "innkeeper/torch/runtime.h"

namespace innkeeper::bindings {

void bind_blocks(py::module_& m) {
  using namespace torch_layer;
  m.def("where", &where, py::arg("x"), WithoutGil(),
        "Names of the nodes that hold the tensor's bytes, the owner first; empty if it was never written.");
  m.def("pin", &pin, py::arg("x"), py::arg("node") = py::none(), WithoutGil(),
        "Brings the tensor's block to a node and keeps it there until it is unpinned as often.");
  m.def("unpin", &unpin, py::arg("x"), WithoutGil(), "Takes back one pin.");
  m.def("is_user_pinned", &is_user_pinned, py::arg("x"), WithoutGil(),
        "Whether pin() holds the tensor's block.");
  m.def("prefetch", &prefetch, py::arg("x"), py::arg("node"), WithoutGil(),
        "Starts the copy to a node and returns before it is done.");
  m.def("set_replicated", &set_replicated, py::arg("x"), py::arg("replicated"),
        "Whether operators run where their operands other than this one are.");
  m.def("evict", &evict, py::arg("x"), WithoutGil(), "Moves the block from every accelerator to the host.");
  py::class_<Resident>(m, "Resident",
                       "The real tensor over a managed one's bytes on a node, pinned until leave().")
      .def(py::init<const at::Tensor&, const std::optional<std::string>&, bool>(), py::arg("x"),
           py::arg("node") = py::none(), py::arg("write") = false, WithoutGil())
      .def("tensor", &Resident::operator*, "The real tensor.")
      .def("leave", &Resident::leave, WithoutGil(), "Lets go; again it does nothing.");
}

}  // namespace innkeeper::bindings
