// Replaces a function for the calls that one loaded library makes through its table of imported functions
// (the slots of its PLT). Used where PyTorch has no other hook.
//
// Thread safety: all functions. A call that runs while a slot changes goes to either function.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace innkeeper::torch_layer {

struct AddressRange {
  uintptr_t begin = 0;
  uintptr_t end = 0;  // One past the last address.
  bool contains(const void* address) const {
    return reinterpret_cast<uintptr_t>(address) - begin < end - begin;
  }
};

// A loaded library, read from its own tables.
class LoadedLibrary {
 public:
  // The library that contains this function. found() is false if the system has another format.
  explicit LoadedLibrary(const void* function);
  // The library with this soname, such as "libc10.so". found() is false if none is loaded.
  explicit LoadedLibrary(const char* soname);

  bool found() const { return symbols_ != nullptr; }
  // The code of one source file, exported or not. It begins at the first exported function whose mangled name
  // begins with `prefix`. It ends at the first function of another name behind the last of these. Empty if
  // there is none.
  AddressRange code_of(std::string_view prefix) const;
  // The slots through which the library calls the function with that mangled name.
  std::vector<void**> slots_of(std::string_view name) const;
  // Writes one of the library's slots, also if the loader has made it read-only. False if that is impossible.
  bool set(void** slot, void* function) const;

 private:
  void read(void* link_map);

  uintptr_t base_ = 0;
  const void* symbols_ = nullptr;  // An array of ElfW(Sym).
  size_t symbol_count_ = 0;
  const char* names_ = nullptr;
  struct Relocations {
    const void* first = nullptr;
    size_t count = 0;
  };
  Relocations lazy_, eager_;
  AddressRange read_only_;  // Pages that the loader made read-only (RELRO).
};

}  // namespace innkeeper::torch_layer
