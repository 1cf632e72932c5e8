// Rates are dense peaks of the vendors' data sheets, in units of 1e12 per second; if a sheet prints the
// rate with sparsity, half of it. 16-bit and 8-bit products accumulate in float32, as PyTorch's do: on
// GeForce GPUs that halves the rate that is often quoted. 0 for fp8: the GPU has no such products, and
// computes them in 16 bits.
//
// reached_flops: by "Maximum Achievable Matmul FLOPS" of S. Bekman's Machine Learning Engineering (bf16, best
// shape, 2024 to 2025) for A100 0.869, H100 0.803, GH200 0.836, B200 0.776, MI300X 0.601. Others: 0.8, a
// guess. reached_bandwidth: streaming kernels reach 0.80 to 0.93 of the peak; 0.9 for all.
//
// No AMD GPU was tried.
#include "cost/gpu_table.h"

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "cost/names.h"

namespace innkeeper::cost {
namespace {

constexpr double kTera = 1e12;

struct Figures {
  std::string_view name;
  unsigned gigabytes;
  uint64_t gibibytes;
  int multiprocessors;
  Rates tera;  // fp64, fp32, tf32, bf16, fp16, fp8, int8.
  double gigabytes_per_second;
  std::string_view link;
  double reached_flops = 0.8;
  std::string_view other = {};
};

constexpr std::string_view kPcie3 = "PCIe 3 x16", kPcie4 = "PCIe 4 x16", kPcie5 = "PCIe 5 x16";

constexpr std::array kFigures = {
    // NVIDIA H200, H100 Tensor Core GPU data sheets (SXM); H100 architecture white paper.
    Figures{"H200", 141, 139, 132, {67, 67, 495, 989, 989, 1979, 1979}, 4800, kPcie5, 0.803},
    Figures{"H100", 80, 79, 132, {67, 67, 495, 989, 989, 1979, 1979}, 3350, kPcie5, 0.803},
    // NVIDIA HGX B200 data sheet, a part of eight.
    Figures{"B200", 180, 178, 148, {37, 75, 1125, 2250, 2250, 4500, 4500}, 7700, kPcie5, 0.776},
    // NVIDIA A100 80GB data sheet (SXM4).
    Figures{"A100", 80, 79, 108, {19.5, 19.5, 156, 312, 312, 0, 624}, 2039, kPcie4, 0.869},
    // NVIDIA L4 and L40S data sheets.
    Figures{"L4", 24, 22, 58, {0.47, 30.3, 60, 121, 121, 242, 242}, 300, kPcie4},
    Figures{"L40S", 48, 44, 142, {1.43, 91.6, 183, 362, 362, 733, 733}, 864, kPcie4},
    // NVIDIA Ampere GA102 architecture white paper, appendix A; GA106 by the same rates of a multiprocessor.
    Figures{"RTX 3060", 12, 11, 28, {0.2, 12.7, 12.7, 25.5, 25.5, 0, 102}, 360, kPcie4},
    Figures{"RTX 3080", 10, 9, 68, {0.47, 29.8, 29.8, 59.5, 59.5, 0, 238}, 760, kPcie4},
    Figures{"RTX 3090", 24, 23, 82, {0.56, 35.6, 35.6, 71, 71, 0, 285}, 936, kPcie4},
    // NVIDIA Ada GPU architecture white paper, appendix A (4090, 4080); the others by the same rates of a
    // multiprocessor at their boost clocks of 2.535 and 2.475 GHz.
    Figures{"RTX 4060 Ti", 16, 15, 34, {0.34, 22.1, 22.1, 44.1, 44.1, 88.3, 177}, 288, "PCIe 4 x8"},
    Figures{"RTX 4070", 12, 11, 46, {0.46, 29.1, 29.1, 58.3, 58.3, 117, 233}, 504, kPcie4},
    Figures{"RTX 4080", 16, 15, 76, {0.76, 48.7, 48.7, 97.5, 97.5, 195, 390}, 717, kPcie4},
    Figures{"RTX 4090", 24, 23, 128, {1.29, 82.6, 82.6, 165.2, 165.2, 330.3, 660.6}, 1008, kPcie4},
    // NVIDIA RTX Blackwell GPU architecture white paper, appendix A (5090, 5080); the 5070 by the same rates
    // of a multiprocessor at 2.512 GHz.
    Figures{"RTX 5070", 12, 11, 48, {0.48, 30.9, 30.9, 61.7, 61.7, 123, 247}, 672, kPcie5},
    Figures{"RTX 5080", 16, 15, 84, {0.88, 56.3, 56.3, 112.6, 112.6, 225, 450}, 960, kPcie5},
    Figures{"RTX 5090", 32, 31, 170, {1.64, 104.8, 104.8, 209.5, 209.5, 419, 838}, 1792, kPcie5},
    // NVIDIA RTX A6000 data sheet and the Ampere GA102 white paper.
    Figures{"A6000", 48, 47, 84, {0.6, 38.7, 77.4, 154.8, 154.8, 0, 309.7}, 768, kPcie4},
    // NVIDIA RTX PRO 6000 Blackwell Workstation Edition data sheet, RTX Blackwell PRO white paper.
    Figures{"RTX PRO 6000", 96, 95, 188, {1.97, 126, 252, 503.8, 503.8, 1007.6, 1007.6}, 1792, kPcie5},
    // NVIDIA GH200 Grace Hopper Superchip data sheet, with 96 GB HBM3.
    Figures{
        "GH200", 96, 94, 132, {67, 67, 495, 989, 989, 1979, 1979}, 4000, "NVLink-C2C", 0.836, "GH200 480GB"},
    // NVIDIA DGX Spark data sheet: 1 PFLOPS of FP4 with sparsity, 128 GB and 273 GB/s that the CPU shares.
    Figures{"GB10", 128, 119, 48, {0.48, 31, 62, 125, 125, 250, 250}, 273, "LPDDR5X"},
    // NVIDIA V100 data sheet (SXM2). Its tensor cores know float16 alone.
    Figures{"V100", 32, 31, 80, {7.8, 15.7, 15.7, 15.7, 125, 0, 62.8}, 900, kPcie3},
    // NVIDIA T4 data sheet. Its tensor cores know float16 alone, too.
    Figures{"T4", 16, 14, 40, {0.25, 8.1, 8.1, 8.1, 65, 0, 130}, 320, kPcie3},
    // AMD Instinct MI300X data sheet.
    Figures{
        "MI300X", 192, 191, 304, {163.4, 163.4, 653.7, 1307.4, 1307.4, 2614.9, 2614.9}, 5300, kPcie5, 0.601},
};

GpuRow row_of(const Figures& figures) {
  GpuModel model{.name = std::string(figures.name),
                 .memory = GiB(figures.gibibytes),
                 .multiprocessors = figures.multiprocessors,
                 .bandwidth = figures.gigabytes_per_second * 1e9,
                 .reached_flops = figures.reached_flops,
                 .link = figures.link};
  const Rates& tera = figures.tera;
  std::transform(tera.begin(), tera.end(), model.rates.begin(), [](double rate) { return rate * kTera; });
  double& fp8 = model.rates[static_cast<size_t>(Precision::fp8)];
  if (fp8 == 0) fp8 = model.rates[static_cast<size_t>(Precision::fp16)];
  return {std::move(model), figures.gigabytes, figures.other};
}

bool is_vendors(const std::string& word) {
  static const std::set<std::string, std::less<>> kWords = {"nvidia",      "geforce", "tesla",    "quadro",
                                                            "rtx",         "amd",     "instinct", "blackwell",
                                                            "workstation", "edition"};
  return kWords.contains(word);
}

}  // namespace

std::span<const GpuRow> gpu_rows() {
  static const std::vector<GpuRow> rows = [] {
    std::vector<GpuRow> made;
    std::transform(kFigures.begin(), kFigures.end(), std::back_inserter(made), row_of);
    return made;
  }();
  return rows;
}

std::string key_of_gpu(std::string_view name, unsigned gigabytes) {
  const std::vector<std::string> words = words_of(name);
  std::string key;
  for (size_t i = 0; i < words.size(); ++i) {
    if (is_vendors(words[i])) continue;
    const std::string_view next = i + 1 < words.size() ? std::string_view(words[i + 1]) : "";
    const bool memory = words[i] == std::to_string(gigabytes) && next == "gb";
    if (memory || words[i] == "hbm" || words[i] == "sxm") {  // For example HBM3 and SXM4.
      i += next.empty() ? 0 : 1;
      continue;
    }
    key += words[i];
  }
  return key;
}

const GpuRow* find_row(std::string_view name) {
  for (const GpuRow& row : gpu_rows()) {
    const auto is = [&](std::string_view known) {
      return key_of_gpu(name, row.gigabytes) == key_of_gpu(known, row.gigabytes);
    };
    if (is(row.model.name) || (!row.other.empty() && is(row.other))) return &row;
  }
  return nullptr;
}

}  // namespace innkeeper::cost
