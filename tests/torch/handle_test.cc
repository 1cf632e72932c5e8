// Handles on a machine with one small simulated accelerator: identity, lifetime, and memory that outlives its
// block.
#include "torch/memory/handle.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <ctime>
#include <set>
#include <thread>
#include <vector>

#include "innkeeper/torch/runtime.h"
#include "torch/memory/address_space.h"
#include "torch/memory/spare_attachments.h"
#include "torch/process/runtime_state.h"
#include "torch/start/load.h"

namespace innkeeper::torch_layer {
namespace {

class Handle : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    load();
    if (!started()) configure("sim:1x1MiB,host:64MiB");
  }
  void SetUp() override {
    drop_spare_attachments();
    address_space_before_ = address_space().live();
  }
  void TearDown() override {
    synchronize();
    EXPECT_EQ(check_invariants(), "");
    EXPECT_EQ(runtime().engine().table().block_count(), 0U);
    drop_spare_attachments();
    EXPECT_EQ(address_space().live(), address_space_before_);
  }

 private:
  size_t address_space_before_ = 0;
};

at::TensorOptions managed() { return at::TensorOptions(managed_device()); }

TEST_F(Handle, CostsNoMemoryUntilItIsWritten) {
  const auto storage = make_handle(GiB(100));
  EXPECT_EQ(storage->nbytes(), static_cast<size_t>(GiB(100).count()));
  EXPECT_EQ(storage->device(), managed_device());
  EXPECT_EQ(block_of(*storage)->size(), GiB(100));
  for (const auto& [name, node] : stats().nodes) EXPECT_EQ(node.resident, 0) << name;
}

// The real tensor replaces its handle on the stack. The address sanitizer detects a block that dies
// meanwhile.
TEST_F(Handle, WhatTheStackAloneHoldsLivesUntilItHasBeenRead) {
  const c10::InferenceMode without_autograd;  // Autograd's kernels would hold the tensor, too.
  const c10::OperatorHandle flip = c10::Dispatcher::singleton().findSchemaOrThrow("aten::flip", "");
  const at::Tensor plain = at::arange(1000);
  for (int round = 0; round < 20; ++round) {
    torch::jit::Stack stack;
    torch::jit::push(stack, plain.to(managed_device()), c10::List<int64_t>({0}));
    flip.callBoxed(&stack);
    EXPECT_TRUE(at::equal(stack.back().toTensor().cpu(), plain.flip({0})));
  }
}

TEST_F(Handle, AddressesAreUniqueWhileAlive) {
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> storages;
  std::set<const void*> addresses;
  for (int i = 0; i < 200; ++i) {
    storages.push_back(make_handle(Bytes(1 + 37 * i)));
    EXPECT_TRUE(addresses.insert(storages.back()->data()).second);
    EXPECT_NE(address_space().find(storages.back()->data()), nullptr);
  }
}

TEST_F(Handle, NothingHasANullAddress) {
  const auto storage = make_handle(Bytes(0));
  EXPECT_EQ(storage->data(), nullptr);
  EXPECT_EQ(block_of(*storage)->size(), Bytes(0));
}

TEST_F(Handle, GrowsAndShrinks) {
  const auto storage = make_handle(Bytes(100));
  Block* block = block_of(*storage);
  const void* small = storage->data();
  resize_handle(*storage, Bytes(400));
  EXPECT_EQ(storage->data(), small) << "the range was long enough";
  EXPECT_EQ(storage->nbytes(), 400U);
  resize_handle(*storage, MiB(3));
  EXPECT_NE(storage->data(), small);
  EXPECT_GE(attachment_of(*block).addresses->size, static_cast<size_t>(MiB(3).count()));
  resize_handle(*storage, Bytes(0));
  EXPECT_EQ(storage->data(), nullptr);
  EXPECT_EQ(block_of(*storage), block);
}

c10::intrusive_ptr<c10::StorageImpl> borrow(void* data, size_t size) {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), size,
                                               c10::DataPtr(data, managed_device()), nullptr,
                                               /*resizable=*/false);
}

TEST_F(Handle, AnAddressThatIsNoManagedTensorsIsRefused) {
  int local = 0;
  EXPECT_THROW(block_of(*borrow(&local, 4)), c10::Error);
  EXPECT_THROW(block_of(*borrow(nullptr, 4)), c10::Error);
  auto lent = make_handle(Bytes(400));
  auto* data = static_cast<std::byte*>(lent->mutable_data());
  EXPECT_THROW(block_of(*borrow(data, 401)), c10::Error);
  EXPECT_THROW(block_of(*borrow(data + 399, 2)), c10::Error);
  lent.reset();
  EXPECT_THROW(block_of(*borrow(data, 400)), c10::Error) << "it is gone";
}

TEST_F(Handle, AnAddressLeadsToItsBlock) {
  auto lent = make_handle(Bytes(400));
  auto* data = static_cast<std::byte*>(lent->mutable_data());
  Block* block = block_of(*lent);
  EXPECT_EQ(borrowed_block(*borrow(data, 400)).block, block);
  const Borrowed part = borrowed_block(*borrow(data + 100, 300));
  EXPECT_EQ(part.block, block);
  EXPECT_EQ(part.offset, 100U);
  resize_handle(*lent, MiB(3));
  EXPECT_EQ(block_of(*borrow(lent->mutable_data(), 4)), block) << "wherever its addresses are";
  EXPECT_THROW(block_of(*borrow(data, 4)), c10::Error) << "the ones before are nobody's";
}

TEST_F(Handle, NothingIsBorrowedFromOneBlockForAll) {
  Block* block = block_of(*borrow(nullptr, 0));
  EXPECT_EQ(block_of(*borrow(nullptr, 0)), block);
  EXPECT_EQ(block->size(), Bytes(0));
  EXPECT_EQ(runtime().engine().table().block_count(), 1U);
  forget_empty_block();
  EXPECT_EQ(runtime().engine().table().block_count(), 0U);
}

at::Tensor from_address(const at::Tensor& x) {
  return at::from_blob(x.mutable_data_ptr(), x.sizes(), x.strides(), x.options());
}

TEST_F(Handle, OperatorsReadAndWriteABorrowedPart) {
  const at::Tensor x = at::zeros({100}, managed());
  const at::Tensor part = from_address(x.narrow(0, 10, 20));
  part.add_(3);
  part.narrow(0, 1, 2).zero_();
  evict(x);
  const at::Tensor expected = at::zeros({100});
  expected.narrow(0, 10, 20).fill_(3).narrow(0, 1, 2).zero_();
  EXPECT_TRUE(at::equal(x.cpu(), expected));
  EXPECT_TRUE(at::equal(part.cpu(), expected.narrow(0, 10, 20)));
  EXPECT_TRUE(at::equal((x.narrow(0, 10, 20) + part).cpu(), expected.narrow(0, 10, 20) * 2));
  EXPECT_THROW(at::add_out(const_cast<at::Tensor&>(part), at::ones({50}, managed()), 1), c10::Error)
      << "what is borrowed cannot be resized";
}

TEST_F(Handle, ABorrowedTensorThatIsKeptKeepsTheMemory) {  // I12
  const at::Tensor x = at::full({1000}, 3.0, managed());
  const at::Tensor part = from_address(x.narrow(0, 500, 500));
  at::Tensor real = *Resident(part);
  EXPECT_EQ(stats().escaped, 1);
  EXPECT_TRUE(at::equal(real.cpu(), at::full({500}, 3.0)));
  real.reset();
  evict(x);
  EXPECT_EQ(stats().escaped, 0);
}

TEST_F(Handle, RealMemoryHeldByOthersOutlivesTheBlock) {  // I12
  at::Tensor real;
  {
    const at::Tensor x = at::full({1000}, 3.0, managed());
    real = *Resident(x);
  }
  EXPECT_EQ(runtime().engine().table().block_count(), 0U);
  EXPECT_EQ(check_invariants(), "") << "the memory is charged although it has no block";
  EXPECT_TRUE(at::equal(real.cpu(), at::full({1000}, 3.0)));
  int64_t charged = 0;
  for (const auto& [name, node] : stats().nodes) charged += node.resident;
  EXPECT_GE(charged, 4000);
  real.reset();
  synchronize();
  for (const auto& [name, node] : stats().nodes) EXPECT_EQ(node.resident, 0) << name;
}

TEST_F(Handle, DiesOnAnyThread) {
  at::Tensor x = at::ones({5000}, managed());
  std::thread([moved = std::move(x)]() mutable { moved.reset(); }).join();
}

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

TEST_F(Handle, IsCheapToMakeAndFree) {
  constexpr int kCount = 200000;
  for (int i = 0; i < 1000; ++i) make_handle(KiB(4));
  const double begin = thread_seconds();
  for (int i = 0; i < kCount; ++i) make_handle(KiB(4));
  const double nanoseconds = 1e9 * (thread_seconds() - begin) / kCount;
  std::printf("%.0f ns a handle\n", nanoseconds);
  EXPECT_LT(nanoseconds, 5000) << "a handle must not cost a system call";
}

}  // namespace
}  // namespace innkeeper::torch_layer
