// Whether a program's plans save what they cost: its node's clock, and the bytes that arrive, against what
// they would have been on demand (on_demand.h). Where they cost more, planning is suspended, and tried again
// ever more rarely.
//
// What was lost by planning is summed up, and so is what was saved. A plan is given time: its first round
// begins with other blocks at the node than it thinks, and a program that varies loses in one round and saves
// in the next. It is suspended when it has lost more than part of a round since it stood best. It is tried
// again when one more such loss would still be a small part of all the time since the first plan.
//
// The model's times are not the node's: their ratio is measured while nothing is planned. Where no clock is
// known bytes alone count.
//
// Thread safety: none; the planner's owner guards it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/types.h"

namespace innkeeper::plan {

class Score {
 public:
  // All since the beginning.
  struct Count {
    int64_t operators = 0;
    double clock = 0;      // of the node; 0 where nobody knows
    Bytes arrived{0};      // at the node, of the program's blocks
    double on_demand = 0;  // seconds by the model,
    Bytes by_model{0};     // and what would have arrived
  };

  // After each operator.
  void count(const Count& now);
  // A schedule of a round of so many operators comes into force.
  void begin(int64_t operators);

  bool suspended() const { return suspended_; }

 private:
  static constexpr int64_t kEvery = 32;       // operators between two marks
  static constexpr size_t kMarks = 1024;      // that are kept
  static constexpr int64_t kFewest = 256;     // operators that count as a round
  static constexpr double kMostAtFirst = 1;   // rounds' time that may be lost since it stood best,
  static constexpr double kMostLost = 0.5;    // and after it was suspended once,
  static constexpr double kMostMore = 1.5;    // and rounds' bytes, since it stood best; bytes are no reason
  static constexpr double kSaves = 0.97;      // where it takes so much less time
  static constexpr int64_t kLooks = 4;        // in a round
  static constexpr double kShare = 0.015;     // of all time, that may be lost when it is tried again
  static constexpr double kMoreShare = 0.08;  // likewise of bytes
  static constexpr double kSettled = 1.05;    // times as long as on demand: what plans left is used up
  static constexpr int64_t kPause = 4;        // rounds at least, and twice as many each time
  static constexpr int kMostDoubled = 10;

  void look();
  void suspend();
  bool may_resume() const;

  Count now_;
  Count last_;                // at the last look
  std::vector<Count> marks_;  // a ring
  size_t next_mark_ = 0;
  int64_t length_ = kFewest;  // operators of a round
  double ratio_ = 1;          // of the clock to the model, on demand
  double round_time_ = 0;     // of a round on demand, lately,
  double round_bytes_ = 0;    // and what arrives in it

  double lost_ = 0, least_lost_ = 0;              // seconds; less than 0: saved
  double more_ = 0, least_more_ = 0;              // bytes
  double all_time_ = 0, all_bytes_ = 0;           // on demand, since the first plan
  double recent_time_ = 0, recent_expected_ = 0;  // of rounds with a plan; older ones count less

  int64_t suspended_at_ = 0;  // operators
  double began_lost_ = 0;     // as it was tried last
  int suspensions_ = 0;       // since plans have saved a round's time
  bool began_ = false;
  bool suspended_ = false;
  bool settled_ = false;  // and what plans have left where it is costs no more
};

}  // namespace innkeeper::plan
