// What makes a driver's answers safe to use, whichever vendor's: text without an end, numbers that make no
// sense, names that could break a list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "telemetry/snapshot.h"

namespace innkeeper::telemetry {

// What is more than these is no measurement.
inline constexpr uint64_t kMostMemory = uint64_t{1} << 56;
inline constexpr uint32_t kMostMilliwatts = 100'000'000;
inline constexpr uint32_t kMostDegrees = 500;
inline constexpr uint32_t kMostMegahertz = 1'000'000;
inline constexpr uint32_t kMostCards = 256;
inline constexpr uint32_t kMostProcesses = 65536;

template <class T>
Reading<T> nonsense(const char* question, uint64_t number) {
  return Reading<T>::none(Outcome::error,
                          std::string(question) + ": " + std::to_string(number) + " makes no sense");
}

// Text that a driver wrote: it may lack its end, and hold anything.
std::string clean_text(const char* text, size_t capacity);

// A name that can stand in a list of visible devices and in a file's name.
bool is_uuid(const std::string& text);

// "00000000:81:00.0", in lower case with eight digits of domain, of what a driver calls a card; empty if it
// is no bus id.
std::string plain_bus_id(const std::string& text);

// By our own arithmetic, whatever the three are.
Memory memory_of(uint64_t total, uint64_t reserved, uint64_t free);

// The file that a function was loaded from, as far as it can be told.
std::string path_of(void* function);

}  // namespace innkeeper::telemetry
