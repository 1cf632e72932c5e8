// Memory from the system: anonymous pages, and addresses alone.
//
// Thread safety: all functions.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace innkeeper {

enum class Pages : uint8_t {
  ordinary,
  // Aligned to kHugePage, and backed by such pages where the system gives them: fewer faults, and fewer
  // entries where a card is told of them.
  huge,
  // Addresses alone: they read as zeros, cost no memory until then and never more than that, and trap when
  // written. For machines that are larger than this one.
  blank,
};

constexpr int64_t kPage = int64_t{4} << 10;
constexpr int64_t kHugePage = int64_t{2} << 20;

// Requires: size > 0, a multiple of kPage. Fails with out_of_memory, with the size in it.
Result<void*> map_pages(int64_t size, Pages pages);
void unmap_pages(void* data, int64_t size, Pages pages);

// Whether the address is in blank pages of any mapping.
bool is_blank(const void* data);

}  // namespace innkeeper
