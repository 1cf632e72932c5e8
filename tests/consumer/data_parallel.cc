// A model trained over several nodes by innkeeper::data_parallel. Prints its results and the refused calls;
// test_cpp.py compares them with Python's DataParallel.
#include <innkeeper/innkeeper.h>
#include <innkeeper/torch/data_parallel.h>
#include <torch/nn.h>
#include <torch/optim/sgd.h>

#include <cinttypes>
#include <cstdio>
#include <string>
#include <vector>

namespace {

struct NormImpl : torch::nn::Cloneable<NormImpl> {
  NormImpl() { reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(32, 64));
    norm = register_module("norm", torch::nn::BatchNorm1d(64));
    last = register_module("last", torch::nn::Linear(64, 8));
  }
  at::Tensor forward(at::Tensor x) {
    TORCH_CHECK(x.size(1) == 32, "a row has ", x.size(1), " columns at ", innkeeper::where(x).front());
    return last(torch::relu(norm(first(x))));
  }
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Norm);

struct Alone : torch::nn::Module {
  at::Tensor forward(at::Tensor x) { return x; }
};

struct Drop : torch::nn::Cloneable<Drop> {
  void reset() override {}
  at::Tensor forward(at::Tensor x) { return torch::dropout(x, 0.5, /*train=*/true); }
};

// The number of the node that is the thread's home, in place of each number.
struct Home : torch::nn::Cloneable<Home> {
  void reset() override {}
  at::Tensor forward(at::Tensor x) {
    return torch::full_like(x, innkeeper::where(torch::ones({1}, x.device())).front().back() - '0');
  }
};

uint64_t hash_of(const std::vector<at::Tensor>& tensors) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor plain = tensor.detach().cpu().contiguous();
    const auto* bytes = static_cast<const unsigned char*>(plain.const_data_ptr());
    for (size_t i = 0; i < plain.nbytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;
  }
  return hash;
}

template <typename Work>
void refused(const Work& work) {
  try {
    work();
    std::printf("not refused\n");
  } catch (const c10::Error& error) {
    std::printf("refused: %s\n", error.what_without_backtrace());
  }
}

void train() {
  torch::manual_seed(0);
  Norm net;
  net->to(innkeeper::device());
  const at::Tensor x = torch::randn({50, 32}), target = torch::randn({50, 8}).to(innkeeper::device());
  const at::Tensor before = at::detail::getDefaultCPUGenerator().get_state();
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = torch::mse_loss(innkeeper::data_parallel(net, x), target);
    loss.backward();
    optimizer.step();
    std::printf("loss %.17g\n", loss.item<double>());
  }
  std::printf("parameters %016" PRIx64 " buffers %016" PRIx64 "\n", hash_of(net->parameters()),
              hash_of(net->buffers()));
  TORCH_CHECK(at::equal(before, at::detail::getDefaultCPUGenerator().get_state()),
              "the CPU's generator was used");
  TORCH_CHECK(net->first->weight.is_leaf() && net->first->weight.grad().defined());
  const innkeeper::Stats stats = innkeeper::stats();
  for (const auto& [name, node] : stats.nodes) {
    TORCH_CHECK(node.peak <= node.budget, name, " had ", node.peak, " of ", node.budget);
    std::printf("%s computed %d\n", name.c_str(), node.ops > 0);
  }
  std::printf("fetches %d evictions %d\n", stats.fetches > 0, stats.evictions > 0);

  const torch::NoGradGuard no_grad;
  net->eval();
  const at::Tensor batch = x.to(innkeeper::device()), plain = net(batch);
  // As docs/parallel.md has it.
  torch::Tensor out = innkeeper::data_parallel(net, batch);
  std::printf("close %d at %s\n", at::allclose(plain, out), innkeeper::where(out).front().c_str());
  out = innkeeper::data_parallel(net, batch, {"sim:2", "sim:0"}, "sim:1", /*dim=*/0);
  std::printf("close %d at %s, with gradients %d\n", at::allclose(plain, out),
              innkeeper::where(out).front().c_str(), out.requires_grad());
  std::printf("a row %d\n",
              at::allclose(plain.narrow(0, 0, 1), innkeeper::data_parallel(net, x.narrow(0, 0, 1))));
}

void refuse() {
  Norm net;
  const at::Tensor x = torch::ones({4, 32});
  refused([&] { innkeeper::data_parallel(net, x); });
  net->to(innkeeper::device());
  refused([&] { innkeeper::data_parallel(net, x, {"sim:0", "sim:7"}); });
  refused([&] { innkeeper::data_parallel(net, x, {"sim:0", "sim:0"}); });
  refused([&] { innkeeper::data_parallel(net, torch::ones({4, 31})); });
  refused([&] { innkeeper::data_parallel(std::make_shared<Alone>(), x); });
}

// The random numbers depend on the seed, and differ between parts.
void draw() {
  const auto drop = std::make_shared<Drop>();
  const at::Tensor x = torch::ones({3, 1000});
  const auto drawn = [&] {
    torch::manual_seed(5);
    return innkeeper::data_parallel(drop, x).cpu();
  };
  const at::Tensor once = drawn();
  bool again = true;
  for (int i = 0; i < 20; ++i) again = again && at::equal(once, drawn());
  std::printf("again %d, another %d %d\n", again, !at::equal(once[0], once[1]), !at::equal(once[1], once[2]));
  const at::Tensor homes = innkeeper::data_parallel(std::make_shared<Home>(), x.narrow(1, 0, 1)).cpu();
  std::printf("homes %g %g %g\n", homes[0].item<double>(), homes[1].item<double>(), homes[2].item<double>());
}

}  // namespace

int main() {
  train();
  refuse();
  draw();
  return 0;
}
