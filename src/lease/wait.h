// Waits until a request that does not fit now may fit: the way depends on its place in the line.
//
// A machine may have a thousand waiting requests. The first kFront of them watch the directory, and look for
// free space when a lease ends. Each later one sleeps, and from time to time looks at one place only, the one
// kFront before its own. Once that place has left the line, the request is one of the first itself. Hundreds
// therefore cost no more than a few, and hold no inotify instance, of which a user has 128.
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

// Thread safety: one thread uses it, for one request.
class Wait {
 public:
  // `cancelled` is called from time to time; true gives up. May be null.
  Wait(const Directory& directory, const Request& request, const std::function<bool()>& cancelled);

  // Waits until another attempt may help. False: the caller has given up, or its time is over. Requires:
  // `place`; null if the line is full, in which case it waits as one of the first.
  bool until_next(const Turn& turn, const LeaseFile* place);

  std::chrono::milliseconds so_far() const;
  // Returns "waited 1000 ms" or "given up after 20 ms", after until_next() returned false.
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
  // Present at the front alone, because closing an inotify instance takes the kernel some 15 ms.
  std::optional<Watch> watch_;
  bool event_ = false;
  std::string gave_up_;
};

}  // namespace innkeeper::lease
