#include "cost/gpu_model.h"

#include <gtest/gtest.h>

#include <set>

#include "cost/derived_gpu.h"
#include "cost/gpu_table.h"
#include "cost/link_model.h"

namespace innkeeper::cost {
namespace {

std::string found(std::string_view name) {
  const Result<GpuModel> gpu = gpu_named(name);
  return gpu.ok() ? gpu.value().name : std::string(gpu.status().message());
}

TEST(GpuModel, IsFoundByEverySpellingOfItsName) {
  for (const char* name : {"RTX 4090", "rtx4090", "4090", "NVIDIA GeForce RTX 4090", "geforce-rtx_4090",
                           "RTX 4090 24GB", "rtx 4090 24 GB"})
    EXPECT_EQ(found(name), "RTX 4090") << name;
  // As drivers report them.
  EXPECT_EQ(found("NVIDIA H100 80GB HBM3"), "H100");
  EXPECT_EQ(found("NVIDIA H200"), "H200");
  EXPECT_EQ(found("NVIDIA A100-SXM4-80GB"), "A100");
  EXPECT_EQ(found("NVIDIA GH200 480GB"), "GH200");
  EXPECT_EQ(found("NVIDIA RTX A6000"), "A6000");
  EXPECT_EQ(found("NVIDIA GeForce RTX 4060 Ti"), "RTX 4060 Ti");
  EXPECT_EQ(found("4060 Ti 16 GB"), "RTX 4060 Ti");
  EXPECT_EQ(found("NVIDIA RTX PRO 6000 Blackwell Workstation Edition"), "RTX PRO 6000");
  EXPECT_EQ(found("Tesla V100-SXM2-32GB"), "V100");
  EXPECT_EQ(found("Tesla T4"), "T4");
  EXPECT_EQ(found("AMD Instinct MI300X"), "MI300X");
  for (const GpuRow& row : gpu_rows()) EXPECT_EQ(found(row.model.name), row.model.name);
}

TEST(GpuModel, IsNotFoundByTheNameOfAnother) {
  for (const char* name : {"H100 PCIe", "NVIDIA H100 NVL", "A100 40GB", "NVIDIA GeForce RTX 4090 Laptop GPU",
                           "RTX 4090 D", "RTX 4080 SUPER", "RTX 6000 Ada", "V100-SXM2-16GB", "H1000", ""})
    EXPECT_FALSE(gpu_named(name).ok()) << name;
}

TEST(GpuModel, AWrongNameIsAnsweredWithTheNearest) {
  EXPECT_EQ(found("H10"), "is no GPU that is known; the nearest are H100, H200, and A100");
  EXPECT_TRUE(found("rtx 5080 ti").starts_with("is no GPU that is known; the nearest are RTX 5080, "));
}

TEST(GpuModel, AGpuOfOnesOwn) {
  const GpuModel gpu = gpu_named("custom:165.5:1008:23GiB").value();
  EXPECT_EQ(gpu.name, "custom:165.5:1008:23GiB");
  EXPECT_DOUBLE_EQ(gpu.flops(Precision::bf16), 165.5e12);
  EXPECT_DOUBLE_EQ(gpu.flops(Precision::fp32), 165.5e12);
  EXPECT_DOUBLE_EQ(gpu.bytes(), 1008e9);
  EXPECT_EQ(gpu.memory, GiB(23));
  for (const char* name :
       {"custom:", "custom:1:2", "custom:1:2:3GiB:4", "custom:0:2:3GiB", "custom:-1:2:3GiB",
        "custom:nan:2:3GiB", "custom:inf:2:3GiB", "custom:1:2:3", "custom:1e10:2:3GiB", "custom:1x:2:3GiB"})
    EXPECT_FALSE(gpu_named(name).ok()) << name;
  EXPECT_EQ(found("custom:1:2"),
            "has 2 figures; expected custom:TFLOPS:GB/s:SIZE, as in custom:165:1008:23GiB");
}

TEST(GpuModel, FiguresArePlausible) {
  std::set<std::string_view> names;
  for (const GpuRow& row : gpu_rows()) {
    const GpuModel& gpu = row.model;
    EXPECT_TRUE(names.insert(gpu.name).second);
    EXPECT_GE(gpu.memory, GiB(8)) << gpu.name;
    EXPECT_GT(gpu.multiprocessors, 0) << gpu.name;
    EXPECT_GT(gpu.flops(Precision::fp16) / gpu.bytes(), 50) << gpu.name << " computes far more than it reads";
    for (const double rate : gpu.rates) EXPECT_GT(rate, 0) << gpu.name;
    EXPECT_GE(gpu.flops(Precision::tf32), gpu.flops(Precision::fp32)) << gpu.name;
    EXPECT_GE(gpu.flops(Precision::fp16), gpu.flops(Precision::bf16)) << gpu.name;
    EXPECT_LT(gpu.launch_seconds, 1e-4);
    ASSERT_TRUE(link_named(gpu.link).ok()) << gpu.name;
    EXPECT_LT(link_named(gpu.link).value().bandwidth, gpu.bytes()) << gpu.name;
  }
}

TEST(GpuModel, KernelsAreBoundByArithmeticOrByMemory) {
  GpuModel gpu{
      .name = "test", .memory = GiB(1), .bandwidth = 20, .launch_seconds = 0.5, .reached_bandwidth = 0.5};
  gpu.rates.fill(100);
  gpu.rates[static_cast<size_t>(Precision::fp64)] = 10;
  gpu.reached_flops = 1;
  EXPECT_DOUBLE_EQ(kernel_seconds(gpu, {}), 0.5);
  EXPECT_DOUBLE_EQ(kernel_seconds(gpu, {.flops = 200, .bytes = 10}), 2.5);
  EXPECT_DOUBLE_EQ(kernel_seconds(gpu, {.flops = 200, .bytes = 40}), 4.5);
  EXPECT_DOUBLE_EQ(kernel_seconds(gpu, {.flops = 200, .precision = Precision::fp64}), 20.5);
}

TEST(LinkModel, IsFoundByEverySpellingOfItsName) {
  for (const char* name : {"PCIe 5 x16", "pcie5x16", "PCIe 5.0 x16", "pcie-5-x16"})
    EXPECT_EQ(link_named(name).value().name, "PCIe 5 x16") << name;
  for (const LinkModel& link : link_models()) {
    EXPECT_EQ(link_named(link.name).value().name, link.name);
    EXPECT_GT(link.latency, 0);
  }
  EXPECT_EQ(link_named("floppy").status().message().find("is no link that is known; the nearest are "), 0u);
  EXPECT_DOUBLE_EQ(link_named("custom:48").value().bandwidth, 48e9);
  for (const char* name : {"custom:", "custom:0", "custom:48:1", "custom:x", "PCIe 50 x16"})
    EXPECT_FALSE(link_named(name).ok()) << name;
}

// ---------------------------------------------------------------- GPUs that the table lacks

// Driver reports of some GPUs of the table; the clocks are the boost clocks of their data sheets.
const GpuReport kA100{"NVIDIA A100-SXM4-80GB", 8, 0, 108, 1.41e9, 1.593e9, 5120, GiB(79)};
const GpuReport kH100{"NVIDIA H100 80GB HBM3", 9, 0, 132, 1.83e9, 2.619e9, 5120, GiB(79)};
const GpuReport k3090{"NVIDIA GeForce RTX 3090", 8, 6, 82, 1.695e9, 9.751e9, 384, GiB(23)};
const GpuReport k4090{"NVIDIA GeForce RTX 4090", 8, 9, 128, 2.52e9, 10.501e9, 384, GiB(23)};
const GpuReport k5090{"NVIDIA GeForce RTX 5090", 12, 0, 170, 2.407e9, 14.001e9, 512, GiB(31)};
const GpuReport kL40S{"NVIDIA L40S", 8, 9, 142, 2.52e9, 9.001e9, 384, GiB(44)};
const GpuReport kV100{"Tesla V100-SXM2-32GB", 7, 0, 80, 1.53e9, 0.877e9, 4096, GiB(31)};
const GpuReport kT4{"Tesla T4", 7, 5, 40, 1.59e9, 5.001e9, 256, GiB(14)};

TEST(DerivedGpu, IsTheTablesWhereItIsThatGpu) {
  for (const GpuReport& report : {kA100, kH100, k3090, k4090, k5090, kL40S, kV100, kT4}) {
    const GpuModel model = model_of(report);
    EXPECT_EQ(model.name, gpu_named(report.name).value().name);
    EXPECT_EQ(model.rates, gpu_named(report.name).value().rates);
  }
}

TEST(DerivedGpu, HasTheTablesRatesToATenth) {
  for (GpuReport report : {kA100, kH100, k3090, k4090, k5090, kL40S, kV100, kT4}) {
    const GpuModel known = gpu_named(report.name).value();
    report.memory = Bytes(report.memory.count() / 2);  // The memory differs from the table's.
    const GpuModel derived = model_of(report);
    EXPECT_EQ(derived.name, report.name);
    for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16})
      EXPECT_NEAR(derived.flops(precision) / derived.reached_flops,
                  known.flops(precision) / known.reached_flops,
                  0.1 * known.rates[static_cast<size_t>(precision)])
          << report.name << " " << name_of(precision);
    EXPECT_NEAR(derived.bandwidth, known.bandwidth, 0.1 * known.bandwidth) << report.name;
  }
}

TEST(DerivedGpu, APartOfAGpuHasItsMultiprocessorsRate) {
  GpuReport part = kH100;
  part.name += " MIG 1g.10gb";
  part.multiprocessors = 16;
  part.memory = GiB(9);
  const double whole = model_of(kH100).rates[static_cast<size_t>(Precision::bf16)];
  EXPECT_NEAR(model_of(part).rates[static_cast<size_t>(Precision::bf16)] / whole, 16.0 / 132, 0.01);
}

TEST(DerivedGpu, TakesUnknownFiguresForOrdinaryOnes) {
  const GpuModel model = model_of({.name = "Some GPU"});
  for (const double rate : model.rates) EXPECT_GT(rate, 0);
  EXPECT_GT(model.bytes(), 0);
}

}  // namespace
}  // namespace innkeeper::cost
