#include "runtime/machine.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "runtime/memory.h"
#include "runtime/report.h"
#include "runtime/settings.h"
#include "runtime/stream.h"

namespace fake_cuda {
namespace {

std::vector<Gpu> all_gpus() {
  std::vector<Gpu> all;
  for (int i = 0; i < settings().gpus; ++i) {
    Gpu gpu;
    gpu.total = settings().memory;
    gpu.others = settings().others;
    gpu.name = settings().mig ? "Fake CUDA GPU MIG 1g.1gb" : "Fake CUDA GPU";
    gpu.uuid_bytes[0] = static_cast<unsigned char>(0xA0 + i);
    char text[64];
    snprintf(text, sizeof text, "%s-%02x000000-0000-0000-0000-000000000000", settings().mig ? "MIG" : "GPU",
             gpu.uuid_bytes[0]);
    gpu.uuid = text;
    all.push_back(std::move(gpu));
  }
  return all;
}

// As the driver reads it: up to the first name that is none; a GPU named twice leaves nothing.
std::vector<Gpu> visible_gpus() {
  std::vector<Gpu> all = all_gpus();
  std::vector<Gpu> seen;
  std::vector<bool> taken(all.size(), false);
  if (!settings().has_visible) seen = all;
  std::istringstream list(settings().has_visible ? settings().visible : "");
  for (std::string name; std::getline(list, name, ',');) {
    size_t at = all.size();
    char* end = nullptr;
    const long index = strtol(name.c_str(), &end, 10);
    if (!name.empty() && *end == 0) {
      if (index >= 0) at = static_cast<size_t>(index);
    } else if (name.size() > 4) {
      for (size_t i = 0; i < all.size(); ++i) {
        if (all[i].uuid.compare(0, name.size(), name) == 0) at = i;
      }
    }
    if (at >= all.size()) break;
    if (taken[at]) return {};
    taken[at] = true;
    seen.push_back(all[at]);
  }
  for (size_t i = 0; i < seen.size(); ++i) {
    seen[i].index = static_cast<int>(i);
    seen[i].peers.assign(seen.size(), false);
    seen[i].peers[i] = true;
  }
  return seen;
}

}  // namespace

std::recursive_mutex& machine_mutex() {
  static auto& it = *new std::recursive_mutex;  // leaked: deleters call at the very end
  return it;
}

std::vector<Gpu>& gpus() {
  static auto& it = *new std::vector<Gpu>(visible_gpus());
  return it;
}

bool is_gpu(int index) { return index >= 0 && static_cast<size_t>(index) < gpus().size(); }
Gpu& gpu(int index) { return gpus()[static_cast<size_t>(index)]; }

int& current_gpu() {
  thread_local int it = 0;
  return it;
}

void break_gpu(int index, Error error) {
  for (const Gpu& other : gpus()) {
    if (other.index != index && other.broken == kSuccess) run_gpu(other.index);
  }
  gpu(index).broken = error;
  drop_work(index);
  poison_gpu(index);
}

void repair_gpu(int index) { gpu(index).broken = kSuccess; }

}  // namespace fake_cuda
