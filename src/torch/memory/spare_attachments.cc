#include "torch/memory/spare_attachments.h"

#include <array>

#include "torch/memory/of_thread.h"
#include "torch/process/runtime_state.h"

namespace innkeeper::torch_layer {
namespace {

// Up to 128 KiB: for larger blocks, the kernels cost so much more that the saving is not noticeable.
constexpr size_t kClasses = 40;
constexpr size_t kEach = 4;

void give_back(Attachment::Owner attachment) { address_space().give_back(attachment->addresses); }

class Spares {
 public:
  Spares() = default;
  ~Spares() {
    // In a child of fork(), a thread of the parent may have held the address space's lock at the fork;
    // nothing releases it here.
    if (runtime_if_started() == nullptr) return;
    clear();
  }
  Spares(const Spares&) = delete;
  Spares& operator=(const Spares&) = delete;

  Attachment::Owner take(size_t nodes, size_t index) {
    Class& kept = classes_[index];
    if (nodes != nodes_ || kept.count == 0) return nullptr;
    return Attachment::Owner(kept.spares[--kept.count]);
  }
  bool has_place(size_t nodes, size_t index) {
    if (nodes != nodes_) {  // configure() has made another machine since.
      clear();
      nodes_ = nodes;
    }
    return classes_[index].count < kEach;
  }
  void keep(Attachment::Owner attachment, size_t index) {
    Class& kept = classes_[index];
    kept.spares[kept.count++] = attachment.release();
  }
  void clear() {
    for (Class& kept : classes_) {
      while (kept.count != 0) give_back(Attachment::Owner(kept.spares[--kept.count]));
    }
  }

 private:
  struct Class {
    std::array<Attachment*, kEach> spares;
    size_t count = 0;
  };

  size_t nodes_ = 0;
  std::array<Class, kClasses> classes_;
};

}  // namespace

Attachment::Owner take_attachment(size_t nodes, size_t size) {
  const size_t index = size == 0 ? kClasses : AddressSpace::class_index(size);
  Spares* const spares = index < kClasses ? OfThread<Spares>::get() : nullptr;
  if (spares != nullptr) {
    if (Attachment::Owner kept = spares->take(nodes, index)) [[likely]]
      return kept;
  }
  Attachment::Owner made = Attachment::make(nodes);
  made->addresses = address_space().take(size);
  return made;
}

void keep_attachment(Attachment::Owner attachment, size_t nodes) {
  const AddressSpace::Range* const range = attachment->addresses;
  const size_t index = range == nullptr ? kClasses : AddressSpace::class_index(range->size);
  Spares* const spares = index < kClasses ? OfThread<Spares>::get() : nullptr;
  if (spares != nullptr && spares->has_place(nodes, index)) return spares->keep(std::move(attachment), index);
  give_back(std::move(attachment));
}

void drop_spare_attachments() {
  if (Spares* const spares = OfThread<Spares>::get()) spares->clear();
}

}  // namespace innkeeper::torch_layer
