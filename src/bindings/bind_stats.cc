#include "bindings/bindings.h"
#include "innkeeper/torch/runtime.h"

namespace innkeeper::bindings {

namespace {

py::dict to_dict(const NodeStats& s) {
  py::dict d;
  d["budget"] = s.budget;
  d["resident"] = s.resident;
  d["peak"] = s.peak;
  d["replicas"] = s.replicas;
  d["pinned"] = s.pinned;
  d["recount"] = s.recount;
  d["evictions"] = s.evictions;
  d["ops"] = s.ops;
  return d;
}

// Returns None for an unknown time.
py::object unless_zero(double seconds) { return seconds == 0 ? py::object(py::none()) : py::float_(seconds); }

py::object to_dict(const PeriodStats& s) {
  if (s.operators == 0) return py::none();
  py::dict d;
  d["operators"] = s.operators;
  d["bytes_planned"] = s.bytes_planned;
  d["bytes_short"] = s.bytes_short;
  d["bytes_fetched"] = s.bytes_fetched;
  d["seconds"] = unless_zero(s.seconds);
  d["kernel_seconds"] = unless_zero(s.kernel_seconds);
  return d;
}

py::dict to_dict(const Stats& s) {
  py::dict d;
  d["ops"] = s.ops;
  d["fetches"] = s.fetches;
  d["recomputed"] = s.recomputed;
  d["other_bits"] = s.other_bits;
  d["evictions"] = s.evictions;
  d["bytes_fetched"] = s.bytes_fetched;
  d["bytes_written_back"] = s.bytes_written_back;
  d["bytes_between"] = s.bytes_between;
  d["bytes_from_disk"] = s.bytes_from_disk;
  d["bytes_to_disk"] = s.bytes_to_disk;
  d["moved_from_cpu"] = s.moved_from_cpu;
  d["escaped"] = s.escaped;
  d["planned_periods"] = s.planned_periods;
  d["divergences"] = s.divergences;
  d["period"] = to_dict(s.period);
  d["bytes_bound"] = s.period.operators == 0 ? py::object(py::none()) : py::int_(s.period.bytes_bound);
  d["time_bound"] = unless_zero(s.period.seconds_bound);
  d["simulated_seconds"] = s.simulated_seconds;
  py::dict nodes;
  for (const auto& [name, node] : s.nodes) nodes[py::str(name)] = to_dict(node);
  d["nodes"] = nodes;
  return d;
}

Stats stats_without_gil() {
  py::gil_scoped_release release;
  return torch_layer::stats();
}

std::map<uint64_t, std::pair<int64_t, int64_t>> planned_moves() {
  std::map<uint64_t, std::pair<int64_t, int64_t>> all;
  for (const BlockMoves& moves : torch_layer::planned_moves())
    all[moves.block] = {moves.bytes_in, moves.bytes_out};
  return all;
}

}  // namespace

void bind_stats(py::module_& m) {
  m.def(
      "stats", [] { return to_dict(stats_without_gil()); }, "What was done since the last reset, as a dict.");
  m.def("planned_moves", &planned_moves, WithoutGil(),
        "Of the last period: block number to bytes in and out.");
  m.def("block_number", &torch_layer::block_number, py::arg("x"), "The tensor's, as in planned_moves.");
  m.def("reset_stats", &torch_layer::reset_stats, WithoutGil(),
        "Sets the counters to zero and the peaks to what is in use now.");
  m.def("check_invariants", &torch_layer::check_invariants, WithoutGil(),
        "Empty if all invariants hold; else a description of the first that does not.");
  m.def("synchronize", &torch_layer::synchronize, WithoutGil(),
        "Blocks until every queue of every node has done its work.");
  m.def("empty_cache", &torch_layer::empty_cache, WithoutGil(),
        "Gives cached free memory back; returns how many bytes.");
}

}  // namespace innkeeper::bindings
