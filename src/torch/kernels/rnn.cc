// RNNs. If CPU kernels compute, they are composed as PyTorch composes them for CPUs, so the bits are the
// CPU's, backward included. (For an out-of-tree device PyTorch would take fused cells that CPUs lack, which
// round differently.) If a CUDA node computes, PyTorch's own composition for devices runs.
//
// LSTMs on padded sequences, and on packed sequences of equal length, use oneDNN under the same conditions as
// on a CPU.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/NativeFunctions.h>
#include <c10/core/GradMode.h>

#include <tuple>
#include <vector>

#include "torch/compat.h"
#include "torch/kernels/custom_kernels.h"
#include "torch/kernels/host_kernels.h"
#include "torch/kernels/rnn_layers.h"

namespace innkeeper::torch_layer {
namespace {

using at::Tensor;
using at::TensorList;
using namespace rnn;

at::IntArrayRef sizes_of(const Tensor& batch_sizes) {
  TORCH_CHECK(batch_sizes.is_cpu() && batch_sizes.scalar_type() == at::kLong && batch_sizes.numel() > 0,
              "batch_sizes of a packed sequence must be a CPU int64 tensor that is not empty");
  return {batch_sizes.const_data_ptr<int64_t>(), static_cast<size_t>(batch_sizes.numel())};
}

// ---------------------------------------------------------------- oneDNN

bool onednn_has_bfloat16() {
  static const bool has = c10::Dispatcher::singleton()
                              .findSchemaOrThrow("mkldnn::_is_mkldnn_bf16_supported", "")
                              .typed<bool()>()
                              .call();
  return has;
}

bool onednn_has_float16() {
  static const bool has = c10::Dispatcher::singleton()
                              .findSchemaOrThrow("mkldnn::_is_mkldnn_fp16_supported", "")
                              .typed<bool()>()
                              .call();
  return has;
}

bool takes_onednn(const Tensor& input, TensorList hx) {
  if (!at::hasMKLDNN() || !at::globalContext().userEnabledMkldnn() || input.numel() == 0) return false;
  if (hx[0].size(2) != hx[1].size(2)) return false;  // Projections.
  switch (input.scalar_type()) {
    case at::kFloat: return true;
    case at::kBFloat16: return onednn_has_bfloat16();
    case at::kHalf: return !at::GradMode::is_enabled() && onednn_has_float16();
    default: return false;
  }
}

Result run_onednn_lstm(const Tensor& padded, TensorList hx, TensorList params, const Options& options,
                       bool batch_first) {
  constexpr int64_t kLstm = 2;  // Number of LSTMs among oneDNN's kinds of RNN.
  Tensor input = padded.contiguous();
  const Tensor h = hx[0].contiguous();
  const Tensor c = hx[1].contiguous();
  const std::vector<Weights> weights = unpack(params, options, /*projected=*/false);
  std::vector<Tensor> last_h;
  std::vector<Tensor> last_c;
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    std::vector<Tensor> outputs;
    for (int64_t direction = 0; direction < options.directions(); ++direction) {
      const int64_t i = layer * options.directions() + direction;
      const Weights& own = weights[static_cast<size_t>(i)];
      auto [output, h_out, c_out, workspace] = at::mkldnn_rnn_layer(
          input, own.w_ih, own.w_hh,
          options.has_biases ? own.b_ih : at::zeros(own.w_ih.sizes(), own.w_ih.options()),
          options.has_biases ? own.b_hh : at::zeros(own.w_hh.sizes(), own.w_hh.options()), h[i], c[i],
          /*reverse=*/direction == 1, /*batch_sizes=*/{}, kLstm, h.size(2), options.layers,
          options.has_biases, options.bidirectional, batch_first, options.train);
      outputs.push_back(output);
      last_h.push_back(h_out);
      last_c.push_back(c_out);
    }
    input = outputs.size() == 1 ? outputs[0] : at::cat(outputs, -1);
    input = options.between_layers(input, layer);
  }
  return {input, at::stack(last_h, 0), at::stack(last_c, 0)};
}

// ---------------------------------------------------------------- operators

std::tuple<Tensor, Tensor, Tensor> lstm_input(const Tensor& input, TensorList hx, TensorList params,
                                              bool has_biases, int64_t layers, double dropout, bool train,
                                              bool bidirectional, bool batch_first) {
  if (!runs_host_kernels()) {
    return at::native::lstm(input, hx, params, has_biases, layers, dropout, train, bidirectional,
                            batch_first);
  }
  TORCH_CHECK(hx.size() == 2, "lstm expects two hidden states");
  const Options options{has_biases, layers, dropout, train, bidirectional};
  const Tensor padded = batch_first ? input.transpose(0, 1) : input;
  const Result result = takes_onednn(input, hx) ? run_onednn_lstm(padded, hx, params, options, batch_first)
                                                : run(lstm_step, padded, {}, hx[0], hx[1], params, options);
  return {batch_first ? result.output.transpose(0, 1) : result.output, result.h, result.c};
}

std::tuple<Tensor, Tensor, Tensor> lstm_data(const Tensor& data, const Tensor& batch_sizes, TensorList hx,
                                             TensorList params, bool has_biases, int64_t layers,
                                             double dropout, bool train, bool bidirectional) {
  if (!runs_host_kernels()) {
    return at::native::lstm(data, batch_sizes, hx, params, has_biases, layers, dropout, train, bidirectional);
  }
  TORCH_CHECK(hx.size() == 2, "lstm expects two hidden states");
  const at::IntArrayRef sizes = sizes_of(batch_sizes);
  const Options options{has_biases, layers, dropout, train, bidirectional};
  if (compat::kPadsEquallyLong && sizes.front() == sizes.back() && takes_onednn(data, hx)) {
    const auto length = static_cast<int64_t>(sizes.size());
    const Tensor padded = data.reshape({length, sizes.front(), data.size(-1)});
    const Result result = run_onednn_lstm(padded, hx, params, options, /*batch_first=*/false);
    return {result.output.reshape({data.size(0), -1}), result.h, result.c};
  }
  const Result result = run(lstm_step, data, sizes, hx[0], hx[1], params, options);
  return {result.output, result.h, result.c};
}

// PyTorch's own compositions, for devices.
using InputFunction = std::tuple<Tensor, Tensor> (*)(const Tensor&, const Tensor&, TensorList, bool, int64_t,
                                                     double, bool, bool, bool);
using DataFunction = std::tuple<Tensor, Tensor> (*)(const Tensor&, const Tensor&, const Tensor&, TensorList,
                                                    bool, int64_t, double, bool, bool);

template <Step kStep, InputFunction kOnDevices>
std::tuple<Tensor, Tensor> rnn_input(const Tensor& input, const Tensor& h, TensorList params, bool has_biases,
                                     int64_t layers, double dropout, bool train, bool bidirectional,
                                     bool batch_first) {
  if (!runs_host_kernels()) {
    return kOnDevices(input, h, params, has_biases, layers, dropout, train, bidirectional, batch_first);
  }
  const Result result = run(kStep, batch_first ? input.transpose(0, 1) : input, {}, h, {}, params,
                            {has_biases, layers, dropout, train, bidirectional});
  return {batch_first ? result.output.transpose(0, 1) : result.output, result.h};
}

template <Step kStep, DataFunction kOnDevices>
std::tuple<Tensor, Tensor> rnn_data(const Tensor& data, const Tensor& batch_sizes, const Tensor& h,
                                    TensorList params, bool has_biases, int64_t layers, double dropout,
                                    bool train, bool bidirectional) {
  if (!runs_host_kernels()) {
    return kOnDevices(data, batch_sizes, h, params, has_biases, layers, dropout, train, bidirectional);
  }
  const Result result = run(kStep, data, sizes_of(batch_sizes), h, {}, params,
                            {has_biases, layers, dropout, train, bidirectional});
  return {result.output, result.h};
}

void check_cell(const Tensor& input, const Tensor& hidden, const Tensor& w_ih, const Tensor& w_hh,
                int64_t gates) {
  TORCH_CHECK(input.size(1) == w_ih.size(1), "input has inconsistent input_size: got ", input.size(1),
              " expected ", w_ih.size(1));
  TORCH_CHECK(input.size(0) == hidden.size(0), "Input batch size ", input.size(0),
              " doesn't match hidden batch size ", hidden.size(0));
  TORCH_CHECK(hidden.size(1) == w_hh.size(1), "hidden has inconsistent hidden_size: got ", hidden.size(1),
              ", expected ", w_hh.size(1));
  TORCH_CHECK(w_ih.size(0) == gates * w_hh.size(1) && w_hh.size(0) == gates * w_hh.size(1),
              "weights of a cell with ", gates, " gates and hidden size ", w_hh.size(1), " have ",
              w_ih.size(0), " and ", w_hh.size(0), " rows");
}

using OptionalTensor = std::optional<Tensor>;

std::tuple<Tensor, Tensor> lstm_cell(const Tensor& input, TensorList hx, const Tensor& w_ih,
                                     const Tensor& w_hh, const OptionalTensor& b_ih,
                                     const OptionalTensor& b_hh) {
  if (!runs_host_kernels()) return at::native::lstm_cell(input, hx, w_ih, w_hh, b_ih, b_hh);
  TORCH_CHECK(hx.size() == 2, "lstm_cell expects two hidden states");
  check_cell(input, hx[0], w_ih, w_hh, 4);
  check_cell(input, hx[1], w_ih, w_hh, 4);
  const Weights weights{w_ih, w_hh, b_ih.value_or(Tensor()), b_hh.value_or(Tensor()), {}};
  const Hidden result = lstm_step(weights.input_gates(input), {hx[0], hx[1]}, weights);
  return {result.h, result.c};
}

Tensor gru_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh,
                const OptionalTensor& b_ih, const OptionalTensor& b_hh) {
  if (!runs_host_kernels()) return at::native::gru_cell(input, hx, w_ih, w_hh, b_ih, b_hh);
  check_cell(input, hx, w_ih, w_hh, 3);
  const Weights weights{w_ih, w_hh, b_ih.value_or(Tensor()), b_hh.value_or(Tensor()), {}};
  return gru_step(weights.input_gates(input), {hx, {}}, weights).h;
}

}  // namespace

// Both keys, because the operators are CompositeImplicit: see random_ops.cc.
void register_rnns() {
  for (const c10::DispatchKey key : {kManagedAutogradKey, kManagedKey}) {
    torch::Library& m = kernels_for("aten", key);
    m.impl("lstm.input", lstm_input);
    m.impl("lstm.data", lstm_data);
    m.impl("gru.input", rnn_input<gru_step, at::native::gru>);
    m.impl("gru.data", rnn_data<gru_step, at::native::gru>);
    m.impl("rnn_tanh.input", rnn_input<tanh_step, at::native::rnn_tanh>);
    m.impl("rnn_tanh.data", rnn_data<tanh_step, at::native::rnn_tanh>);
    m.impl("rnn_relu.input", rnn_input<relu_step, at::native::rnn_relu>);
    m.impl("rnn_relu.data", rnn_data<relu_step, at::native::rnn_relu>);
    m.impl("lstm_cell", lstm_cell);
    m.impl("gru_cell", gru_cell);
  }
}

}  // namespace innkeeper::torch_layer
