#include "bindings/bindings.h"
#include "torch/distributed/process_group.h"

namespace innkeeper::bindings {

void bind_distributed(py::module_& m) {
  m.def(
      "make_process_group",
      [](c10d::Backend& inner) {
        return torch_layer::make_process_group(c10::intrusive_ptr<c10d::Backend>::reclaim_copy(&inner));
      },
      py::arg("inner"), WithoutGil(),
      "A c10d backend that hands collectives on managed tensors to `inner`, a backend of CPU tensors.");
}

}  // namespace innkeeper::bindings
