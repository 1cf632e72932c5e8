#include <torch/csrc/Exceptions.h>

#include "bindings/bindings.h"
#include "torch/start/load.h"

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using namespace innkeeper::bindings;
  m.attr("__version__") = INNKEEPER_VERSION;
  m.doc() = "The managed device's runtime. Use it through the innkeeper package.";
  py::register_local_exception_translator([](std::exception_ptr error) {
    if (error == nullptr) return;
    try {
      std::rethrow_exception(error);
    } catch (const c10::Error&) {
      torch::translate_exception_to_python(error);
    }
  });
  innkeeper::torch_layer::load();
  bind_settings(m);
  bind_mixed(m);
  bind_stats(m);
  bind_blocks(m);
  bind_placement(m);
  bind_random(m);
  bind_records(m);
  bind_faults(m);
  bind_leases(m);
  bind_distributed(m);
  bind_device_names(m);
  bind_operators(m);
}
