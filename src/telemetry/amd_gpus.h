// Reads one AMD GPU by AMD SMI: the queries for each member of Gpu, and the checks that make their answers
// safe to use. As in gpus.h, no answer is trusted unchecked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "telemetry/amdsmi.h"
#include "telemetry/snapshot.h"

namespace innkeeper::telemetry::amdsmi {

class GpuReader {
 public:
  GpuReader(const Library& library, Device device) : library_(library), device_(device) {}

  // Reads UUID, bus id, name and place in ROCR's order. Returns false if the GPU has no identity; why()
  // gives the reason.
  bool read_identity(Gpu& gpu);
  void read(Wanted wanted, Gpu& gpu);

  bool lost() const { return lost_; }
  bool forbidden() const { return forbidden_; }
  // True: other code has stopped the library.
  bool gone() const { return gone_; }
  const std::string& why() const { return why_; }

 private:
  template <class... Parameters, class... Arguments>
  Code ask_gpu(const char* question, Code (*function)(Parameters...), Arguments... arguments) {
    const Code code = ask(function, arguments...);
    if (code == kNotInitialized) gone_ = true;
    if (code == kNotFound) lose(question, code);
    return code;
  }
  void lose(const char* question, Code code) {
    lost_ = true;
    why_ = describe(library_, question, code);
  }
  Reading<std::string> uuid(const std::string& bus_id);
  Reading<Memory> memory();
  Reading<Utilization> utilization();
  Reading<Power> power();
  Reading<int> temperature();
  Reading<uint32_t> clock(int kind);
  Reading<Clocks> clocks();
  template <class Entry>
  Reading<std::vector<Process>> listed_processes();
  Reading<std::vector<Process>> numbered_processes();
  Reading<std::vector<Process>> processes();

  const Library& library_;
  Device device_;
  bool lost_ = false;
  bool forbidden_ = false;
  bool gone_ = false;
  std::string why_;
};

// Returns the unique id that the library has put into its UUID. None: the UUID contains none, as for GPUs to
// which the kernel gives none.
std::optional<uint64_t> unique_id_of(const std::string& library_uuid);

// Returns the link between two GPUs.
Link read_link(const Library& library, Device a, Device b);

}  // namespace innkeeper::telemetry::amdsmi
