// Recurrent networks composed of ordinary operators, in the order in which PyTorch's CPU composition calls
// them, so the bits are the CPU's, backward included.
//
// All functions work on tensors of any device. They are differentiable because the operators that they call
// are.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace innkeeper::torch_layer::rnn {

// Weights of one layer in one direction. Biases and the projection w_hr may be undefined.
struct Weights {
  at::Tensor w_ih, w_hh, b_ih, b_hh, w_hr;

  at::Tensor input_gates(const at::Tensor& input) const;
  at::Tensor hidden_gates(const at::Tensor& hidden) const;
};

// State from one step of a cell to the next; `c` is defined only for an LSTM.
struct Hidden {
  at::Tensor h, c;
};

// One step of a cell. `input_gates`: W_ih x + b_ih.
using Step = Hidden (*)(const at::Tensor& input_gates, const Hidden& hidden, const Weights& weights);
Hidden lstm_step(const at::Tensor& input_gates, const Hidden& hidden, const Weights& weights);
Hidden gru_step(const at::Tensor& input_gates, const Hidden& hidden, const Weights& weights);
Hidden tanh_step(const at::Tensor& input_gates, const Hidden& hidden, const Weights& weights);
Hidden relu_step(const at::Tensor& input_gates, const Hidden& hidden, const Weights& weights);

struct Options {
  bool has_biases;
  int64_t layers;
  double dropout;
  bool train;
  bool bidirectional;

  int64_t directions() const { return bidirectional ? 2 : 1; }
  // Applies dropout, if there is any, between layers.
  at::Tensor between_layers(const at::Tensor& output, int64_t layer) const;
};

// Splits the flat list of weights that nn.RNNBase keeps, by layer and direction.
std::vector<Weights> unpack(at::TensorList params, const Options& options, bool projected);

struct Result {
  at::Tensor output, h, c;
};

// Runs all layers over a padded sequence (time is dimension 0, batch_sizes is empty) or a packed one. `h`
// and, for an LSTM, `c` are the initial hidden states of every layer and direction.
Result run(Step step, at::Tensor input, at::IntArrayRef batch_sizes, const at::Tensor& h, const at::Tensor& c,
           at::TensorList params, const Options& options);

}  // namespace innkeeper::torch_layer::rnn
