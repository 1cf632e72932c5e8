// Trains a small classifier with PyTorch's C++ interface, as on any device. From Innkeeper it uses only the
// device, and the counters that it prints at the end. With --device cpu it does the same without Innkeeper,
// to the same bits.
#include <innkeeper/innkeeper.h>
#include <torch/torch.h>

#include <cinttypes>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

namespace {

struct NetImpl : torch::nn::Module {
  NetImpl() {
    for (int64_t channels : {1, 16, 16, 16}) {
      blocks->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, 16, 3).padding(1).bias(false)));
      blocks->push_back(torch::nn::BatchNorm2d(16));
      blocks->push_back(torch::nn::ReLU());
    }
    register_module("blocks", blocks);
    linear = register_module("linear", torch::nn::Linear(16 * 4 * 4, 4));
    epochs = register_buffer("epochs", torch::zeros({}, torch::kInt64));
  }
  torch::Tensor forward(torch::Tensor x) {
    return linear(torch::max_pool2d(blocks->forward(x), 4).flatten(1));
  }
  torch::nn::Sequential blocks;
  torch::nn::Linear linear{nullptr};
  torch::Tensor epochs;  // Number of trained epochs, saved with the model.
};
TORCH_MODULE(Net);

// Noise of 16 x 16 pixels. One quarter is a little brighter; the class is the number of that quarter.
struct Quarters : torch::data::datasets::Dataset<Quarters> {
  Quarters(int64_t count, uint64_t seed) {
    torch::manual_seed(seed);
    images = torch::randn({count, 1, 16, 16});
    labels = torch::randint(4, {count});
    for (int64_t quarter = 0; quarter < 4; ++quarter) {
      const torch::Tensor bright = labels.eq(quarter).to(torch::kFloat).mul(0.5).view({count, 1, 1, 1});
      images.narrow(2, 8 * (quarter / 2), 8).narrow(3, 8 * (quarter % 2), 8).add_(bright);
    }
  }
  torch::data::Example<> get(size_t index) override {
    const auto i = static_cast<int64_t>(index);
    return {images[i], labels[i]};
  }
  std::optional<size_t> size() const override { return images.size(0); }
  torch::Tensor images, labels;
};

struct Options {
  std::string device = "managed", save, load;
  int64_t epochs = 4;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    const bool number = value.size() < 10 && value.find_first_not_of("0123456789") == std::string::npos;
    if (name == "--device" && (value == "managed" || value == "cpu")) {
      options.device = value;
    } else if (name == "--epochs" && !value.empty() && number) {
      options.epochs = std::stoll(value);
    } else if (name == "--save" && !value.empty()) {
      options.save = value;
    } else if (name == "--load" && !value.empty()) {
      options.load = value;
    } else {
      throw std::invalid_argument(name + " " + value +
                                  "? It is --device managed or cpu, --epochs N, --save FILE, --load FILE");
    }
  }
  return options;
}

// Hash (FNV-1a) of all bytes of all parameters and buffers, in their order.
uint64_t hash_of(const Net& net) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&hash](const torch::Tensor& tensor) {
    const torch::Tensor plain = tensor.detach().cpu().contiguous();
    const auto* bytes = static_cast<const unsigned char*>(plain.const_data_ptr());
    for (size_t i = 0; i < plain.nbytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;
  };
  for (const torch::Tensor& parameter : net->parameters()) add(parameter);
  for (const torch::Tensor& buffer : net->buffers()) add(buffer);
  return hash;
}

double train_epoch(Net& net, torch::optim::Optimizer& optimizer, const Quarters& images,
                   torch::Device device) {
  const auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      Quarters(images).map(torch::data::transforms::Stack<>()),
      torch::data::DataLoaderOptions(64).workers(1));
  net->train();
  double sum = 0;
  int64_t count = 0;
  for (auto& batch : *loader) {
    optimizer.zero_grad();
    const torch::Tensor loss = torch::cross_entropy_loss(net(batch.data.to(device)), batch.target.to(device));
    loss.backward();
    optimizer.step();
    sum += loss.item<double>();
    ++count;
  }
  return sum / static_cast<double>(count);
}

int64_t count_right(Net& net, const Quarters& images, torch::Device device) {
  const torch::NoGradGuard no_grad;
  net->eval();
  const auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      Quarters(images).map(torch::data::transforms::Stack<>()), 64);
  int64_t right = 0;
  for (auto& batch : *loader) {
    const torch::Tensor said = net(batch.data.to(device)).argmax(1);
    right += said.eq(batch.target.to(device)).sum().item<int64_t>();
  }
  return right;
}

void run(const Options& options) {
  const torch::Device device = options.device == "cpu" ? torch::Device(torch::kCPU) : innkeeper::device();
  const Quarters seen(512, 1), unseen(256, 2);

  torch::manual_seed(0);
  Net net;
  net->to(device);
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(2e-3).weight_decay(0.1));
  torch::optim::StepLR schedule(optimizer, /*step_size=*/2, /*gamma=*/0.5);
  if (!options.load.empty()) {
    torch::load(net, options.load, device);
    // A schedule is not saved, so it is advanced to its last epoch.
    for (int64_t epoch = 0; epoch < net->epochs.item<int64_t>(); ++epoch) schedule.step();
    torch::load(optimizer, options.load + ".optimizer", device);
  }

  for (int64_t epoch = net->epochs.item<int64_t>() + 1; epoch <= options.epochs; ++epoch) {
    torch::manual_seed(epoch);  // Seeds the order of the images, whether or not the model was loaded.
    const double loss = train_epoch(net, optimizer, seen, device);
    schedule.step();
    net->epochs.add_(1);
    std::printf("epoch %" PRId64 ": loss %.17g, %" PRId64 " of 256 right\n", epoch, loss,
                count_right(net, unseen, device));
  }
  if (!options.save.empty()) {
    torch::save(net, options.save);
    torch::save(optimizer, options.save + ".optimizer");
  }
  std::printf("weights %016" PRIx64 "\n", hash_of(net));
  if (device.is_cpu()) return;
  for (const auto& [name, node] : innkeeper::stats().nodes) {
    std::printf("%s: peak %" PRId64 " of %" PRId64 " bytes, %" PRId64 " operators, %" PRId64 " evictions\n",
                name.c_str(), node.peak, node.budget, node.ops, node.evictions);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(parse(argc, argv));
  } catch (const c10::Error& error) {  // One line with the operator and the byte counts.
    std::fprintf(stderr, "train: %s\n", error.what_without_backtrace());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train: %s\n", error.what());
    return 1;
  }
  return 0;
}
