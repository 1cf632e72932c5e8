// Result of querying one value of a GPU: a value, or the reason for its absence. Telemetry uses no bare
// sentinels, so that "unknown" can never be taken for zero.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"

namespace innkeeper::telemetry {

enum class Outcome : uint8_t {
  not_asked,      // The caller did not request it.
  value,          // A value was read.
  not_supported,  // This GPU, driver or library does not report it; a retry is useless.
  no_driver,      // There is no library or no driver, or the two do not match.
  error,          // A call failed; it may succeed later.
};

template <class T>
class [[nodiscard]] Reading {
 public:
  Reading() = default;                           // Not asked.
  Reading(T value) : value_(std::move(value)) {  // NOLINT(google-explicit-constructor)
    outcome_ = Outcome::value;
  }
  // Makes a reading without a value. `text`: one line for people; empty if the outcome is explanation enough.
  static Reading none(Outcome outcome, std::string text = {}) {
    IK_CHECK(outcome != Outcome::value, "a value is missing");
    Reading reading;
    reading.outcome_ = outcome;
    reading.text_ = std::move(text);
    return reading;
  }

  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  Outcome outcome() const { return outcome_; }
  const std::string& text() const { return text_; }

  // Requires: ok().
  const T& value() const {
    IK_CHECK(ok(), "a reading without a value");
    return *value_;
  }
  const T& operator*() const { return value(); }
  const T* operator->() const { return &value(); }
  T value_or(T otherwise) const { return value_ ? *value_ : std::move(otherwise); }

  // Returns the same outcome and text as a reading of another type.
  template <class U>
  Reading<U> as() const {
    return Reading<U>::none(outcome_, text_);
  }

 private:
  std::optional<T> value_;
  Outcome outcome_ = Outcome::not_asked;
  std::string text_;
};

}  // namespace innkeeper::telemetry
