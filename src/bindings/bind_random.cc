#include <ATen/Context.h>

#include "bindings/bindings.h"
#include "innkeeper/torch/runtime.h"

namespace innkeeper::bindings {

void bind_random(py::module_& m) {
  using namespace torch_layer;
  m.def(
      "default_generator",
      [](c10::DeviceIndex index) {
        return at::globalContext().defaultGenerator(c10::Device(c10::kPrivateUse1, index));
      },
      py::arg("index") = 0, "The generator of the stream that the thread draws from on this device.");
  m.def("manual_seed", &manual_seed, py::arg("seed"), WithoutGil(),
        "Seeds the stream that the thread draws from.");
  m.def("get_rng_state", &get_rng_state, WithoutGil(), "The stream's state, a CPU tensor of uint8.");
  m.def("set_rng_state", &set_rng_state, py::arg("state"), WithoutGil(), "Sets the stream's state.");
}

}  // namespace innkeeper::bindings
