// Replaces a function for the calls that one loaded library makes through its table of imported functions
// (the slots of its PLT). Used where PyTorch has no other hook.
//
// Thread safety: all functions; a call that is under way when a slot changes goes to either function.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace innkeeper::torch_layer {

struct AddressRange {
  uintptr_t begin = 0;
  uintptr_t end = 0;  // exclusive
  bool contains(const void* address) const {
    return reinterpret_cast<uintptr_t>(address) - begin < end - begin;
  }
};

// A library that is loaded, by its own tables.
class LoadedLibrary {
 public:
  // The one that has this function. Knows nothing (`found()` is false) where the system has another format.
  explicit LoadedLibrary(const void* function);
  // The one with this soname, such as "libc10.so". Knows nothing if none is loaded.
  explicit LoadedLibrary(const char* soname);

  bool found() const { return symbols_ != nullptr; }
  // From the first exported function whose mangled name begins with `prefix` to the first behind the last of
  // them that is another's: what the same source file has between them, exported or not. Empty without one.
  AddressRange code_of(std::string_view prefix) const;
  // The slots through which the library calls the function of that mangled name.
  std::vector<void**> slots_of(std::string_view name) const;
  // Writes one of its slots, also where they are read-only since it was loaded. False if that cannot be.
  bool set(void** slot, void* function) const;

 private:
  void read(void* link_map);

  uintptr_t base_ = 0;
  const void* symbols_ = nullptr;  // an array of ElfW(Sym)
  size_t symbol_count_ = 0;
  const char* names_ = nullptr;
  struct Relocations {
    const void* first = nullptr;
    size_t count = 0;
  };
  Relocations lazy_, eager_;
  AddressRange read_only_;  // once it was loaded
};

}  // namespace innkeeper::torch_layer
