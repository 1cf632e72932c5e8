#include "cli/grant/grant.h"

#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <utility>

#include "cli/command.h"
#include "cli/gpus/need_gpus.h"
#include "cli/gpus/survey.h"
#include "lease/from_snapshot.h"
#include "lease/here.h"
#include "telemetry/visible.h"

namespace innkeeper::cli {
namespace {

using telemetry::Snapshot;

// Returns the GPUs to which the environment restricts this process; none: no restriction.
std::optional<std::vector<std::string>> given_gpus(const Snapshot& snapshot) {
  telemetry::Visible visible = telemetry::visible_from_environment(snapshot);
  if (!visible.restricted) return std::nullopt;
  if (visible.uuids.empty())
    fail(kNoGpu, names_of_lists(telemetry::own_variables()) + " gives this process no GPU" +
                     (visible.note.empty() ? "" : ": " + visible.note));
  return std::move(visible.uuids);
}

}  // namespace

lease::Arbiter open_arbiter() {
  Result<lease::Arbiter> arbiter = lease::Arbiter::open();
  if (!arbiter.ok()) fail(kDirectory, arbiter.status().message());
  for (const std::string& line : other_directories(arbiter.value().directory()))
    note("leases are in " + arbiter.value().directory().path() + "; " + line);
  for (const std::string& line : lease::warnings_of(arbiter.value().directory())) note(line);
  return std::move(arbiter).value();
}

lease::Lease grant(lease::Arbiter& arbiter, lease::Request request) {
  const telemetry::Wanted wanted = lease::wanted_for(request);
  std::optional<Snapshot> first = telemetry::snapshot(wanted);
  need_gpus(*first);
  request.allowed = given_gpus(*first);
  request.allowed_by = names_of_lists(telemetry::own_variables());
  if (const char* outer = std::getenv(lease::kLeaseVariable); outer != nullptr && *outer != '\0')
    request.inside = outer;
  bool told = !request.wait || isatty(STDERR_FILENO) == 0;
  const auto look = [&]() -> Result<lease::Machine> {
    if (first) return lease::from_snapshot(*std::exchange(first, std::nullopt));
    if (!std::exchange(told, true)) note("waiting in line for " + lease::describe(request));
    return lease::from_snapshot(telemetry::snapshot(wanted));
  };
  Result<lease::Lease> granted = arbiter.acquire(request, look);
  if (!granted.ok()) fail(granted.status());
  return std::move(granted).value();
}

}  // namespace innkeeper::cli
