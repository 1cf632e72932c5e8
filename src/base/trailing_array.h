// An object followed by an array of items, in one piece of memory. It serves objects that are created and
// freed with every tensor, and whose array is as long as the machine has nodes.
//
//     class Block : public TrailingArray<Block, Replica> { ... };
//     Block::Owner block = Block::make(nodes, id, size);  // items are default-constructed
//     block->items()[1];
//     Block::Space space = Block::destroy(block.release());  // for reuse by an object of as many items
//
// Thread safety: none of its own.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace innkeeper {

template <class Self, class Item>
class TrailingArray {
 public:
  struct Destroy {
    void operator()(Self* self) const noexcept { destroy(self); }
  };
  using Owner = std::unique_ptr<Self, Destroy>;
  struct Free {
    void operator()(void* memory) const { ::operator delete(memory); }
  };
  // Memory of a destroyed object, which an object of as many items may reuse.
  using Space = std::unique_ptr<void, Free>;

  // `arguments`: for Self's constructor, which may be private to Self and TrailingArray.
  template <class... Arguments>
  static Owner make(size_t count, Arguments&&... arguments) {
    return make_in(Space(), count, std::forward<Arguments>(arguments)...);
  }
  template <class... Arguments>
  static Owner make_in(Space memory, size_t count, Arguments&&... arguments) {
    static_assert(std::is_nothrow_default_constructible_v<Item>, "nothing to undo where an item fails");
    static_assert(alignof(Item) <= alignof(Self) && alignof(Self) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
    static_assert(sizeof(Self) % alignof(Item) == 0);
    if (memory == nullptr) memory.reset(::operator new(sizeof(Self) + count * sizeof(Item)));
    auto* self = new (memory.get()) Self(std::forward<Arguments>(arguments)...);
    static_cast<TrailingArray*>(self)->count_ = count;
    std::uninitialized_default_construct_n(self->items(), count);
    (void)memory.release();
    return Owner(self);
  }
  static Space destroy(Self* self) noexcept {
    std::destroy_n(self->items(), static_cast<TrailingArray*>(self)->count_);
    self->~Self();
    return Space(self);
  }
  TrailingArray(const TrailingArray&) = delete;
  TrailingArray& operator=(const TrailingArray&) = delete;

  Item* items() { return reinterpret_cast<Item*>(static_cast<Self*>(this) + 1); }
  const Item* items() const { return reinterpret_cast<const Item*>(static_cast<const Self*>(this) + 1); }

 protected:
  TrailingArray() = default;
  ~TrailingArray() = default;

 private:
  size_t count_ = 0;
};

}  // namespace innkeeper
