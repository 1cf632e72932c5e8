#include "model/program.h"

#include <algorithm>
#include <array>
#include <random>

namespace innkeeper::test {
namespace {

struct Row {
  const char* name;
  int weight;  // Relative frequency of the step.
};
constexpr std::array<Row, kVerbs> kRows = {{
    {"create", 4},      {"make", 8},   {"write", 8},      {"read", 12},   {"combine", 18}, {"copy_range", 8},
    {"prefetch", 7},    {"evict", 6},  {"write_back", 6}, {"destroy", 6}, {"pin", 4},      {"unpin", 5},
    {"escape", 2},      {"let_go", 3}, {"resize", 6},     {"budget", 5},  {"relieve", 1},  {"evict_all", 2},
    {"synchronize", 1}, {"trim", 1},   {"stats", 1},
}};

Verb draw_verb(std::mt19937_64& random) {
  static const int total = [] {
    int sum = 0;
    for (const Row& row : kRows) sum += row.weight;
    return sum;
  }();
  int left = static_cast<int>(random() % static_cast<uint64_t>(total));
  for (size_t verb = 0; verb < kVerbs; ++verb) {
    left -= kRows[verb].weight;
    if (left < 0) return static_cast<Verb>(verb);
  }
  return Verb::read;
}

}  // namespace

Program program_of(std::span<const unsigned char> bytes) {
  Program program;
  for (; bytes.size() >= kStepBytes; bytes = bytes.subspan(kStepBytes)) {
    program.push_back({.verb = static_cast<Verb>(bytes[0] % kVerbs),
                       .lane = bytes[1],
                       .node = bytes[2],
                       .target = bytes[3],
                       .source = bytes[4],
                       .other = bytes[5],
                       .size = static_cast<uint16_t>(bytes[6] | bytes[7] << 8)});
  }
  return program;
}

Program random_program(uint64_t seed, size_t steps) {
  std::mt19937_64 random(seed);
  Program program;
  for (size_t i = 0; i < steps; ++i) {
    const uint64_t bits = random();
    std::array<unsigned char, kStepBytes> bytes;
    for (size_t byte = 0; byte < kStepBytes; ++byte)
      bytes[byte] = static_cast<unsigned char>(bits >> (8 * byte));
    bytes[0] = static_cast<unsigned char>(draw_verb(random));
    program.push_back(program_of(bytes).front());
  }
  return program;
}

std::string to_hex(const Program& program) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const Step& step : program) {
    const std::array<unsigned, kStepBytes> bytes = {static_cast<unsigned>(step.verb),
                                                    step.lane,
                                                    step.node,
                                                    step.target,
                                                    step.source,
                                                    step.other,
                                                    step.size & 255u,
                                                    step.size / 256u};
    for (const unsigned byte : bytes) {
      text += kDigits[byte >> 4];
      text += kDigits[byte & 15];
    }
  }
  return text;
}

std::vector<unsigned char> from_hex(const std::string& text) {
  std::vector<unsigned char> bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<unsigned char>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::string to_string(const Program& program) {
  std::string text;
  for (const Step& step : program) {
    text += std::string("  ") + kRows[static_cast<size_t>(step.verb)].name + " lane " +
            std::to_string(step.lane) + " node " + std::to_string(step.node) + " target " +
            std::to_string(step.target) + " source " + std::to_string(step.source) + " other " +
            std::to_string(step.other) + " size " + std::to_string(step.size) + "\n";
  }
  return text;
}

Program shrink(Program program, const std::function<bool(const Program&)>& fails, int tries) {
  size_t part = program.size() / 2;
  while (part > 0) {
    bool smaller = false;
    for (size_t start = 0; start < program.size();) {
      if (tries-- <= 0) return program;
      Program candidate = program;
      const auto from = candidate.begin() + static_cast<std::ptrdiff_t>(start);
      const auto length = static_cast<std::ptrdiff_t>(std::min(part, program.size() - start));
      candidate.erase(from, from + length);
      if (!candidate.empty() && fails(candidate)) {
        program = std::move(candidate);
        smaller = true;
      } else {
        start += part;
      }
    }
    if (!smaller || part > program.size()) part = std::min(part, program.size()) / 2;
  }
  return program;
}

}  // namespace innkeeper::test
