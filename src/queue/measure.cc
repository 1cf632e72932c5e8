#include "queue/measure.h"

#include <algorithm>

namespace innkeeper::queue {

std::map<JobId, Bytes> measure(const std::vector<Measurable>& jobs, const lease::Machine& machine) {
  std::map<JobId, Bytes> most;
  for (const lease::Gpu& gpu : machine.gpus) {
    std::map<JobId, Bytes> here;
    for (const lease::Process& process : gpu.processes)
      for (const Measurable& job : jobs)
        if (std::find(process.line.begin(), process.line.end(), job.supervisor) != process.line.end())
          here[job.id] += process.used;
    for (const auto& [id, bytes] : here) most[id] = std::max(most[id], bytes);
  }
  return most;
}

Bytes propose(Bytes peak) {
  constexpr int64_t kStep = MiB(256).count();
  const int64_t wanted = peak.count() + peak.count() / 10;
  return Bytes((wanted + kStep - 1) / kStep * kStep);
}

}  // namespace innkeeper::queue
