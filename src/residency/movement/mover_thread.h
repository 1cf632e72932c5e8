// The engine's own thread: it takes moves on while the program calls no operator.
//
// It wakes when MoveSignal is raised, as by a disk that has finished work, and polls the links of devices
// that report no progress. Where no thread can be started, moves go on with the program's operators.
//
// Thread safety: start() and stop() are called by one thread at a time; the rest as annotated.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include "residency/block/block_table.h"

namespace innkeeper {

class MoverThread {
 public:
  // The thread's work. Must outlive it.
  class Work {
   public:
    virtual ~Work() = default;
    // Takes moves on; called without the lock.
    virtual void advance_moves() = 0;
    // How many calls of advance_moves() look at every watched move once.
    virtual size_t rounds() const IK_REQUIRES(engine_mutex) = 0;
  };

  MoverThread(BlockTable& table, Work& work) : table_(table), work_(work) {}

  // Does nothing while the thread runs, or where no node needs it.
  void start() IK_EXCLUDES(engine_mutex);
  // Waits for the work under way and ends the thread. start() may be called again.
  void stop() IK_EXCLUDES(engine_mutex);

  // While one lives the thread starts no work. The constructor waits for work that is under way, and then
  // releases and retakes the lock.
  class Rest {
   public:
    explicit Rest(MoverThread& thread) IK_REQUIRES(engine_mutex);
    ~Rest() { --thread_.rests_; }
    Rest(const Rest&) = delete;
    Rest& operator=(const Rest&) = delete;

   private:
    MoverThread& thread_;
  };

 private:
  // How often a link that has copies waiting is looked at. One part of a block is copied in some
  // milliseconds.
  static constexpr std::chrono::microseconds kLinkPoll = std::chrono::microseconds(500);

  void run() IK_EXCLUDES(engine_mutex);
  bool polls_links() const IK_REQUIRES(engine_mutex);
  bool may_help() const;

  BlockTable& table_;
  Work& work_;
  std::thread thread_;
  bool wanted_ IK_GUARDED_BY(engine_mutex) = false;
  bool works_ IK_GUARDED_BY(engine_mutex) = false;
  int rests_ = 0;  // Guarded by engine_mutex; how many Rests live.
};

}  // namespace innkeeper
