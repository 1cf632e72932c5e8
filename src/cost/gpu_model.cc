#include "cost/gpu_model.h"

#include <vector>

#include "base/size.h"
#include "cost/gpu_table.h"
#include "cost/names.h"

namespace innkeeper::cost {
namespace {

Status refuse(const std::string& why) { return Status(Code::invalid_argument, why); }

Result<GpuModel> custom(std::string_view name, const std::vector<std::string_view>& parts) {
  const std::string expected = "expected custom:TFLOPS:GB/s:SIZE, as in custom:165:1008:23GiB";
  if (parts.size() != 3) return refuse("has " + std::to_string(parts.size()) + " figures; " + expected);
  const auto tera = positive_number(parts[0]), giga = positive_number(parts[1]);
  if (!tera || !giga) return refuse("has no rates above 0; " + expected);
  const Result<Bytes> memory = parse_size(parts[2]);
  if (!memory.ok()) return refuse("has no size: " + memory.status().message());
  GpuModel model{.name = std::string(name),
                 .memory = memory.value(),
                 .bandwidth = *giga * 1e9,
                 .reached_flops = 1,
                 .reached_bandwidth = 1};
  model.rates.fill(*tera * 1e12);
  return model;
}

}  // namespace

Result<GpuModel> gpu_named(std::string_view name) {
  if (const auto parts = custom_parts(name)) return custom(name, *parts);
  if (const GpuRow* row = find_row(name)) return row->model;
  std::vector<KnownName> known;
  for (const GpuRow& row : gpu_rows()) known.push_back({key_of_gpu(row.model.name, 0), row.model.name});
  return refuse(not_known("GPU", key_of_gpu(name, 0), std::move(known)));
}

// A machine is simulated with A100s unless its user says otherwise.
GpuModel default_gpu() { return find_row("A100")->model; }

}  // namespace innkeeper::cost
