// torch.device under another name: inside `innkeeper run --managed` what a script calls cuda is the managed
// device. torch.device is an immutable type, so its constructor and what it shows are exchanged in its slots;
// so are the constructors of the other C types that take a device's name.
//
// Thread safety: the GIL. Nothing is changed before show_devices_as() is called, once.
#include <torch/csrc/Device.h>
#include <torch/csrc/Exceptions.h>

#include <array>
#include <optional>
#include <sstream>

#include "bindings/bindings.h"
#include "torch/memory/handle.h"

namespace innkeeper::bindings {
namespace {

using torch_layer::kManagedType;

const char* shown_name = nullptr;
newfunc make_device = nullptr;

at::Device& device_in(PyObject* object) { return reinterpret_cast<THPDevice*>(object)->device; }

std::string name_of(const at::Device& device) {
  std::string name = c10::DeviceTypeName(device.type(), /*lower_case=*/true);
  return device.type() == kManagedType ? shown_name : name;
}

PyObject* new_device(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject* made = make_device(type, args, kwargs);
  if (made != nullptr && THPDevice_Check(made) && device_in(made).is_cuda()) {
    const at::Device managed(kManagedType, device_in(made).index());
    Py_DECREF(made);
    return THPDevice_New(managed);
  }
  return made;
}

PyObject* device_type(PyObject* self, void*) { return py::str(name_of(device_in(self))).release().ptr(); }

PyObject* device_repr(PyObject* self) {
  std::ostringstream text;
  text << "device(type='" << name_of(device_in(self)) << "'";
  if (device_in(self).has_index()) text << ", index=" << static_cast<int>(device_in(self).index());
  text << ")";
  return py::str(text.str()).release().ptr();
}

PyObject* device_str(PyObject* self) {
  std::string text = name_of(device_in(self));
  if (device_in(self).has_index()) text += ":" + std::to_string(static_cast<int>(device_in(self).index()));
  return py::str(text).release().ptr();
}

// A device or its name, in the place of a device: the managed one has one random stream and one clock,
// whatever home is said, so its index is left out.
py::object translated(py::handle value) {
  py::object device = py::reinterpret_borrow<py::object>(value);
  if (PyUnicode_Check(value.ptr())) {
    if (value.cast<std::string>().rfind("cuda", 0) != 0) return device;
    device = py::handle(reinterpret_cast<PyObject*>(&THPDeviceType))(value);
  }
  if (!THPDevice_Check(device.ptr()) || device_in(device.ptr()).type() != kManagedType) return device;
  return py::reinterpret_steal<py::object>(THPDevice_New(at::Device(kManagedType)));
}

// Of a type whose first argument, or the one called device, is a device.
template <int number>
struct Constructor {
  static inline newfunc make = nullptr;

  static PyObject* call(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
    try {
      const py::list words(py::reinterpret_borrow<py::object>(args));
      if (!words.empty()) words[0] = translated(words[0]);
      py::dict named;
      if (kwargs != nullptr) named.attr("update")(py::handle(kwargs));
      if (named.contains("device")) named["device"] = translated(named["device"]);
      return make(type, py::tuple(words).ptr(), kwargs == nullptr ? nullptr : named.ptr());
    } catch (py::error_already_set& error) {
      error.restore();
      return nullptr;
    }
  }

  static void exchange(py::handle type) {
    make = std::exchange(reinterpret_cast<PyTypeObject*>(type.ptr())->tp_new, &call);
    PyType_Modified(reinterpret_cast<PyTypeObject*>(type.ptr()));
  }
};

void show_devices_as(const std::string& name, py::handle generator, py::handle stream, py::handle event) {
  if (shown_name != nullptr) return;
  shown_name = (new std::string(name))->c_str();  // for the life of the process
  PyTypeObject& type = THPDeviceType;
  make_device = std::exchange(type.tp_new, &new_device);
  type.tp_repr = &device_repr;
  type.tp_str = &device_str;
  static PyGetSetDef shown_type = {"type", &device_type, nullptr, nullptr, nullptr};
  const auto descriptor = py::reinterpret_steal<py::object>(PyDescr_NewGetSet(&type, &shown_type));
  if (!descriptor || PyDict_SetItemString(type.tp_dict, "type", descriptor.ptr()) != 0)
    throw py::error_already_set();
  PyType_Modified(&type);
  Constructor<0>::exchange(generator);
  Constructor<1>::exchange(stream);
  Constructor<2>::exchange(event);
}

bool is_managed(py::handle device) {
  return THPDevice_Check(device.ptr()) && device_in(device.ptr()).type() == kManagedType;
}

}  // namespace

void bind_device_names(py::module_& m) {
  m.def("is_managed", &is_managed, py::arg("device"),
        "Whether it is the managed device, however it is shown.");
  m.def("show_devices_as", &show_devices_as, py::arg("name"), py::arg("generator"), py::arg("stream"),
        py::arg("event"),
        "Makes torch.device and constructors of these types take 'cuda' for managed, and shows it so.");
}

}  // namespace innkeeper::bindings
