#include "cli/gpus/need_gpus.h"

#include "cli/command.h"

namespace innkeeper::cli {

using telemetry::Trouble;

void need_gpus(const telemetry::Snapshot& snapshot) {
  if (!snapshot.gpus.empty()) return;
  if (snapshot.trouble == Trouble::wrong_setting) fail(kSetting, snapshot.driver.text());
  if (snapshot.trouble == Trouble::none || snapshot.trouble == Trouble::no_library) {
    std::string why = snapshot.driver.text().empty() ? "the driver sees none" : snapshot.driver.text();
    if (!snapshot.lost.empty())
      why = std::to_string(snapshot.lost.size()) + " cannot be used: " + snapshot.lost.front().why;
    fail(kNoGpu, "no GPU: " + why);
  }
  fail(kDriver, snapshot.driver.text());
}

}  // namespace innkeeper::cli
