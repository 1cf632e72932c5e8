// Expected failures as values: Status, and Result<T> (a T or a Status). Core never throws for them; src/torch
// and src/bindings convert them to exceptions.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/check.h"

namespace innkeeper {

enum class Code {
  ok,
  invalid_argument,  // The caller's request makes no sense.
  out_of_memory,     // No node has enough free space, even after moves.
  io_error,          // A disk, a file or a link failed.
  damaged,           // A file is readable, but its content cannot be right.
  device_failed,     // A call to an accelerator failed; the accelerator's contents are unchanged.
  device_lost,       // An accelerator is gone for good, with the blocks that only it held.
  unavailable,       // A device is gone or never existed.
  busy,              // In use by another program or thread; a later retry may succeed.
  discarded,         // The bytes must be recomputed first (Recomputer::recompute).
};

const char* to_string(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}
  static Status okay() { return {}; }
  bool ok() const { return code_ == Code::ok; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::ok;
  std::string message_;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    IK_CHECK(!status_.ok(), "a Result without a value needs a failure");
  }
  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & {
    IK_CHECK(ok(), status_.message());
    return *value_;
  }
  const T& value() const& {
    IK_CHECK(ok(), status_.message());
    return *value_;
  }
  T&& value() && {
    IK_CHECK(ok(), status_.message());
    return *std::move(value_);
  }

 private:
  std::optional<T> value_;
  Status status_;
};

// Returns from the function with the failure, if there is one.
#define IK_RETURN_IF_ERROR(expression) \
  do { \
    if (::innkeeper::Status ik_status = (expression); !ik_status.ok()) return ik_status; \
  } while (false)

}  // namespace innkeeper
