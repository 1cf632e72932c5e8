#include "torch/kernels/rnn_layers.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace innkeeper::torch_layer::rnn {

using at::Tensor;
using at::TensorList;

Tensor Weights::input_gates(const Tensor& input) const { return at::linear(input, w_ih, b_ih); }
Tensor Weights::hidden_gates(const Tensor& hidden) const { return at::linear(hidden, w_hh, b_hh); }

Tensor Options::between_layers(const Tensor& output, int64_t layer) const {
  if (dropout == 0 || !train || layer + 1 == layers) return output;
  return at::dropout(output, dropout, /*train=*/true);
}

Hidden lstm_step(const Tensor& input_gates, const Hidden& hidden, const Weights& weights) {
  const auto gates = weights.hidden_gates(hidden.h).add_(input_gates).unsafe_chunk(4, 1);
  const Tensor in = gates[0].sigmoid_();
  const Tensor forget = gates[1].sigmoid_();
  const Tensor cell = gates[2].tanh_();
  const Tensor out = gates[3].sigmoid_();
  const Tensor c = (forget * hidden.c).add_(in * cell);
  const Tensor h = out * c.tanh();
  return {weights.w_hr.defined() ? at::matmul(h, weights.w_hr.t()) : h, c};
}

Hidden gru_step(const Tensor& input_gates, const Hidden& hidden, const Weights& weights) {
  const auto from_input = input_gates.unsafe_chunk(3, 1);
  const auto from_hidden = weights.hidden_gates(hidden.h).unsafe_chunk(3, 1);
  const Tensor reset = from_hidden[0].add_(from_input[0]).sigmoid_();
  const Tensor update = from_hidden[1].add_(from_input[1]).sigmoid_();
  const Tensor fresh = from_input[2].add(from_hidden[2].mul_(reset)).tanh_();
  return {(hidden.h - fresh).mul_(update).add_(fresh), {}};
}

Hidden tanh_step(const Tensor& input_gates, const Hidden& hidden, const Weights& weights) {
  return {at::tanh(weights.hidden_gates(hidden.h).add_(input_gates)), {}};
}

Hidden relu_step(const Tensor& input_gates, const Hidden& hidden, const Weights& weights) {
  return {at::relu(weights.hidden_gates(hidden.h).add_(input_gates)), {}};
}

namespace {

Hidden rows_of(const Hidden& hidden, int64_t begin, int64_t end) {
  return {hidden.h.narrow(0, begin, end - begin),
          hidden.c.defined() ? hidden.c.narrow(0, begin, end - begin) : Tensor()};
}

Hidden concatenate(const std::vector<Hidden>& parts) {
  std::vector<Tensor> h;
  std::vector<Tensor> c;
  for (const Hidden& part : parts) {
    h.push_back(part.h);
    if (part.c.defined()) c.push_back(part.c);
  }
  return {at::cat(h, 0), c.empty() ? Tensor() : at::cat(c, 0)};
}

struct LayerResult {
  Tensor output;
  Hidden last;
};

// Runs a layer over a padded sequence; time is dimension 0.
LayerResult run_padded(Step step, const Tensor& input, Hidden hidden, const Weights& weights,
                       bool backwards) {
  std::vector<Tensor> gates = weights.input_gates(input).unbind(0);
  TORCH_CHECK(!gates.empty(), "Expected sequence length to be larger than 0 in RNN");
  if (backwards) std::reverse(gates.begin(), gates.end());
  std::vector<Tensor> outputs;
  for (const Tensor& step_gates : gates) {
    hidden = step(step_gates, hidden, weights);
    outputs.push_back(hidden.h);
  }
  if (backwards) std::reverse(outputs.begin(), outputs.end());
  return {at::stack(outputs, 0), hidden};
}

// Runs a layer over a packed sequence: batch_sizes never grow. Rows whose sequences end leave with their
// hidden state.
LayerResult run_packed(Step step, const Tensor& data, at::IntArrayRef batch_sizes, Hidden hidden,
                       const Weights& weights) {
  const Tensor gates = weights.input_gates(data);
  std::vector<Tensor> outputs;
  std::vector<Hidden> ended;
  int64_t offset = 0;
  int64_t rows = batch_sizes[0];
  for (const int64_t batch : batch_sizes) {
    const Tensor step_gates = gates.narrow(0, offset, batch);
    offset += batch;
    if (batch < rows) {
      ended.push_back(rows_of(hidden, batch, rows));
      hidden = rows_of(hidden, 0, batch);
    }
    rows = batch;
    hidden = step(step_gates, hidden, weights);
    outputs.push_back(hidden.h);
  }
  ended.push_back(hidden);
  std::reverse(ended.begin(), ended.end());
  return {at::cat(outputs, 0), concatenate(ended)};
}

// Runs a layer over a packed sequence from its end: rows join with their initial hidden state.
LayerResult run_packed_backwards(Step step, const Tensor& data, at::IntArrayRef batch_sizes,
                                 const Hidden& initial, const Weights& weights) {
  const Tensor gates = weights.input_gates(data);
  std::vector<Tensor> outputs;
  int64_t offset = data.size(0);
  int64_t rows = batch_sizes.back();
  Hidden hidden = rows_of(initial, 0, rows);
  for (auto batch = batch_sizes.rbegin(); batch != batch_sizes.rend(); ++batch) {
    if (*batch > rows) hidden = concatenate({hidden, rows_of(initial, rows, *batch)});
    rows = *batch;
    offset -= rows;
    hidden = step(gates.narrow(0, offset, rows), hidden, weights);
    outputs.push_back(hidden.h);
  }
  std::reverse(outputs.begin(), outputs.end());
  return {at::cat(outputs, 0), hidden};
}

}  // namespace

std::vector<Weights> unpack(TensorList params, const Options& options, bool projected) {
  const size_t stride = (options.has_biases ? 4 : 2) + (projected ? 1 : 0);
  const auto count = static_cast<size_t>(options.layers * options.directions());
  TORCH_CHECK(params.size() == stride * count, "an RNN of ", options.layers, " layers and ",
              options.directions(), " directions has ", stride * count, " weights, not ", params.size());
  std::vector<Weights> weights(count);
  for (size_t i = 0; i < count; ++i) {
    const TensorList own = params.slice(i * stride, stride);
    weights[i] = {own[0], own[1], options.has_biases ? own[2] : Tensor(),
                  options.has_biases ? own[3] : Tensor(), projected ? own[stride - 1] : Tensor()};
  }
  return weights;
}

Result run(Step step, Tensor input, at::IntArrayRef batch_sizes, const Tensor& h, const Tensor& c,
           TensorList params, const Options& options) {
  const bool projected = c.defined() && h.size(2) != c.size(2);
  const std::vector<Weights> weights = unpack(params, options, projected);
  const std::vector<Tensor> first_h = h.unbind(0);
  const std::vector<Tensor> first_c = c.defined() ? c.unbind(0) : std::vector<Tensor>(first_h.size());
  TORCH_CHECK(first_h.size() == weights.size() && first_c.size() == weights.size(),
              "Expected more hidden states: ", weights.size(), " layers and directions, ", first_h.size(),
              " hidden states");
  std::vector<Tensor> last_h;
  std::vector<Tensor> last_c;
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    std::vector<Tensor> outputs;
    for (int64_t direction = 0; direction < options.directions(); ++direction) {
      const auto i = static_cast<size_t>(layer * options.directions() + direction);
      const Hidden initial = {first_h[i], first_c[i]};
      LayerResult result;
      if (batch_sizes.empty()) {
        result = run_padded(step, input, initial, weights[i], direction == 1);
      } else if (direction == 0) {
        result = run_packed(step, input, batch_sizes, initial, weights[i]);
      } else {
        result = run_packed_backwards(step, input, batch_sizes, initial, weights[i]);
      }
      outputs.push_back(result.output);
      last_h.push_back(result.last.h);
      if (result.last.c.defined()) last_c.push_back(result.last.c);
    }
    input = outputs.size() == 1 ? outputs[0] : at::cat(outputs, -1);
    input = options.between_layers(input, layer);
  }
  return {input, at::stack(last_h, 0), last_c.empty() ? Tensor() : at::stack(last_c, 0)};
}

}  // namespace innkeeper::torch_layer::rnn
