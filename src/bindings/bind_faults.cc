#include "bindings/bindings.h"
#include "torch/process/faults.h"

namespace innkeeper::bindings {

void bind_faults(py::module_& m) {
  using namespace torch_layer;
  m.def(
      "inject_faults", &faults::arm, py::arg("kinds"), py::arg("nth"), py::arg("more") = 0,
      "For tests: the nth call of these kinds fails, and so many more after it. Bits: 1 allocation, 2 copy, "
      "4 kernel before it computes, 8 kernel after, 16 event. nth=0 only counts, kinds=0 turns it off.");
  m.def(
      "injected_faults",
      [] {
        const faults::Counts counts = faults::counts();
        return py::make_tuple(counts.calls, counts.hits);
      },
      "Calls that were counted since inject_faults, and how many of them failed.");
}

}  // namespace innkeeper::bindings
