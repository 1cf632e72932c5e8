// Records of access streams as a test writes them.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "trace/record.h"

namespace innkeeper::test {

// The record that the text describes. Fails the test if there is none.
inline trace::AccessRecord parsed(const std::string& text) {
  Result<trace::AccessRecord> record = trace::parse_record(text);
  EXPECT_TRUE(record.ok()) << record.status().message();
  return record.ok() ? std::move(record).value() : trace::AccessRecord();
}

}  // namespace innkeeper::test
