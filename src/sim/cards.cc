// Figures from the makers' data sheets: peaks, which no program reaches. Large bf16 matrix products get some
// 60 to 80 % of `flops`, streaming kernels some 80 to 93 % of `bandwidth`; links are given at what large
// pinned copies reach, where that is known to be less than the nominal rate. So simulated kernel times are
// lower bounds, and ratios between cards are better than the times themselves. Rates are decimal (1e9), sizes
// of memory binary as the driver reports them, rounded down to whole GiB.
#include "sim/cards.h"

#include <array>

namespace innkeeper::sim {
namespace {

// The driver copies pageable memory through a page-locked buffer of its own, and a thread of the CPU fills or
// empties that: its rate, not the link's. bandwidthTest of NVIDIA's CUDA samples with --memory=pageable on an
// A100-SXM4-80GB (PCIe 4 x16) measured 10.0 GB/s in and 10.8 GB/s out, and 25.8 GB/s with pinned memory.
constexpr double kPageable = 10e9;

// From a launch to the next of an empty kernel in one stream: 2 to 5 microseconds on all of these under
// Linux.
constexpr double kLaunchSeconds = 4e-6;

// flops: dense bf16 on tensor cores with fp32 accumulation. Data sheets that print the rate with sparsity
// print twice as much.
constexpr std::array kCards = {
    // NVIDIA H200 Tensor Core GPU data sheet (SXM): 141 GB HBM3e, 4.8 TB/s, bf16 1979 TFLOPS with sparsity.
    Card{"H200", GiB(139), 989e12, 4.8e12, kLaunchSeconds},
    // NVIDIA H100 Tensor Core GPU data sheet (SXM5): 80 GB HBM3, 3.35 TB/s, bf16 1979 TFLOPS with sparsity.
    Card{"H100", GiB(79), 989e12, 3.35e12, kLaunchSeconds},
    // NVIDIA A100 80GB data sheet (SXM4): 80 GB HBM2e, 2039 GB/s, bf16 312 TFLOPS dense.
    Card{"A100", GiB(79), 312e12, 2.039e12, kLaunchSeconds},
    // NVIDIA Ada GPU architecture white paper, appendix A (GeForce RTX 4090): 24 GB GDDR6X, 1008 GB/s,
    // bf16 with fp32 accumulation 165.2 TFLOPS dense.
    Card{"RTX 4090", GiB(23), 165.2e12, 1.008e12, kLaunchSeconds},
    // NVIDIA L4 Tensor Core GPU data sheet: 24 GB GDDR6, 300 GB/s, bf16 242 TFLOPS with sparsity.
    Card{"L4", GiB(22), 121e12, 300e9, kLaunchSeconds},
};

constexpr std::array kLinks = {
    // PCI Express 4.0: 16 GT/s and 128b/130b make 31.5 GB/s for 16 lanes; packet headers leave some 25 for
    // pinned copies.
    Link{"PCIe 4 x16", 25e9, 10e-6, kPageable},
    // PCI Express 5.0: 32 GT/s make 63 GB/s; pinned copies reach some 55.
    Link{"PCIe 5 x16", 55e9, 10e-6, kPageable},
    // NVIDIA A100 data sheet: NVLink 3, 600 GB/s in both directions together, so 300 in one.
    Link{"NVLink 3", 300e9, 5e-6},
    // NVIDIA H100 and H200 data sheets: NVLink 4, 900 GB/s in both directions together, so 450 in one.
    Link{"NVLink 4", 450e9, 5e-6},
    // Samsung 990 PRO data sheet (PCIe 4.0 x4): sequential read up to 7450 MB/s. Latency of the first bytes
    // of a read of a few MB. Sustained writes are slower once a drive's cache is full.
    Link{"NVMe 4", 7.4e9, 100e-6},
    // Samsung PM1743 data sheet (PCIe 5.0 x4): sequential read up to 14 GB/s.
    Link{"NVMe 5", 14e9, 100e-6},
};

template <class Row, size_t kCount>
std::optional<Row> find(const std::array<Row, kCount>& rows, std::string_view name) {
  for (const Row& row : rows) {
    if (row.name == name) return row;
  }
  return std::nullopt;
}

}  // namespace

std::span<const Card> cards() { return kCards; }
std::span<const Link> links() { return kLinks; }
std::optional<Card> find_card(std::string_view name) { return find(kCards, name); }
std::optional<Link> find_link(std::string_view name) { return find(kLinks, name); }

// The machine that is simulated unless somebody says otherwise: A100s on PCIe 4 with NVLink between them.
Card default_card() { return *find_card("A100"); }
Link default_host_link() { return *find_link("PCIe 4 x16"); }
Link default_peer_link() { return *find_link("NVLink 3"); }

}  // namespace innkeeper::sim
