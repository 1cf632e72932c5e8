#include "cost/derived_gpu.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "cost/gpu_table.h"
#include "cost/names.h"

namespace innkeeper::cost {
namespace {

// Operations of one multiprocessor in one cycle, by CUDA's programming guide (arithmetic throughput) and the
// vendors' white papers.
struct Multiprocessor {
  int capability;    // Lower bound of the compute capability: 10 * major + minor.
  Rates operations;  // fp64, fp32, tf32, bf16, fp16, fp8, int8.
};

constexpr std::array kMultiprocessors = {
    Multiprocessor{0, {4, 256, 256, 256, 256, 256, 512}},  // GPUs before tensor cores.
    Multiprocessor{70, {64, 128, 128, 128, 1024, 1024, 512}},
    Multiprocessor{75, {4, 128, 128, 128, 1024, 1024, 2048}},
    Multiprocessor{80, {128, 128, 1024, 2048, 2048, 2048, 4096}},
    Multiprocessor{86, {4, 256, 512, 1024, 1024, 1024, 2048}},
    Multiprocessor{87, {4, 256, 512, 1024, 1024, 1024, 2048}},
    Multiprocessor{89, {4, 256, 512, 1024, 1024, 2048, 2048}},
    Multiprocessor{90, {256, 256, 2048, 4096, 4096, 8192, 8192}},
    Multiprocessor{100, {128, 256, 4096, 8192, 8192, 16384, 16384}},
    Multiprocessor{120, {4, 256, 512, 1024, 1024, 2048, 2048}},
};

constexpr double kAsOfTable = 0.1;  // Relative difference to the table's memory up to which a row applies.
constexpr double kNoClock = 1.5e9;  // Clock, Hz, if the driver does not report one.
constexpr double kNoBandwidth = 300e9;

// GeForce GPUs of capability 8.6 and later accumulate in float32 at half of the rate.
bool is_halved(const GpuReport& report) {
  const auto words = words_of(report.name);
  return std::find(words.begin(), words.end(), "geforce") != words.end() &&
         10 * report.major + report.minor >= 86;
}

Rates operations_of(const GpuReport& report) {
  const int capability = 10 * report.major + report.minor;
  const auto after = std::find_if(kMultiprocessors.begin() + 1, kMultiprocessors.end(),
                                  [&](const Multiprocessor& one) { return one.capability > capability; });
  Rates rates = (after - 1)->operations;
  if (is_halved(report)) {
    for (const Precision precision : {Precision::tf32, Precision::bf16, Precision::fp16, Precision::fp8})
      rates[static_cast<size_t>(precision)] /= 2;
  }
  return rates;
}

bool is_row(const GpuReport& report, const GpuModel& model) {
  const auto memory = static_cast<double>(model.memory.count());
  const double off = std::abs(static_cast<double>(report.memory.count()) - memory);
  return report.multiprocessors == model.multiprocessors && off <= kAsOfTable * memory;
}

}  // namespace

GpuModel model_of(const GpuReport& report) {
  const GpuRow* const row = find_row(report.name);
  if (row != nullptr && is_row(report, row->model)) return row->model;
  GpuModel model{.name = report.name, .memory = report.memory, .multiprocessors = report.multiprocessors};
  const double cycles = (report.clock > 0 ? report.clock : kNoClock) * std::max(report.multiprocessors, 1);
  model.rates = operations_of(report);
  for (double& rate : model.rates) rate *= cycles;
  model.bandwidth = 2 * report.memory_clock * report.memory_bits / 8;
  if (model.bandwidth <= 0) model.bandwidth = kNoBandwidth;
  if (row != nullptr) model.link = row->model.link;
  return model;
}

}  // namespace innkeeper::cost
