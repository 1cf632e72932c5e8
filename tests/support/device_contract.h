// The promises of device_api.h, sentence by sentence, as checks that any device can be put through. A test of
// a device makes a RigKind for it (device_rig.h) and runs its contract_cases(). Checks of features that a
// device lacks are left out. tests/unit/support/device_contract_broken_test.cc shows for each check a device
// that fails it.
//
// Bytes are the evidence: a wait that a device forgets shows where its work is late (the simulator's default,
// the fake CUDA runtime); elsewhere the checks are of arithmetic and accounts.
#pragma once

#include <string>
#include <vector>

#include "support/contract/events.h"
#include "support/contract/failures.h"
#include "support/contract/memory.h"
#include "support/contract/queues.h"
#include "support/contract/threads.h"
#include "support/contract/users.h"
#include "support/device_rig.h"

namespace innkeeper::test {

struct ContractCheck {
  const char* name;
  void (*run)(Trial&);
  unsigned needs = 0;  // Offers
};

inline constexpr ContractCheck kDeviceContract[] = {
    {"ChargesBeforeItTakes", contract::charges_before_it_takes},
    {"TakesNothingThatIsRefused", contract::takes_nothing_that_is_refused},
    {"GivesBackWhatItCharged", contract::gives_back_what_it_charged},
    {"WhatItHasNotIsNotCharged", contract::what_it_has_not_is_not_charged, kFull},
    {"AskedForNothingItTakesNothing", contract::asked_for_nothing_it_takes_nothing},
    {"MayBeUsedWhileItCharges", contract::may_be_used_while_it_charges},
    {"PiecesAreAlignedAndApart", contract::pieces_are_aligned_and_apart},
    {"LiveIsARecount", contract::live_is_a_recount},
    {"TrimmingLeavesWhatIsAlive", contract::trimming_leaves_what_is_alive},
    {"BytesComeBack", contract::bytes_come_back},
    {"NoBytesAreCopiedWithoutHarm", contract::no_bytes_are_copied_without_harm},
    {"CopiesOutWaitForCopiesIn", contract::copies_out_wait_for_copies_in},
    {"ACopyLandsOnTopOfTheOneBefore", contract::a_copy_lands_on_top_of_the_one_before, kKernels},
    {"PeersCopyInOrder", contract::peers_copy_in_order, kPeer},
    {"StrangersAreNoPeers", contract::strangers_are_no_peers},
    {"CopiesOutWaitForKernels", contract::copies_out_wait_for_kernels, kKernels},
    {"KernelsWaitForCopiesIn", contract::kernels_wait_for_copies_in, kKernels},
    {"KernelsWaitForCopiesOut", contract::kernels_wait_for_copies_out, kKernels},
    {"MemoryComesAfterTheKernelsThatUsedIt", contract::memory_comes_after_the_kernels_that_used_it, kKernels},
    {"ACopyIsGivenMemoryAfterItsUsers", contract::a_copy_is_given_memory_after_its_users},
    {"AKernelIsGivenMemoryAfterItsUsers", contract::a_kernel_is_given_memory_after_its_users, kKernels},
    {"OnlyWhoIsGivenMemoryWaits", contract::only_who_is_given_memory_waits, kKernels | kLate},
    {"ACopyWaitsForNoKernelLaunchedSince", contract::a_copy_waits_for_no_kernel_launched_since,
     kKernels | kLate},
    {"ARecordCoversWhatWasPutBefore", contract::a_record_covers_what_was_put_before},
    {"SynchronizeCoversAllQueues", contract::synchronize_covers_all_queues},
    {"WhatWasWaitedForIsDone", contract::what_was_waited_for_is_done},
    {"DoneIsSaidWhenItIsTrueAndInTime", contract::done_is_said_when_it_is_true_and_in_time, kPolls},
    {"EventsMayOutliveTheirDevice", contract::events_may_outlive_their_device},
    {"ANullEventIsLongPast", contract::a_null_event_is_long_past},
    {"OthersEventsAreWaitedFor", contract::others_events_are_waited_for},
    {"OthersFailuresAreTold", contract::others_failures_are_told},
    {"ACopyThatFailsSaysSoAndIsOver", contract::a_copy_that_fails_says_so_and_is_over, kFailures},
    {"OnceLostItRefusesEverything", contract::once_lost_it_refuses_everything, kLoss},
    {"ThreadsShareIt", contract::threads_share_it},
};

// Puts a device through a check. Returns the violations found, or an empty text.
inline std::string verdict(const RigKind& kind, const ContractCheck& check, int steps,
                           const Rig::Wrap& around = nullptr) {
  Trial trial(kind, steps);
  if (around) trial.rig().wrap(around);
  check.run(trial);
  if (trial.rig().has_device()) {
    const Status status = trial.device().synchronize();
    trial.expect(status.ok() || trial.device().is_lost(), "the device is well: " + status.message());
    trial.expect(trial.device().live() == Bytes(0), "nothing is left");
  }
  trial.expect(trial.books().charged() == Bytes(0), "nothing is left in the books");
  return trial.broken();
}

struct ContractCase {
  RigKind kind;
  ContractCheck check;
};

// The checks that apply to each device.
inline std::vector<ContractCase> contract_cases(const std::vector<RigKind>& kinds) {
  std::vector<ContractCase> cases;
  for (const RigKind& kind : kinds) {
    for (const ContractCheck& check : kDeviceContract)
      if ((check.needs & ~kind.offers) == 0) cases.push_back({kind, check});
  }
  return cases;
}

inline std::string name_of(const ContractCase& tried) { return tried.kind.name + "_" + tried.check.name; }

}  // namespace innkeeper::test
