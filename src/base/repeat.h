// Shows that a place in the line still waits, by touching its file each second from a thread of its own:
// where a look at the cards takes longer than a place is believed without. When the process is stopped so is
// this.
#pragma once

namespace innkeeper::lease {

class Ticker {
 public:
  // `fd` stays open for as long as this lives. Without threads to be had it does nothing.
  explicit Ticker(int fd);
  // In a child of fork(), where there is no such thread, it does nothing.
  ~Ticker();
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

 private:
  struct State;
  State* const state_;
};

}  // namespace innkeeper::lease
