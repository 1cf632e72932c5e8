#include "torch/random/random_stream.h"

#include <ATen/Tensor.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/thread_annotations.h"
#include "innkeeper/torch/runtime.h"
#include "torch/accelerator/backend.h"
#include "torch/memory/device_index.h"
#include "torch/memory/handle.h"
#include "torch/process/fork.h"
#include "torch/process/thread_context.h"

namespace innkeeper::torch_layer {
namespace {

// A stream's generator with the managed device. All state is in the kernel generator behind it.
class ManagedGenerator final : public c10::GeneratorImpl {
 public:
  ManagedGenerator(at::Generator kernel, c10::DeviceIndex index)
      : c10::GeneratorImpl(device_at(index), c10::DispatchKeySet(kManagedKey)), kernel_(std::move(kernel)) {}

  static c10::DeviceType device_type() { return kManagedType; }
  const at::Generator& kernel() const { return kernel_; }

  void set_current_seed(uint64_t seed) override {
    const std::lock_guard<std::mutex> lock(kernel_.mutex());
    kernel_.set_current_seed(seed);
  }
  uint64_t current_seed() const override {
    const std::lock_guard<std::mutex> lock(mutex_of_kernel());
    return kernel_.current_seed();
  }
  uint64_t seed() override {
    const std::lock_guard<std::mutex> lock(kernel_.mutex());
    return kernel_.seed();
  }
  void set_state(const c10::TensorImpl& state) override {
    const std::lock_guard<std::mutex> lock(kernel_.mutex());
    kernel_.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const std::lock_guard<std::mutex> lock(mutex_of_kernel());
    return kernel_.unsafeGetGeneratorImpl()->get_state();
  }
  // Pickling stores an offset for every generator that is not the CPU's; here it is always 0.
  void set_offset(uint64_t offset) override {
    TORCH_CHECK(offset == 0, "a managed generator has no offset: it is a Mersenne Twister, as the CPU's is");
  }
  uint64_t get_offset() const override { return 0; }

 private:
  std::mutex& mutex_of_kernel() const { return kernel_.unsafeGetGeneratorImpl()->mutex_; }
  ManagedGenerator* clone_impl() const override {
    const std::lock_guard<std::mutex> lock(mutex_of_kernel());
    return new ManagedGenerator(kernel_.clone(), device().index());
  }

  at::Generator kernel_;
};

// Keeps the stream in the thread's context alive.
thread_local std::shared_ptr<RandomStream> thread_stream_owner;

// Indices beyond the nodes, which a LOCAL_RANK may be, share a stream with another index.
RandomStream& process_stream(c10::DeviceIndex index) {
  static auto& streams = *[] {
    auto* made = new std::vector<std::unique_ptr<RandomStream>>;
    for (size_t i = 0; i < kMaxNodes; ++i)
      made->push_back(std::make_unique<RandomStream>(static_cast<c10::DeviceIndex>(i)));
    return made;
  }();
  return *streams[static_cast<size_t>(index) % kMaxNodes];
}

void copy_state(at::CPUGeneratorImpl& from, at::CPUGeneratorImpl& to) {
  to.set_engine(from.engine());
  to.set_next_float_normal_sample(from.next_float_normal_sample());
  to.set_next_double_normal_sample(from.next_double_normal_sample());
}

at::CPUGeneratorImpl& impl_of(const at::Generator& generator) {
  return *generator.get<at::CPUGeneratorImpl>();
}

// Tickets for the default generator, served in the order of their numbers.
class Turns {
 public:
  void enter() {
    if (depth_++ != 0) return;
    MutexLock lock(mutex_);
    const uint64_t ticket = next_++;
    while (serving_ != ticket) changed_.wait(mutex_);
  }
  // Whether this is the thread's outermost scope.
  bool outermost() const { return depth_ == 1; }
  void leave() {
    if (--depth_ != 0) return;
    MutexLock lock(mutex_);
    ++serving_;
    changed_.notify_all();
  }

 private:
  static thread_local int depth_;
  Mutex mutex_;
  CondVar changed_;
  uint64_t next_ IK_GUARDED_BY(mutex_) = 0;
  uint64_t serving_ IK_GUARDED_BY(mutex_) = 0;
};
thread_local int Turns::depth_ = 0;

Turns& turns() {
  static auto& all = *new Turns;
  return all;
}

void exchange_default(at::CPUGeneratorImpl& incoming, at::CPUGeneratorImpl& outgoing,
                      std::mutex& stream_mutex) {
  const at::Generator& generator = at::detail::getDefaultCPUGenerator();
  const std::scoped_lock lock(generator.unsafeGetGeneratorImpl()->mutex_, stream_mutex);
  copy_state(impl_of(generator), outgoing);
  copy_state(incoming, impl_of(generator));
}

uint64_t next_seed(at::CPUGeneratorImpl& stream) {
  const std::lock_guard<std::mutex> lock(stream.mutex_);
  return stream.random64();
}

// The device's backend, if its kernels draw from generators of its own; else null.
Backend* with_generators(c10::Device device) {
  Backend* const backend = backend_of(device.type());
  return backend != nullptr && backend->has_generators() ? backend : nullptr;
}

}  // namespace

RandomStream::RandomStream(c10::DeviceIndex index)
    : kernel_generator_(at::detail::createCPUGenerator()),
      generator_(at::make_generator<ManagedGenerator>(kernel_generator_, index)) {}

RandomStream& current_stream(c10::DeviceIndex index) {
  const ThreadContext* caller = callers_context();
  const ThreadContext& context = caller != nullptr ? *caller : own_context();
  RandomStream* stream = context.stream.load(std::memory_order_acquire);
  return stream != nullptr ? *stream : process_stream(index);
}

std::shared_ptr<RandomStream> exchange_stream(std::shared_ptr<RandomStream> stream) {
  own_context().stream.store(stream.get(), std::memory_order_release);
  return std::exchange(thread_stream_owner, std::move(stream));
}

at::Generator new_generator(c10::DeviceIndex index) {
  return at::make_generator<ManagedGenerator>(at::detail::createCPUGenerator(), index);
}

at::Generator kernel_generator_of(const at::Generator& managed) {
  return at::check_generator<ManagedGenerator>(managed)->kernel();
}

at::Generator generator_on(c10::Device device, const at::Generator& stream) {
  if (Backend* const backend = with_generators(device))
    return backend->generator(device.index(), next_seed(impl_of(stream)));
  return stream;
}

DefaultGeneratorTurn::DefaultGeneratorTurn(RandomStream& stream, c10::Device device)
    : stream_(stream), device_(device) {
  turns().enter();
  if (!turns().outermost()) return;
  at::CPUGeneratorImpl& own = impl_of(stream_.kernel_generator());
  if (Backend* const backend = with_generators(device_)) {
    users_on_gpu_ = backend->exchange_default_generator(device_.index(), {next_seed(own), 0});
    return;
  }
  exchange_default(own, users_, own.mutex_);
}

DefaultGeneratorTurn::~DefaultGeneratorTurn() {
  if (turns().outermost()) give_back();
  turns().leave();
}

void DefaultGeneratorTurn::give_back() {
  if (Backend* const backend = with_generators(device_)) {
    (void)backend->exchange_default_generator(device_.index(), users_on_gpu_);
    return;
  }
  at::CPUGeneratorImpl& own = impl_of(stream_.kernel_generator());
  exchange_default(users_, own, own.mutex_);
}

// ---------------------------------------------------------------- the public interface (runtime.h)

// In a child of fork(), a thread of the parent may have held a generator's lock at the fork; nothing releases
// it, so the child must not wait for it.
static at::Generator generator_here() {
  refuse_in_forked_child();
  return current_stream(current_index()).generator();
}

void manual_seed(uint64_t seed) {
  at::Generator generator = generator_here();
  generator.set_current_seed(seed);
}

uint64_t seed() {
  at::Generator generator = generator_here();
  return generator.seed();
}

uint64_t initial_seed() { return generator_here().current_seed(); }

at::Tensor get_rng_state() { return generator_here().get_state(); }

void set_rng_state(const at::Tensor& state) {
  at::Generator generator = generator_here();
  generator.set_state(state);
}

}  // namespace innkeeper::torch_layer
