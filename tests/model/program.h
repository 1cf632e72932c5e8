// Programs for the model walk: lists of small steps, drawn from a seed or read from any bytes.
//
// Every list is a program, because a step takes its numbers modulo the number of candidates (model/walk.h). A
// list that has lost some of its steps is still a program; shrinking and fuzzing need that.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace innkeeper::test {

enum class Verb : uint8_t {
  create,      // Makes a block without contents.
  make,        // Makes a kernel's fresh result.
  write,       // Writes all of a block.
  read,        // Reads all of a block.
  combine,     // Computes out = out * 3 + inputs, perhaps with scratch memory.
  copy_range,  // Copies part of a block into part of another or of itself.
  prefetch,
  evict,
  write_back,
  destroy,
  pin,
  unpin,
  escape,  // A holder keeps a real tensor after the operator (I12).
  let_go,
  resize,  // Gives the operand other memory in a kernel.
  budget,
  relieve,
  evict_all,
  synchronize,
  trim,
  stats,
};
inline constexpr size_t kVerbs = 21;

struct Step {
  Verb verb = Verb::read;
  uint8_t lane = 0;
  uint8_t node = 0;
  uint8_t target = 0;
  uint8_t source = 0;
  uint8_t other = 0;
  uint16_t size = 0;
};
inline constexpr size_t kStepBytes = 8;

using Program = std::vector<Step>;

Program random_program(uint64_t seed, size_t steps);
Program program_of(std::span<const unsigned char> bytes);  // Ignores the rest of an incomplete last step.
std::string to_hex(const Program& program);
std::vector<unsigned char> from_hex(const std::string& text);
std::string to_string(const Program& program);  // Text with a line for each step.

// The shortest program found that still fails. Leaves out parts, then ever smaller ones, while `fails`
// returns true, with fewer than `tries` calls. Requires: fails(program).
Program shrink(Program program, const std::function<bool(const Program&)>& fails, int tries);

}  // namespace innkeeper::test
