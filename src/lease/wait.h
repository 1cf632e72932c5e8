// How a request that does not fit now waits until it may: by the place that it has in the line.
//
// A machine may have a thousand who wait. The first kFront of them watch the folder, and look for room when a
// lease ends. Each of the others sleeps, and now and then looks at one place only, the one kFront before its
// own: once that has left the line it is one of the first itself. So hundreds cost no more than a few, and
// hold no inotify instance, of which a user has 128.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "lease/directory.h"
#include "lease/places.h"
#include "lease/request.h"
#include "lease/store.h"
#include "lease/watch.h"

namespace innkeeper::lease {

// One thread's, for one request.
class Wait {
 public:
  // `cancelled`: asked now and then; true gives up. May be null.
  Wait(const Directory& directory, const Request& request, const std::function<bool()>& cancelled);

  // Until another attempt may help. False: the caller has given up, or its time is over. Requires: a place.
  // Without one (the line is full): as one of the first.
  bool until_next(const Turn& turn, const LeaseFile* place);

  std::chrono::milliseconds so_far() const;
  // "waited 1000 ms", "given up after 20 ms": after a false.
  const std::string& gave_up() const { return gave_up_; }

 private:
  using milliseconds = std::chrono::milliseconds;
  bool sleep(milliseconds part, const std::function<void(milliseconds)>& pause);
  bool in_front(const Turn& turn);
  bool at_the_back(const Turn& turn, const LeaseFile& place);

  const Directory& directory_;
  const Request& request_;
  const std::function<bool()>& cancelled_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::optional<Watch> watch_;  // in front alone: to close one takes the kernel some 15 ms
  bool event_ = false;
  std::string gave_up_;
};

}  // namespace innkeeper::lease
