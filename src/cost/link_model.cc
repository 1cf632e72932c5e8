#include "cost/link_model.h"

#include <vector>

#include "cost/names.h"

namespace innkeeper::cost {
namespace {

// The driver copies pageable memory through a page-locked buffer of its own, which a CPU thread fills or
// empties. The rate is that thread's, not the link's. bandwidthTest of NVIDIA's CUDA samples with
// --memory=pageable on an A100-SXM4-80GB (PCIe 4 x16) measured 10.0 GB/s in and 10.8 GB/s out, and 25.8 GB/s
// with pinned memory.
constexpr double kPageable = 10e9;

std::string key_of(std::string_view name) {
  std::string key;
  for (const std::string& word : words_of(name)) key += word;
  return key;
}

}  // namespace

std::span<const LinkModel> link_models() {
  static const std::vector<LinkModel> models = {
      // PCI Express: 8, 16, and 32 GT/s with 128b/130b make 15.8, 31.5, and 63 GB/s for 16 lanes; packet
      // headers leave some 12.3, 25, and 55 for pinned copies (55 as measured on an H200).
      {"PCIe 3 x16", 12.3e9, 10e-6, kPageable},
      {"PCIe 4 x8", 12.5e9, 10e-6, kPageable},
      {"PCIe 4 x16", 25e9, 10e-6, kPageable},
      {"PCIe 5 x8", 27e9, 10e-6, kPageable},
      {"PCIe 5 x16", 55e9, 10e-6, kPageable},
      // NVIDIA data sheets of V100, A100, H100, and B200: 300, 600, 900, and 1800 GB/s in both directions
      // together, so half of each in one.
      {"NVLink 2", 150e9, 5e-6},
      {"NVLink 3", 300e9, 5e-6},
      {"NVLink 4", 450e9, 5e-6},
      {"NVLink 5", 900e9, 5e-6},
      // NVIDIA GH200 data sheet: 900 GB/s in both directions together; of the 450 in one, copies to the GPU
      // reach some 375 (G. Schieffer and others, Harnessing Integrated CPU-GPU System Memory for HPC, 2024).
      {"NVLink-C2C", 375e9, 5e-6},
      // The one memory of a GB10: a copy within it reads and writes each byte at 273 GB/s.
      {"LPDDR5X", 136e9, 5e-6},
      // Samsung 990 PRO data sheet (PCIe 4.0 x4): sequential read up to 7450 MB/s. Latency of the first bytes
      // of a read of a few MB. Sustained writes are slower once a drive's cache is full.
      {"NVMe 4", 7.4e9, 100e-6},
      // Samsung PM1743 data sheet (PCIe 5.0 x4): sequential read up to 14 GB/s.
      {"NVMe 5", 14e9, 100e-6},
  };
  return models;
}

Result<LinkModel> link_named(std::string_view name) {
  const auto refuse = [](const std::string& why) { return Status(Code::invalid_argument, why); };
  if (const auto parts = custom_parts(name)) {
    const auto giga = parts->size() == 1 ? positive_number(parts->front()) : std::nullopt;
    if (!giga) return refuse("has no rate above 0; expected custom:GB/s, as in custom:48");
    return LinkModel{std::string(name), *giga * 1e9, 10e-6, kPageable};
  }
  std::vector<KnownName> known;
  for (const LinkModel& link : link_models()) {
    if (key_of(link.name) == key_of(name)) return link;
    known.push_back({key_of(link.name), link.name});
  }
  return refuse(not_known("link", key_of(name), std::move(known)));
}

LinkModel default_host_link() { return link_named("PCIe 4 x16").value(); }
LinkModel default_peer_link() { return link_named("NVLink 3").value(); }

}  // namespace innkeeper::cost
