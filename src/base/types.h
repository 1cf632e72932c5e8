// Bytes and identities as strong types, so that a size is never taken for an index.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>

namespace innkeeper {

// A number of bytes. Signed, so that differences are safe to take.
class Bytes {
 public:
  constexpr Bytes() = default;
  constexpr explicit Bytes(int64_t count) noexcept : count_(count) {}
  constexpr int64_t count() const { return count_; }
  constexpr auto operator<=>(const Bytes&) const = default;
  constexpr Bytes operator+(Bytes other) const { return Bytes(count_ + other.count_); }
  constexpr Bytes operator-(Bytes other) const { return Bytes(count_ - other.count_); }
  constexpr Bytes& operator+=(Bytes other) {
    count_ += other.count_;
    return *this;
  }
  constexpr Bytes& operator-=(Bytes other) {
    count_ -= other.count_;
    return *this;
  }

 private:
  int64_t count_ = 0;
};

constexpr Bytes KiB(int64_t n) { return Bytes(n << 10); }
constexpr Bytes MiB(int64_t n) { return Bytes(n << 20); }
constexpr Bytes GiB(int64_t n) { return Bytes(n << 30); }

// Every replica starts at, and is charged in multiples of, this many bytes.
inline constexpr int64_t kAlignment = 64;
constexpr Bytes round_up(Bytes size) {
  constexpr int64_t kMost = INT64_MAX - (kAlignment - 1);  // Absurd sizes stay too large, and positive.
  return Bytes(((size.count() > kMost ? kMost : size.count()) + kAlignment - 1) & ~(kAlignment - 1));
}

// Returns text for messages, for example "64.0 MiB". Exact sizes below 10 KiB are shown in bytes.
std::string to_string(Bytes size);

// Index of a node in its machine.
enum class NodeId : uint8_t {};
constexpr size_t index_of(NodeId node) { return static_cast<size_t>(node); }
inline constexpr NodeId kNoNode = NodeId{255};
inline constexpr size_t kMaxNodes = 32;

// Unique for the life of the process; never reused.
enum class BlockId : uint64_t {};

}  // namespace innkeeper
