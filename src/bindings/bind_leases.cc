// The GPUs of the machine and leases on them. A failure is an exception by its code: ValueError, OSError,
// RuntimeError, and LeaseBusy for what may succeed later.
#include <chrono>
#include <mutex>

#include "bindings/bindings.h"
#include "lease/here.h"
#include "telemetry/cuda_view.h"
#include "telemetry/visible.h"

namespace innkeeper::bindings {
namespace {

using std::chrono::milliseconds;

struct LeaseBusy : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void throw_if_error(const Status& status) {
  if (status.ok()) return;
  switch (status.code()) {
    case Code::invalid_argument: throw py::value_error(status.message());
    case Code::busy: throw LeaseBusy(status.message());
    case Code::io_error: {
      const py::gil_scoped_acquire gil;
      PyErr_SetString(PyExc_OSError, status.message().c_str());
      throw py::error_already_set();
    }
    default: throw std::runtime_error(status.message());
  }
}

template <class T>
T value_of(Result<T> result) {
  throw_if_error(result.status());
  return std::move(result).value();
}

milliseconds from_seconds(double seconds) {
  return milliseconds(static_cast<int64_t>(std::min(seconds, 3e9) * 1000));
}

// A Python object may be used by several threads, a lease by one at a time.
struct SharedLease {
  explicit SharedLease(lease::Lease granted) : lease(std::move(granted)) {}
  std::mutex mutex;
  lease::Lease lease;

  template <class Function>
  auto with(Function function) {
    const std::lock_guard<std::mutex> lock(mutex);
    return function(lease);
  }
};
using Held = std::shared_ptr<SharedLease>;

std::vector<std::pair<std::string, int64_t>> claims_of(const std::vector<lease::Claim>& claims) {
  std::vector<std::pair<std::string, int64_t>> pairs;
  for (const lease::Claim& claim : claims) pairs.emplace_back(claim.uuid, claim.bytes.count());
  return pairs;
}

Held acquire(int count, std::optional<int64_t> memory, std::optional<bool> exclusive, const std::string& by,
             std::optional<std::map<std::string, double>> keys, bool wait, std::optional<double> wait_limit_s,
             std::optional<std::vector<std::string>> allowed, const std::string& inside,
             std::optional<double> expires_s, const std::string& job) {
  lease::Request request;
  request.count = count;
  if (memory) request.memory = Bytes(*memory);
  request.exclusive = exclusive;
  request.by = value_of(lease::parse_by(by));
  if (keys)
    request.key = [keys = *std::move(keys)](const lease::Card& card) {
      const auto found = keys.find(card.uuid);
      return found == keys.end() ? -std::numeric_limits<double>::max() : found->second;
    };
  request.wait = wait;
  if (wait_limit_s) request.wait_limit = from_seconds(*wait_limit_s);
  request.allowed = std::move(allowed);
  request.inside = inside;
  if (expires_s) request.expires_after = from_seconds(*expires_s);
  request.job = job;
  std::optional<py::error_already_set> raised;  // by a signal's handler, while waiting
  Result<lease::Lease> granted = lease::acquire_here(request, [&raised] {
    const py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) raised.emplace();
    return raised.has_value();
  });
  if (raised) {
    const py::gil_scoped_acquire gil;
    raised->restore();
    throw py::error_already_set();
  }
  return std::make_shared<SharedLease>(value_of(std::move(granted)));
}

template <class T>
py::object or_none(const telemetry::Reading<T>& reading) {
  return reading ? py::cast(*reading) : py::none();
}

void add_memory(py::dict& d, const telemetry::Reading<telemetry::Memory>& memory) {
  d["memory_total"] = memory ? py::cast(memory->total.count()) : py::none();
  d["memory_reserved"] = memory ? py::cast(memory->reserved.count()) : py::none();
  d["memory_free"] = memory ? py::cast(memory->free.count()) : py::none();
}

py::dict to_dict(const telemetry::Card& card) {
  py::dict d;
  d["uuid"] = card.uuid;
  d["name"] = card.name;
  d["bus_id"] = card.bus_id;
  d["index"] = card.driver_index;
  add_memory(d, card.memory);
  d["utilization"] = card.utilization ? py::cast(card.utilization->compute_percent) : py::none();
  d["power"] = card.power ? py::cast(card.power->watts) : py::none();
  d["power_limit"] = card.power ? py::cast(card.power->limit_watts) : py::none();
  d["temperature"] = or_none(card.temperature_c);
  py::list instances;
  for (const telemetry::Instance& instance : card.instances) {
    py::dict part;
    part["uuid"] = instance.uuid;
    part["name"] = instance.name;
    add_memory(part, instance.memory);
    instances.append(part);
  }
  d["mig"] = card.mig;
  d["instances"] = instances;
  return d;
}

py::list gpus() {
  telemetry::Snapshot snapshot;
  {
    const py::gil_scoped_release release;
    using telemetry::Wanted;
    snapshot =
        telemetry::snapshot(Wanted::memory | Wanted::utilization | Wanted::power | Wanted::temperature);
  }
  py::list list;
  for (const telemetry::Card& card : snapshot.cards) list.append(to_dict(card));
  return list;
}

std::vector<std::string> given(std::optional<std::string> visible_devices) {
  return value_of(
      lease::given_here(std::move(visible_devices), telemetry::snapshot(telemetry::Wanted::nothing)));
}

std::optional<std::vector<std::string>> cuda_view() {
  return telemetry::cuda_view(telemetry::snapshot(telemetry::Wanted::nothing));
}

std::vector<std::string> visible() {
  return telemetry::visible_from_environment(telemetry::snapshot(telemetry::Wanted::nothing)).uuids;
}

}  // namespace

void bind_leases(py::module_& m) {
  py::register_exception<LeaseBusy>(m, "LeaseBusy", PyExc_RuntimeError);
  py::class_<SharedLease, Held>(m, "Lease")
      .def_property_readonly("id", [](SharedLease& s) { return s.with([](auto& l) { return l.id(); }); })
      .def_property_readonly(
          "claims", [](SharedLease& s) { return s.with([](auto& l) { return claims_of(l.claims()); }); })
      .def_property_readonly("exclusive",
                             [](SharedLease& s) { return s.with([](auto& l) { return l.exclusive(); }); })
      .def_property_readonly("held", [](SharedLease& s) { return s.with([](auto& l) { return l.held(); }); })
      .def(
          "intact", [](SharedLease& s) { return s.with([](auto& l) { return l.intact(); }); }, WithoutGil())
      .def(
          "release", [](SharedLease& s) { s.with([](auto& l) { l.release(); }); }, WithoutGil())
      .def(
          "leave", [](SharedLease& s) { s.with([](auto& l) { l.leave(); }); }, WithoutGil())
      .def(
          "resize",
          [](SharedLease& s, int64_t memory) {
            throw_if_error(s.with([&](auto& l) { return lease::resize_here(l, Bytes(memory)); }));
          },
          py::arg("memory"), WithoutGil())
      .def(
          "renew",
          [](SharedLease& s, double seconds) {
            lease::Arbiter arbiter = value_of(lease::Arbiter::open());
            throw_if_error(s.with([&](auto& l) { return arbiter.renew(l, from_seconds(seconds)); }));
          },
          py::arg("seconds"), WithoutGil())
      .def(
          "share_with_children",
          [](SharedLease& s) { throw_if_error(s.with([](auto& l) { return l.share_with_children(); })); },
          WithoutGil())
      .def(
          "share_through_exec",
          [](SharedLease& s) { return value_of(s.with([](auto& l) { return l.share_through_exec(); })); },
          WithoutGil());
  m.def("acquire_lease", &acquire, py::kw_only(), py::arg("count"), py::arg("memory"), py::arg("exclusive"),
        py::arg("by"), py::arg("keys"), py::arg("wait"), py::arg("wait_limit"), py::arg("allowed"),
        py::arg("inside"), py::arg("expires"), py::arg("job"), WithoutGil(),
        "Grants a lease, or waits for it.");
  m.def(
      "adopt_lease",
      [](int descriptor) {
        return std::make_shared<SharedLease>(value_of(value_of(lease::Arbiter::open()).adopt(descriptor)));
      },
      py::arg("descriptor"), WithoutGil(), "The lease of a descriptor that was inherited or received.");
  m.def("gpus", &gpus, "Each card of the machine, as a dict.");
  m.def("given_gpus", &given, py::arg("visible_devices"), WithoutGil(),
        "UUIDs that this process may choose from, given CUDA_VISIBLE_DEVICES as it was.");
  m.def("visible_gpus", &visible, WithoutGil(), "UUIDs by CUDA's ordinal, as the environment says now.");
  m.def("cuda_view", &cuda_view, WithoutGil(),
        "UUIDs by CUDA's ordinal in this process; None if CUDA has not been started.");
}

}  // namespace innkeeper::bindings
