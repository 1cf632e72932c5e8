#include "torch/process/loaded_library.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>

namespace innkeeper::torch_layer {
namespace {

using Symbol = ElfW(Sym);
using Relocation = ElfW(Rela);

#if defined(__x86_64__)
constexpr uint64_t kSlot = R_X86_64_JUMP_SLOT;
constexpr uint64_t kPointer = R_X86_64_GLOB_DAT;
#elif defined(__aarch64__)
constexpr uint64_t kSlot = R_AARCH64_JUMP_SLOT;
constexpr uint64_t kPointer = R_AARCH64_GLOB_DAT;
#endif

// The number of symbols of a library. No table holds it; the last symbol of the hash table's longest chain is
// the last of all.
size_t count_symbols(const uint32_t* hash) {
  const uint32_t buckets = hash[0];
  const uint32_t first = hash[1];
  const uint32_t words = hash[2];
  const uint32_t* const bucket = hash + 4 + words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* const chain = bucket + buckets;
  uint32_t last = buckets == 0 ? 0 : *std::max_element(bucket, bucket + buckets);
  if (last < first) return first;
  while ((chain[last - first] & 1) == 0) ++last;
  return last + 1;
}

bool is_function(const Symbol& symbol) {
  return (symbol.st_info & 0xf) == STT_FUNC && symbol.st_shndx != SHN_UNDEF;
}
bool is_strong(const Symbol& symbol) { return symbol.st_info >> 4 == STB_GLOBAL; }

}  // namespace

LoadedLibrary::LoadedLibrary(const void* function) {
  Dl_info info{};
  link_map* map = nullptr;
  if (dladdr1(function, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0 && map != nullptr)
    read(map);
}

LoadedLibrary::LoadedLibrary(const char* soname) {
  void* const handle = dlopen(soname, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return;
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr) read(map);
  dlclose(handle);  // Python keeps PyTorch's libraries loaded.
}

void LoadedLibrary::read(void* link_map_of_library) {
  const auto* const map = static_cast<const link_map*>(link_map_of_library);
  Dl_info info{};
  if (dladdr(map->l_ld, &info) == 0) return;  // The call finds the address of the library's header.
  base_ = map->l_addr;
  const void* symbols = nullptr;
  const uint32_t* hash = nullptr;
  bool with_addends = true;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    const auto* const address = reinterpret_cast<const void*>(entry->d_un.d_ptr);
    switch (entry->d_tag) {
      case DT_SYMTAB: symbols = address; break;
      case DT_STRTAB: names_ = static_cast<const char*>(address); break;
      case DT_GNU_HASH: hash = static_cast<const uint32_t*>(address); break;
      case DT_JMPREL: lazy_.first = address; break;
      case DT_PLTRELSZ: lazy_.count = entry->d_un.d_val / sizeof(Relocation); break;
      case DT_PLTREL: with_addends = entry->d_un.d_val == DT_RELA; break;
      case DT_RELA: eager_.first = address; break;
      case DT_RELASZ: eager_.count = entry->d_un.d_val / sizeof(Relocation); break;
      default: break;
    }
  }
  if (symbols == nullptr || names_ == nullptr || hash == nullptr || !with_addends) return;
  const auto* const header = static_cast<const ElfW(Ehdr)*>(info.dli_fbase);
  const auto* const segments =
      reinterpret_cast<const ElfW(Phdr)*>(static_cast<const std::byte*>(info.dli_fbase) + header->e_phoff);
  for (size_t i = 0; i < header->e_phnum; ++i) {
    if (segments[i].p_type != PT_GNU_RELRO) continue;
    // Whole pages, as the loader protects them; the last page may also hold data that is written.
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    read_only_.begin = (base_ + segments[i].p_vaddr) / page * page;
    read_only_.end = (base_ + segments[i].p_vaddr + segments[i].p_memsz) / page * page;
  }
  symbol_count_ = count_symbols(hash);
  symbols_ = symbols;
}

AddressRange LoadedLibrary::code_of(std::string_view prefix) const {
  if (!found()) return {};
  const auto* const symbols = static_cast<const Symbol*>(symbols_);
  const auto each = [&](const auto& visit) {
    for (size_t i = 0; i < symbol_count_; ++i)
      if (is_function(symbols[i]) && is_strong(symbols[i])) visit(symbols[i]);
  };
  const auto is_its = [&](const Symbol& symbol) {
    return std::string_view(names_ + symbol.st_name).starts_with(prefix);
  };
  uintptr_t first = UINTPTR_MAX;
  uintptr_t last = 0;
  uintptr_t end = 0;
  each([&](const Symbol& symbol) {
    if (!is_its(symbol)) return;
    first = std::min<uintptr_t>(first, symbol.st_value);
    if (symbol.st_value < last) return;
    last = symbol.st_value;
    end = last + symbol.st_size;
  });
  if (last == 0) return {};
  uintptr_t next = UINTPTR_MAX;
  each([&](const Symbol& symbol) {
    if (symbol.st_value >= end) next = std::min<uintptr_t>(next, symbol.st_value);
  });
  return {base_ + first, base_ + (next == UINTPTR_MAX ? end : next)};
}

std::vector<void**> LoadedLibrary::slots_of(std::string_view name) const {
  std::vector<void**> slots;
  if (!found()) return slots;
  const auto* const symbols = static_cast<const Symbol*>(symbols_);
  for (const Relocations& table : {lazy_, eager_}) {
    const auto* const first = static_cast<const Relocation*>(table.first);
    for (size_t i = 0; first != nullptr && i < table.count; ++i) {
      const uint64_t type = ELF64_R_TYPE(first[i].r_info);
      if (type != kSlot && type != kPointer) continue;
      if (name == names_ + symbols[ELF64_R_SYM(first[i].r_info)].st_name)
        slots.push_back(reinterpret_cast<void**>(base_ + first[i].r_offset));
    }
  }
  return slots;
}

bool LoadedLibrary::set(void** slot, void* function) const {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  auto* const start = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(slot) / page * page);
  const bool read_only = read_only_.contains(slot);
  if (read_only && mprotect(start, page, PROT_READ | PROT_WRITE) != 0) return false;
  std::atomic_ref<void*>(*slot).store(function, std::memory_order_release);
  if (read_only) (void)mprotect(start, page, PROT_READ);
  return true;
}

}  // namespace innkeeper::torch_layer
