#include "nccl/reduce.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

namespace fake_nccl {
namespace {

// bfloat16, rounded to nearest even like PyTorch's.
struct Brain {
  uint16_t bits;
  operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }  // NOLINT
  explicit Brain(float value) {
    const auto all = std::bit_cast<uint32_t>(value);
    bits = static_cast<uint16_t>((all + 0x7FFF + ((all >> 16) & 1)) >> 16);
  }
  Brain() : bits(0) {}
};

// Wide: the type in which two numbers are combined.
template <class T, class Wide>
void reduce_as(const std::vector<std::string>& parts, Operation operation, char* result) {
  const size_t count = parts.front().size() / sizeof(T);
  for (size_t i = 0; i < count; ++i) {
    T so_far;
    std::memcpy(&so_far, parts.front().data() + i * sizeof(T), sizeof(T));
    for (size_t rank = 1; rank < parts.size(); ++rank) {
      T next;
      std::memcpy(&next, parts[rank].data() + i * sizeof(T), sizeof(T));
      const auto a = static_cast<Wide>(so_far);
      const auto b = static_cast<Wide>(next);
      switch (operation) {
        case Operation::product: so_far = static_cast<T>(static_cast<Wide>(a * b)); break;
        case Operation::max: so_far = static_cast<T>(std::max(a, b)); break;
        case Operation::min: so_far = static_cast<T>(std::min(a, b)); break;
        default: so_far = static_cast<T>(static_cast<Wide>(a + b));
      }
    }
    if (operation == Operation::average)
      so_far = static_cast<T>(static_cast<Wide>(so_far) / static_cast<Wide>(parts.size()));
    std::memcpy(result + i * sizeof(T), &so_far, sizeof(T));
  }
}

}  // namespace

size_t size_of(Type type) {
  switch (type) {
    case Type::int8:
    case Type::uint8: return 1;
    case Type::float16:
    case Type::bfloat16: return 2;
    case Type::int32:
    case Type::uint32:
    case Type::float32: return 4;
    case Type::int64:
    case Type::uint64:
    case Type::float64: return 8;
  }
  return 0;
}

bool reduce(const std::vector<std::string>& parts, Type type, Operation operation, char* result) {
  if (operation > Operation::average) return false;
  switch (type) {
    case Type::int8: return reduce_as<int8_t, int8_t>(parts, operation, result), true;
    case Type::uint8: return reduce_as<uint8_t, uint8_t>(parts, operation, result), true;
    case Type::int32: return reduce_as<int32_t, int32_t>(parts, operation, result), true;
    case Type::uint32: return reduce_as<uint32_t, uint32_t>(parts, operation, result), true;
    case Type::int64: return reduce_as<int64_t, int64_t>(parts, operation, result), true;
    case Type::uint64: return reduce_as<uint64_t, uint64_t>(parts, operation, result), true;
    case Type::float16: return reduce_as<_Float16, float>(parts, operation, result), true;
    case Type::float32: return reduce_as<float, float>(parts, operation, result), true;
    case Type::float64: return reduce_as<double, double>(parts, operation, result), true;
    case Type::bfloat16: return reduce_as<Brain, float>(parts, operation, result), true;
  }
  return false;
}

}  // namespace fake_nccl
