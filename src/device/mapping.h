// Memory from the system: anonymous pages, and addresses alone.
//
// Thread safety: all functions.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace innkeeper {

enum class Pages : uint8_t {
  ordinary,
  // Aligned to kHugePage, and backed by huge pages if the system has them: fewer faults, and fewer entries in
  // a GPU's page tables.
  huge,
  // Addresses alone: they read as zeros, cost at most the memory of the pages read, and trap when written.
  // For simulating machines that are larger than this one.
  blank,
};

constexpr int64_t kPage = int64_t{4} << 10;
constexpr int64_t kHugePage = int64_t{2} << 20;

// Requires: size > 0, a multiple of kPage. Fails with out_of_memory; the message has the size.
Result<void*> map_pages(int64_t size, Pages pages);
void unmap_pages(void* data, int64_t size, Pages pages);

// Returns whether the address is in blank pages of any mapping.
bool is_blank(const void* data);

}  // namespace innkeeper
