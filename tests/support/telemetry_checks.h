// Checks that the telemetry tests of all vendors' libraries share.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "support/child.h"
#include "support/fake_gpus.h"
#include "support/soon.h"
#include "telemetry/snapshot.h"

namespace innkeeper::telemetry {

using test::FakeAmdGpus;
using test::FakeGpus;

// The GPUs' UUIDs in the order of the snapshot, separated by spaces.
inline std::string uuids(const Snapshot& now) {
  std::string text;
  for (const Gpu& gpu : now.gpus) text += (text.empty() ? "" : " ") + gpu.uuid;
  return text;
}

// A library that does not start.
struct StartFailure {
  const char* script;  // Lines of the fake library's script that make it fail.
  Trouble trouble;
  const char* text;  // A part of the snapshot's text.
};

// Checks that each failure gives one line, and that no trace of it remains after its cure. `machine`: the
// script of a machine with two GPUs.
template <class Gpus>
void expect_said_and_cured(std::span<const StartFailure> failures, const char* machine) {
  for (const auto& [script, trouble, text] : failures) {
    Gpus gpus(std::string(script) + machine);
    const Snapshot now = snapshot(Wanted::all);
    EXPECT_EQ(now.trouble, trouble) << script;
    EXPECT_FALSE(now.driver);
    EXPECT_NE(now.driver.text().find(text), std::string::npos) << now.driver.text();
    EXPECT_EQ(now.driver.text().find('\n'), std::string::npos);
    EXPECT_TRUE(now.gpus.empty());
    shut_down();
    gpus.change(machine);
    EXPECT_EQ(snapshot(Wanted::all).gpus.size(), 2u) << script;
  }
}

// Shuts a loaded library down by its own function, like another user of it in the same process.
inline void shut_down_from_outside(const std::filesystem::path& library, const char* function) {
  void* const loaded = dlopen(library.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  ASSERT_NE(loaded, nullptr);
  EXPECT_EQ(reinterpret_cast<int (*)()>(dlsym(loaded, function))(), 0);
  dlclose(loaded);
}

// Checks that no lock is held across a call of `function`: threads enter it concurrently, and so does a child
// forked meanwhile. `machine`: the script of a machine with two GPUs.
inline void expect_no_lock_across(test::FakeLibrary& gpus, const char* machine, const std::string& function) {
  constexpr int kThreads = 4;
  snapshot(Wanted::nothing);
  const int before = gpus.calls(function);
  gpus.change("hold " + function + "\n" + machine);
  std::atomic<int> through = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      snapshot(Wanted::nothing);
      ++through;
    });
  }
  EXPECT_TRUE(test::soon([&] { return gpus.calls(function) == before + kThreads; }));
  EXPECT_EQ(through, 0);
  const pid_t child = test::in_child([] { return snapshot(Wanted::nothing).gpus.size() == 2 ? 0 : 1; });
  EXPECT_TRUE(test::soon([&] { return gpus.calls(function, child) == 1; }));
  gpus.change(machine);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(test::wait_for(child), 0);
}

}  // namespace innkeeper::telemetry
