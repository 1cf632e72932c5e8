// Reserved heap memory in a process that may allocate no more.
#include "base/heap_reserve.h"

// Sanitizers take far more address space than the process uses.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "base/status.h"
#include "support/isolated.h"

namespace innkeeper {
namespace {

// Limits the process to the address space that it has now.
void allow_no_more() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const auto bytes = static_cast<rlim_t>(pages) * 4096;
  const rlimit limit{bytes, bytes};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
}

// Allocates small pieces until none is left; returns their bytes.
size_t take_all(std::vector<std::unique_ptr<char[]>>& pieces) {
  constexpr size_t kPiece = 1024;
  size_t taken = 0;
  try {
    for (;; taken += kPiece) pieces[taken / kPiece] = std::make_unique<char[]>(kPiece);
  } catch (const std::bad_alloc&) {
  }
  return taken;
}

std::vector<std::unique_ptr<char[]>> places() {
  return std::vector<std::unique_ptr<char[]>>(size_t{1} << 20);
}

TEST(HeapReserve, IsGivenWhereNothingElseIsLeftAndMissed) {
  const test::Isolated found = test::run_isolated(
      [] {
        std::vector<std::unique_ptr<char[]>> pieces = places();
        install_heap_reserve();
        std::string text = heap_reserve_ready().ok() ? "ready, " : "";
        allow_no_more();
        text += take_all(pieces) > kHeapReserve / 2 ? "given, " : "";
        const Status missed = heap_reserve_ready();
        const bool says_so = missed.code() == Code::out_of_memory &&
                             missed.message().find("4.0 MiB that are kept") != std::string::npos;
        text += says_so ? "missed, " : "";
        pieces.clear();
        return text + (heap_reserve_ready().ok() ? "whole again" : "");
      },
      60);
  EXPECT_EQ(found.text + found.ended, "ready, given, missed, whole again");
}

TEST(HeapReserve, WhatMustNotFailEndsTheProcessWithALine) {
  EXPECT_DEATH(
      {
        std::vector<std::unique_ptr<char[]>> pieces = places();
        install_heap_reserve();
        allow_no_more();
        const NeedsHeap books;
        take_all(pieces);
      },
      "out of memory for the engine's own books in the middle of a move");
}

TEST(HeapReserve, CallsTheHandlerThatItReplaced) {
  const test::Isolated found = test::run_isolated(
      [] {
        static int asked = 0;
        std::set_new_handler([] {
          ++asked;
          throw std::bad_alloc();
        });
        std::vector<std::unique_ptr<char[]>> pieces = places();
        install_heap_reserve();
        install_heap_reserve();
        allow_no_more();
        take_all(pieces);
        return std::to_string(asked);
      },
      60);
  EXPECT_EQ(found.text + found.ended, "1");
}

}  // namespace
}  // namespace innkeeper

#endif
