// Checks that make a driver's answers safe to use, for every vendor: text without an end, implausible
// numbers, names that could break a list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "telemetry/snapshot.h"

namespace innkeeper::telemetry {

// A larger number is no measurement.
inline constexpr uint64_t kMostMemory = uint64_t{1} << 56;
inline constexpr uint32_t kMostMilliwatts = 100'000'000;
inline constexpr uint32_t kMostDegrees = 500;
inline constexpr uint32_t kMostMegahertz = 1'000'000;
inline constexpr uint32_t kMostGpus = 256;
inline constexpr uint32_t kMostProcesses = 65536;

template <class T>
Reading<T> nonsense(const char* question, uint64_t number) {
  return Reading<T>::none(Outcome::error,
                          std::string(question) + ": " + std::to_string(number) + " makes no sense");
}

// Cleans text that a driver wrote: it may lack its end, and contain any bytes.
std::string clean_text(const char* text, size_t capacity);

// Returns whether the name can stand in a list of visible devices and in a file's name.
bool is_uuid(const std::string& text);

// Returns the bus id in the form "00000000:81:00.0" (lower case, eight digits of domain) of a driver's text;
// empty: the text is no bus id.
std::string plain_bus_id(const std::string& text);

// Makes the three numbers consistent by our own arithmetic.
Memory memory_of(uint64_t total, uint64_t reserved, uint64_t free);

// Returns the file from which a function was loaded, as far as it is known.
std::string path_of(void* function);

}  // namespace innkeeper::telemetry
