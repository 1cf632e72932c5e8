// Trains a model on the managed device with PyTorch's C++ interface, as on any other: innkeeper::device() is
// all that is ours here, and the first thing that touches the device is a module.
#include <innkeeper/torch/managed.h>
#include <torch/torch.h>

#include <cstdio>
#include <sstream>
#include <vector>

namespace {

struct Net : torch::nn::Module {
  Net() {
    convolution =
        register_module("convolution", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3).padding(1)));
    norm = register_module("norm", torch::nn::BatchNorm2d(4));
    dropout = register_module("dropout", torch::nn::Dropout(0.2));
    linear = register_module("linear", torch::nn::Linear(4 * 8 * 8, 10));
  }
  at::Tensor forward(at::Tensor x) {
    x = torch::relu(norm(convolution(x)));
    return linear(dropout(x.flatten(1)));
  }
  torch::nn::Conv2d convolution{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
  torch::nn::Linear linear{nullptr};
};

struct Digits : torch::data::datasets::Dataset<Digits> {
  torch::data::Example<> get(size_t index) override {
    const auto i = static_cast<int64_t>(index);
    return {images[i], labels[i]};
  }
  torch::optional<size_t> size() const override { return 64; }
  at::Tensor images = torch::linspace(-1, 1, 64 * 8 * 8).reshape({64, 1, 8, 8});
  at::Tensor labels = torch::arange(64) % 10;
};

std::vector<at::Tensor> state(const torch::nn::Module& module) {
  std::vector<at::Tensor> all = module.parameters();
  for (const at::Tensor& buffer : module.buffers()) all.push_back(buffer);
  for (at::Tensor& tensor : all) tensor = tensor.detach().cpu();
  return all;
}

void step_through(const std::shared_ptr<Net>& net, torch::optim::Optimizer& optimizer, c10::Device device) {
  const auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      Digits().map(torch::data::transforms::Stack<>()), torch::data::DataLoaderOptions(16).workers(2));
  for (auto& batch : *loader) {
    optimizer.zero_grad();
    const at::Tensor loss =
        torch::nn::functional::cross_entropy(net->forward(batch.data.to(device)), batch.target.to(device));
    loss.backward();
    optimizer.step();
  }
}

// Two epochs, saved and loaded between them.
std::vector<at::Tensor> train(c10::Device device) {
  torch::manual_seed(0);
  auto net = std::make_shared<Net>();
  net->to(device);
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
  torch::manual_seed(2);
  step_through(net, optimizer, device);
  std::stringstream model_file, optimizer_file;
  torch::save(net, model_file);
  torch::save(optimizer, optimizer_file);
  auto again = std::make_shared<Net>();
  again->to(device);
  torch::load(again, model_file, device);
  torch::optim::AdamW its_optimizer(again->parameters(), torch::optim::AdamWOptions(1e-2));
  torch::load(its_optimizer, optimizer_file, device);
  torch::manual_seed(3);
  step_through(again, its_optimizer, device);
  std::stringstream moved;
  torch::save(again, moved);
  auto on_cpu = std::make_shared<Net>();
  torch::load(on_cpu, moved, torch::kCPU);
  return state(*on_cpu);
}

}  // namespace

int main() {
  const std::vector<at::Tensor> managed = train(innkeeper::device());
  const std::vector<at::Tensor> plain = train(torch::kCPU);
  TORCH_CHECK(managed.size() == plain.size() && !plain.empty());
  for (size_t i = 0; i < plain.size(); ++i) {
    TORCH_CHECK(torch::equal(managed[i], plain[i]), "tensor ", i, " of ", plain.size(), " differs");
  }
  std::printf("%zu tensors equal\n", plain.size());
  return 0;
}
