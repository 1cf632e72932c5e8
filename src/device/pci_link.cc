#include "device/pci_link.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace innkeeper {
namespace {

// Share of the bandwidth without packet headers: some 25 of 31.5 GB/s on PCIe 4, 55 of 63 on PCIe 5
// (cost/link_model.cc).
constexpr double kPayload = 0.85;

std::optional<double> number_in(const std::filesystem::path& file) {
  std::ifstream text(file);
  double number = 0;
  if (!(text >> number) || !(number > 0)) return std::nullopt;  // The file may contain "Unknown".
  return number;
}

// Up to 5 GT/s eight bits take ten on the wire; from 8 GT/s on 128 take 130.
double bytes_of(double transfers) { return transfers / 8 * (transfers < 8e9 ? 8.0 / 10 : 128.0 / 130); }

}  // namespace

std::optional<double> pci_link_bandwidth(const std::string& pci_address, const std::string& sys) {
  std::error_code failed;
  const std::filesystem::path device =
      std::filesystem::canonical(sys + "/bus/pci/devices/" + pci_address, failed);
  if (failed) return std::nullopt;
  std::optional<double> gigatransfers = number_in(device / "max_link_speed");
  const std::optional<double> lanes = number_in(device / "current_link_width");
  if (!gigatransfers || !lanes) return std::nullopt;
  if (const std::optional<double> port = number_in(device.parent_path() / "max_link_speed"))
    gigatransfers = std::min(*gigatransfers, *port);
  return *lanes * bytes_of(*gigatransfers * 1e9) * kPayload;
}

}  // namespace innkeeper
