// What asking a card for one thing gave: a value, or why there is none. Nothing in telemetry is a bare
// sentinel, so "unknown" can never be taken for zero.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"

namespace innkeeper::telemetry {

enum class Outcome : uint8_t {
  not_asked,      // the caller did not want it
  value,          //
  not_supported,  // this card, driver or library cannot tell; asking again is useless
  no_driver,      // no library, no driver, or one that does not fit the other
  error,          // a call failed; it may succeed later
};

template <class T>
class [[nodiscard]] Reading {
 public:
  Reading() = default;                           // not asked
  Reading(T value) : value_(std::move(value)) {  // NOLINT(google-explicit-constructor)
    outcome_ = Outcome::value;
  }
  // Why there is no value: one line for people, empty where the outcome says it all.
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

  // The same outcome and text, for a reading that was made from this one.
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
