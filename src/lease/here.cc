#include "lease/here.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "lease/from_snapshot.h"
#include "telemetry/cuda_view.h"
#include "telemetry/visible.h"

namespace innkeeper::lease {
namespace {

using telemetry::Snapshot;

Status no_cards(const Snapshot& snapshot) {
  std::string why = snapshot.driver.text().empty() ? "the driver sees none" : snapshot.driver.text();
  if (!snapshot.lost.empty())
    why = std::to_string(snapshot.lost.size()) + " cannot be used: " + snapshot.lost.front().why;
  return Status(Code::unavailable, "no GPU can be seen: " + why);
}

}  // namespace

Result<std::vector<std::string>> given_here() {
  const char* variable = std::getenv("CUDA_VISIBLE_DEVICES");
  return given_here(variable == nullptr ? std::nullopt : std::optional<std::string>(variable),
                    telemetry::snapshot(telemetry::Wanted::nothing));
}

Result<std::vector<std::string>> given_here(std::optional<std::string> visible_devices,
                                            const Snapshot& cards) {
  if (cards.cards.empty()) return no_cards(cards);
  if (std::optional<std::vector<std::string>> ordinals = telemetry::cuda_view(cards)) {
    std::erase(*ordinals, "");
    if (ordinals->empty())
      return Status(Code::unavailable, "CUDA has been started in this process and sees no GPU");
    return *std::move(ordinals);
  }
  telemetry::Visible visible = telemetry::visible_with(visible_devices, cards);
  if (visible.uuids.empty())
    return Status(Code::unavailable, "CUDA_VISIBLE_DEVICES gives this process no GPU" +
                                         (visible.note.empty() ? "" : ": " + visible.note));
  return std::move(visible.uuids);
}

Result<Lease> acquire_here(const Request& request, const Arbiter::Cancelled& cancelled) {
  IK_RETURN_IF_ERROR(check(request));
  Result<Arbiter> arbiter = Arbiter::open();
  if (!arbiter.ok()) return arbiter.status();
  const auto look = [&request]() -> Result<Machine> {
    const Snapshot snapshot = telemetry::snapshot(wanted_for(request));
    if (snapshot.cards.empty()) return no_cards(snapshot);
    return from_snapshot(snapshot);
  };
  return arbiter.value().acquire(request, look, cancelled);
}

Status resize_here(Lease& lease, Bytes each) {
  Result<Arbiter> arbiter = Arbiter::open();
  if (!arbiter.ok()) return arbiter.status();
  Request request;
  request.memory = each;
  return arbiter.value().resize(lease, each, from_snapshot(telemetry::snapshot(wanted_for(request))));
}

}  // namespace innkeeper::lease
