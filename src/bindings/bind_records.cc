#include "bindings/bindings.h"
#include "innkeeper/torch/runtime.h"

namespace innkeeper::bindings {

void bind_records(py::module_& m) {
  using namespace torch_layer;
  m.def("trace_start", &trace_start, WithoutGil(), "Starts to record accesses.");
  m.def("trace_mark", &trace_mark, WithoutGil(), "Writes a mark into the record.");
  m.def("trace_stop", &trace_stop, WithoutGil(), "Stops, and returns the record as text.");
  py::class_<Samples>(m, "Samples", "Bytes per node over time, one row a sample.")
      .def_readonly("nodes", &Samples::nodes)
      .def_readonly("op", &Samples::op)
      .def_readonly("resident", &Samples::resident)
      .def_readonly("bytes_fetched", &Samples::bytes_fetched)
      .def_readonly("bytes_written_back", &Samples::bytes_written_back);
  m.def("sample_start", &sample_start, py::arg("every_ops"), WithoutGil(),
        "Starts to sample bytes per node.");
  m.def("sample_stop", &sample_stop, WithoutGil(), "Stops, and returns the samples.");
}

}  // namespace innkeeper::bindings
