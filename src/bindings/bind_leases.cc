// The GPUs of the machine and leases on them. A failure becomes an exception by its code: ValueError,
// OSError, RuntimeError, and LeaseBusy for requests that may succeed later.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>

#include "bindings/bindings.h"
#include "config/machine.h"
#include "innkeeper/choice.h"
#include "lease/here.h"
#include "lease/shown.h"
#include "telemetry/cuda_view.h"

namespace innkeeper::bindings {
namespace {

using std::chrono::milliseconds;

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
  if (std::isnan(seconds)) throw py::value_error("expected a number of seconds");
  // Limits the time to a century.
  return milliseconds(static_cast<int64_t>(std::clamp(seconds, -3e9, 3e9) * 1000));
}

// Several threads may use a Python object, but only one thread at a time may use a lease.
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

// Makes a property's getter. Another thread may hold the mutex for seconds, and a thread that waited
// for it with the GIL would stop all threads. A guard given to def_property_readonly itself would not
// reach the function.
template <class Function>
py::cpp_function getter(Function function) {
  return py::cpp_function([function](SharedLease& s) { return s.with(function); }, WithoutGil());
}

std::vector<std::pair<std::string, int64_t>> claims_of(const std::vector<lease::Claim>& claims) {
  std::vector<std::pair<std::string, int64_t>> pairs;
  for (const lease::Claim& claim : claims) pairs.emplace_back(claim.uuid, claim.bytes.count());
  return pairs;
}

Held acquire(int count, std::optional<int64_t> memory, std::optional<bool> exclusive, const std::string& by,
             std::optional<std::map<std::string, double>> keys, bool wait, std::optional<double> wait_limit_s,
             std::optional<std::vector<std::string>> allowed, const std::string& vendor,
             std::optional<double> expires_s, const std::string& job) {
  lease::Request request;
  request.count = count;
  if (memory) request.memory = Bytes(*memory);
  request.exclusive = exclusive;
  request.by = value_of(lease::parse_by(by));
  if (keys)
    request.key = [keys = *std::move(keys)](const lease::Gpu& gpu) {
      const auto found = keys.find(gpu.uuid);
      return found == keys.end() ? -std::numeric_limits<double>::max() : found->second;
    };
  request.wait = wait;
  if (wait_limit_s) request.wait_limit = from_seconds(*wait_limit_s);
  request.allowed = std::move(allowed);
  throw_if_error(lease::restrict_here(request, vendor));
  if (expires_s) request.expires_after = from_seconds(*expires_s);
  request.job = job;
  std::optional<py::error_already_set> raised;  // Exception of a signal's handler, raised while waiting.
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

py::list gpu_dicts() {
  std::vector<GPU> found;
  {
    const py::gil_scoped_release release;
    found = gpus();
  }
  py::list list;
  for (const GPU& gpu : found) {
    py::dict d;
    d["uuid"] = gpu.uuid;
    d["name"] = gpu.name;
    d["index"] = gpu.index;
    d["memory_total"] = gpu.memory_total;
    d["memory_free"] = gpu.memory_free;
    d["memory_reserved"] = gpu.memory_reserved;
    d["utilization"] = gpu.utilization;
    d["power"] = gpu.power;
    d["power_limit"] = gpu.power_limit;
    d["temperature"] = gpu.temperature;
    list.append(d);
  }
  return list;
}

std::vector<std::string> lease_warnings() {
  const Result<lease::Arbiter> arbiter = lease::Arbiter::open();
  return arbiter.ok() ? lease::warnings_of(arbiter.value().directory()) : std::vector<std::string>();
}

// Returns the number of leases on each GPU, for display; empty if they cannot be read.
std::map<std::string, int> lease_counts() {
  const Result<lease::Arbiter> arbiter = lease::Arbiter::open();
  if (!arbiter.ok()) return {};
  const Result<std::vector<lease::Entry>> entries = arbiter.value().list();
  std::map<std::string, int> counts;
  if (!entries.ok()) return counts;
  for (const lease::Entry& entry : entries.value()) {
    if (entry.record.kind != lease::Kind::held) continue;
    for (const lease::Claim& claim : entry.record.claims) ++counts[claim.uuid];
  }
  return counts;
}

std::unique_ptr<lease::Shown> show(const std::vector<std::string>& uuids, Held held) {
  const telemetry::Snapshot gpus = telemetry::snapshot(telemetry::Wanted::nothing);
  return std::make_unique<lease::Shown>(uuids, gpus, [held = std::move(held)] {
    const std::unique_lock<std::mutex> lock(held->mutex, std::try_to_lock);
    return !lock || held->lease.held();  // The mutex is locked by another thread that changes the lease.
  });
}

std::map<std::string, std::optional<std::string>> variables() {
  std::map<std::string, std::optional<std::string>> variables;
  for (const auto& [name, value] : by_name(telemetry::own_variables())) variables[name] = value;
  return variables;
}

}  // namespace

void bind_leases(py::module_& m) {
  py::register_exception<LeaseBusy>(m, "LeaseBusy", PyExc_RuntimeError);
  py::class_<SharedLease, Held>(m, "Lease")
      .def_property_readonly("id", getter([](auto& l) { return l.id(); }))
      .def_property_readonly("claims", getter([](auto& l) { return claims_of(l.claims()); }))
      .def_property_readonly("exclusive", getter([](auto& l) { return l.exclusive(); }))
      .def_property_readonly("held", getter([](auto& l) { return l.held(); }))
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
        py::arg("vendor"), py::arg("expires"), py::arg("job"), WithoutGil(),
        "Grants a lease, or waits for it.");
  m.def(
      "adopt_lease",
      [](std::optional<int> descriptor) {
        return std::make_shared<SharedLease>(value_of(lease::adopt_here(descriptor)));
      },
      py::arg("descriptor"), WithoutGil(), "The lease of a descriptor that was inherited or received.");
  m.def("simulated_node", &simulated_node, py::arg("uuid"),
        "The name of the simulated node with this UUID; empty for a GPU.");
  m.def("lease_counts", &lease_counts, WithoutGil(), "UUID to the number of leases on it.");
  m.def("lease_warnings", &lease_warnings, WithoutGil(),
        "Why leases may not be what their user expects, a line each: in a container, or after a logout.");
  m.def("gpus", &gpu_dicts, "Each GPU of the machine, as a dict.");
  py::class_<lease::Shown>(m, "Shown").def("end", &lease::Shown::end, WithoutGil());
  m.def("show_gpus", &show, py::arg("uuids"), py::arg("lease"), WithoutGil(),
        "Lets CUDA see them, by the variables, for as long as the lease is held and until Shown.end().");
  m.def("visible_variables", &variables, "CUDA_VISIBLE_DEVICES and its kin as this process has them.");
  m.def(
      "gpu_ordinals",
      [](const std::vector<std::string>& uuids) { return value_of(lease::ordinals_here(uuids)); },
      py::arg("uuids"), WithoutGil(), "CUDA's ordinals of UUIDs in this process, as things are now.");
  m.def(
      "cuda_is_started", [] { return telemetry::cuda_ordinals().has_value(); }, WithoutGil(),
      "Whether something in this process has started CUDA.");
  m.def("allocator_bytes", &lease::allocator_bytes, py::arg("memory"),
        "What a framework's allocator may have of a lease of so many bytes.");
  m.attr("MARK") = lease::kMark.count();
}

}  // namespace innkeeper::bindings
