#include "lease/here.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/size.h"
#include "lease/container.h"
#include "lease/from_snapshot.h"
#include "lease/logout.h"
#include "lease/shown.h"
#include "telemetry/cuda_view.h"

namespace innkeeper::lease {
namespace {

using telemetry::Snapshot;

Status no_gpus(const Snapshot& snapshot) {
  std::string why = snapshot.driver.text().empty() ? "the driver sees none" : snapshot.driver.text();
  if (!snapshot.lost.empty())
    why = std::to_string(snapshot.lost.size()) + " cannot be used: " + snapshot.lost.front().why;
  return Status(Code::unavailable, "no GPU can be seen: " + why);
}

}  // namespace

int64_t allocator_bytes(int64_t memory) {
  constexpr int64_t kContext = int64_t{512} << 20;
  return std::max(memory - kContext, memory / 2);
}

std::string nodes_for(Bytes memory, int sharers, const std::optional<std::string>& said) {
  constexpr std::string_view kAuto = "auto:";
  const Bytes own(allocator_bytes(memory.count() / sharers));
  if (said && !said->empty()) {
    if (!said->starts_with(kAuto)) return *said;
    const Result<Bytes> size = parse_size(std::string_view(*said).substr(kAuto.size()));
    if (!size.ok() || size.value() <= own) return *said;
  }
  return std::string(kAuto) + std::to_string(own.count()) + "B";
}

Result<std::vector<std::string>> given_here(const std::string& vendor) {
  if (!vendor.empty() && vendor != "nvidia" && vendor != "amd")
    return Status(Code::invalid_argument,
                  "vendor " + printable(vendor) + ": expected nvidia or amd, or nothing for both");
  const Snapshot gpus = telemetry::snapshot(telemetry::Wanted::nothing);
  Result<std::vector<std::string>> given = given_by(variables_before(), gpus);
  if (!given.ok() || vendor.empty()) return given;
  telemetry::Chosen vendors = telemetry::by_vendor(given.value(), gpus);
  std::vector<std::string>& wanted = vendor == "amd" ? vendors.amd : vendors.nvidia;
  if (wanted.empty())
    return Status(Code::unavailable, "of the " + std::to_string(given.value().size()) +
                                         " GPUs that this process may use none is " +
                                         (vendor == "amd" ? "AMD's" : "NVIDIA's"));
  return std::move(wanted);
}

Status restrict_here(Request& request, const std::string& vendor) {
  Result<std::vector<std::string>> given = given_here(vendor);
  if (!given.ok()) return given.status();
  if (request.allowed) {
    const std::vector<std::string>& named = *request.allowed;
    std::erase_if(given.value(), [&](const std::string& uuid) {
      return std::find(named.begin(), named.end(), uuid) == named.end();
    });
  }
  request.allowed = std::move(given).value();
  request.allowed_by = names_of_lists(variables_before());
  if (const char* outer = std::getenv(kLeaseVariable)) request.inside = outer;
  return Status::okay();
}

Result<std::vector<std::string>> given_by(const telemetry::Variables& variables, const Snapshot& gpus) {
  if (gpus.gpus.empty()) return no_gpus(gpus);
  if (std::optional<std::vector<std::string>> ordinals = telemetry::cuda_view(gpus)) {
    std::erase(*ordinals, "");
    if (ordinals->empty())
      return Status(Code::unavailable, "CUDA has been started in this process and sees no GPU");
    return *std::move(ordinals);
  }
  telemetry::Visible visible = telemetry::visible_with(variables, gpus);
  if (visible.uuids.empty())
    return Status(Code::unavailable, names_of_lists(variables) + " gives this process no GPU" +
                                         (visible.note.empty() ? "" : ": " + visible.note));
  return std::move(visible.uuids);
}

Result<Lease> acquire_here(const Request& request, const Arbiter::Cancelled& cancelled) {
  IK_RETURN_IF_ERROR(check(request));
  Result<Arbiter> arbiter = Arbiter::open();
  if (!arbiter.ok()) return arbiter.status();
  const auto look = [&request, first = true]() mutable -> Result<Machine> {
    const Snapshot snapshot = telemetry::snapshot(wanted_for(request));
    if (std::exchange(first, false) && snapshot.gpus.empty()) return no_gpus(snapshot);
    return from_snapshot(snapshot);
  };
  return arbiter.value().acquire(request, look, cancelled);
}

Result<Lease> adopt_here(std::optional<int> descriptor) {
  if (!descriptor) {
    const char* text = std::getenv(kDescriptorVariable);
    const std::string_view digits = text == nullptr ? "" : text;
    int number = 0;
    const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc() || rest != digits.data() + digits.size() || number < 0)
      return Status(Code::invalid_argument, std::string("this process was started without a lease: ") +
                                                kDescriptorVariable + " is not set");
    descriptor = number;
  }
  Result<Arbiter> arbiter = Arbiter::open();
  if (!arbiter.ok()) return arbiter.status();
  return arbiter.value().adopt(*descriptor);
}

Status take_over_here(Lease& lease) {
  Result<Arbiter> arbiter = Arbiter::open();
  return arbiter.ok() ? arbiter.value().take_over(lease) : arbiter.status();
}

std::vector<std::string> warnings_of(const Directory& directory) {
  std::vector<std::string> lines;
  for (std::string line : {unseen_outside(directory), removed_at_logout(directory)})
    if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

Status restore_here(Lease& lease) {
  // The caller has other work to wait for, and tries again.
  constexpr std::chrono::milliseconds kLockLimit{50};
  if (!lease.lost()) return Status(Code::unavailable, "this lease was not lost");
  Result<Arbiter> arbiter = Arbiter::open();
  if (!arbiter.ok()) return arbiter.status();
  arbiter.value().set_lock_limit(kLockLimit);
  return arbiter.value().restore(lease, from_snapshot(telemetry::snapshot(telemetry::Wanted::memory)));
}

Status resize_here(Lease& lease, Bytes each) {
  Result<Arbiter> arbiter = Arbiter::open();
  if (!arbiter.ok()) return arbiter.status();
  Request request;
  request.memory = each;
  return arbiter.value().resize(lease, each, from_snapshot(telemetry::snapshot(wanted_for(request))));
}

}  // namespace innkeeper::lease
