// Kernels and memory of a table of layers, by docs/layers.md: kernels forward in file order and
// backward in reverse, what PyTorch keeps between the passes, what crosses a cut.
#include <algorithm>
#include <map>
#include <span>

#include "models/layer/work_list.h"
#include "models/layers/fused_norms.h"
#include "models/layers/kept_tensors.h"
#include "models/layers/layer_table.h"
#include "models/layers/operator_kinds.h"
#include "models/layers/readers.h"

namespace trainyard::models {
namespace {

class Expansion : private BatchSizes {
 public:
  Expansion(const LayerNetwork& network, const Execution& execution)
      : BatchSizes(execution.micro_batch.size,
                   // Only matrix multiplications exist in 8 bits.
                   execution.compute == Dtype::fp8 ? Dtype::bf16 : execution.compute),
        channels_first_(execution.kernels.images == ImageLayout::nchw),
        network_(network),
        readers_(network, *this),
        norms_(network, readers_, execution.kernels.fused_batch_norms),
        kept_(network, *this, readers_, norms_) {}

  LayerWork layer(int index, bool recompute) const;
  std::vector<SharedTensor> shared() const { return kept_.shared(); }
  Bytes input() const {
    std::int64_t count = 0;
    for (const LayerOperation& operation : network_.operations)
      for (const LayerTensor& tensor : operation.inputs)
        if (tensor.maker < 0) count = std::max(count, elements(tensor));
    return count * size_of(Dtype::fp32);
  }

 private:
  Gemm product(const LayerOperation& o) const {
    const TableRow& row = o.row;
    if (row.op == TableOp::gemm) return gemm(*row.m * batch_, *row.n, *row.k);
    return gemm(elements(o.inputs.front()) / *row.in, *row.out, *row.in);
  }
  std::int64_t products(const LayerOperation& o) const {
    return o.row.count.value_or(1) * samples(o.output);
  }
  Gemm gemm(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count = 1) const {
    return {.m = m, .n = n, .k = k, .batch = count, .dtype = dtype_};
  }
  Kernel convolution(const LayerOperation& o, ConvolutionPass pass) const;
  Attention attention(const LayerOperation& o, bool backward) const;
  double skipped(const LayerOperation& o) const;
  Kernel traffic(const LayerOperation& o, const TableTraffic& moved) const;
  Kernel timed(const LayerOperation& o, Duration time) const {
    return Timed{Seconds(time) *
                 (static_cast<double>(batch_) / static_cast<double>(*o.row.micro_batch))};
  }

  void forward(WorkList& list, const LayerOperation& o) const;
  void forward_passes(WorkList& list, const LayerOperation& o) const;
  void backward(WorkList& list, const LayerOperation& o, int index) const;
  void backward_of_weights(WorkList& list, const LayerOperation& o) const;
  void backward_of_norm(WorkList& list, const LayerOperation& o) const;
  void backward_of_inputs(WorkList& list, const LayerOperation& o) const;
  void backward_of_one(WorkList& list, const LayerOperation& o) const;
  void gradient_sums(WorkList& list, const LayerOperation& o, int index) const;

  // What a fused batch norm moves besides.
  struct Tail {
    Bytes signs, addend;
  };
  Tail tail(const LayerOperation& o) const {
    return {norms_.activates(o) ? signs(o) : Bytes(0), norms_.adds(o) ? bytes(o.output) : Bytes(0)};
  }
  // What a batch norm counts as: channel by channel, numbers of 16 bits go no faster than those
  // of 32. Source: NVIDIA/cudnn-frontend#134, where NHWC is twice as fast.
  Bytes normed(Bytes each) const {
    return channels_first_ && size_of(dtype_) < size_of(Dtype::fp32) ? 2 * each : each;
  }

  bool channels_first_ = false;
  const LayerNetwork& network_;
  Readers readers_;
  FusedNorms norms_;
  KeptTensors kept_;
};

Kernel Expansion::convolution(const LayerOperation& o, ConvolutionPass pass) const {
  const std::vector<std::int64_t>* in = &o.inputs.front().shape;
  const std::vector<std::int64_t>* out = &o.output.shape;
  // The convolution from its output to its input, whose data gradient it is.
  if (o.row.op == TableOp::conv_transpose) {
    std::swap(in, out);
    if (pass != ConvolutionPass::weight_gradient)
      pass = pass == ConvolutionPass::forward ? ConvolutionPass::data_gradient
                                              : ConvolutionPass::forward;
  }
  return Convolution{.batch = batch_,
                     .in_channels = (*in)[0],
                     .out_channels = (*out)[0],
                     .in_height = (*in)[1],
                     .in_width = (*in)[2],
                     .out_height = (*out)[1],
                     .out_width = (*out)[2],
                     .kernel_height = o.row.kernel.front(),
                     .kernel_width = o.row.kernel.back(),
                     .groups = o.groups,
                     .pass = pass,
                     .dtype = dtype_,
                     .channels_first = channels_first_};
}

Attention Expansion::attention(const LayerOperation& o, bool backward) const {
  const TableRow& row = o.row;
  return Attention{.batch = batch_,
                   .heads = *row.heads,
                   .kv_heads = row.kv_heads.value_or(*row.heads),
                   .query_length = *row.query,
                   .key_length = *row.key,
                   .head_size = *row.head,
                   .causal = row.causal.value_or(false),
                   .backward = backward,
                   .dtype = dtype_};
}

Kernel Expansion::traffic(const LayerOperation& o, const TableTraffic& moved) const {
  const Bytes each = samples(o.output) * size_of(dtype_);
  return MemoryBound{o.row.as.value_or(MemoryOp::elementwise), moved.read * each,
                     moved.written * each};
}

void Expansion::forward(WorkList& list, const LayerOperation& o) const {
  const TableRow& row = o.row;
  if (is_convolution(row.op)) return list.kernel(o.name, convolution(o, ConvolutionPass::forward));
  if (is_product(row.op)) return list.kernel(o.name, product(o));
  switch (row.op) {
    case TableOp::matmul: return list.kernel(o.name, gemm(*row.m, *row.n, *row.k, products(o)));
    case TableOp::attention: return list.kernel(o.name, attention(o, false));
    case TableOp::memory: return list.kernel(o.name, traffic(o, *row.forward));
    case TableOp::time: return list.kernel(o.name, timed(o, *row.forward_time));
    default: return forward_passes(list, o);
  }
}

// Kernels that only move memory.
void Expansion::forward_passes(WorkList& list, const LayerOperation& o) const {
  const Bytes in = bytes(o.inputs), out = bytes(o.output), each = one_of_each_sample();
  const auto moves = [&](MemoryOp op, Bytes read, Bytes written, const char* what = "") {
    list.kernel(o.name + what, MemoryBound{op, read, written});
  };
  const TableOp op = o.row.op;
  if (is_activation(op)) {
    if (activation_keeps(op) == Keeps::input && o.row.in_place.value_or(false))
      moves(MemoryOp::elementwise, in, out, " copy");
    return moves(MemoryOp::activation, in, out);
  }
  if (is_elementwise(op)) return moves(MemoryOp::elementwise, in, out);
  switch (op) {
    case TableOp::batch_norm:
    case TableOp::group_norm:
      return moves(MemoryOp::batch_norm, normed(2 * in) + tail(o).addend,
                   normed(out) + tail(o).signs);
    case TableOp::layer_norm: return moves(MemoryOp::layer_norm, in, out);
    case TableOp::max_pool: return moves(MemoryOp::pooling, in, out + indices(o));
    case TableOp::avg_pool:
    case TableOp::resize: return moves(MemoryOp::pooling, in, out);
    case TableOp::softmax: return moves(MemoryOp::softmax, in, out);
    case TableOp::dropout: return moves(MemoryOp::dropout, in, out + mask(o));
    case TableOp::stochastic_depth:
      moves(MemoryOp::elementwise, Bytes(0), each, " numbers");
      moves(MemoryOp::elementwise, each, each, " factors");
      return moves(MemoryOp::elementwise, in + each, out);
    case TableOp::constant: return moves(MemoryOp::elementwise, Bytes(0), out);
    case TableOp::embedding:
    case TableOp::gather: return moves(MemoryOp::embedding, out, out);
    case TableOp::loss: return moves(MemoryOp::cross_entropy, probabilities(o), probabilities(o));
    default: return;  // views, slices, parameters
  }
}

void Expansion::backward(WorkList& list, const LayerOperation& o, int index) const {
  if (!o.output.gradient) return;
  if (norms_.absorbs(o)) return gradient_sums(list, o, index);
  const TableRow& row = o.row;
  const std::string name = o.name + " backward";
  if (is_convolution(row.op) || is_product(row.op)) {
    backward_of_weights(list, o);
  } else if (is_norm(row.op)) {
    backward_of_norm(list, o);
  } else if (row.op == TableOp::loss) {
    list.kernel(name, MemoryBound{MemoryOp::cross_entropy, probabilities(o), probabilities(o)});
  } else if (row.op == TableOp::attention) {
    list.kernel(name, attention(o, true));
  } else if (row.op == TableOp::memory) {
    if (row.backward) list.kernel(name, traffic(o, *row.backward));
  } else if (row.op == TableOp::time) {
    if (row.backward_time) list.kernel(name, timed(o, *row.backward_time));
  } else if (row.op == TableOp::embedding) {
    const Bytes out = bytes(o.output);
    list.kernel(o.name + " gradient zeros", MemoryBound{MemoryOp::elementwise, Bytes(0),
                                                        *row.rows * *row.width * size_of(dtype_)});
    list.kernel(name, MemoryBound{MemoryOp::embedding, 2 * out, out});
  } else if (row.op == TableOp::matmul) {
    const std::int64_t m = *row.m, n = *row.n, k = *row.k;
    if (o.inputs[0].gradient) list.kernel(o.name + " left gradient", gemm(m, k, n, products(o)));
    if (o.inputs[1].gradient) list.kernel(o.name + " right gradient", gemm(k, n, m, products(o)));
  } else {
    backward_of_inputs(list, o);
  }
  gradient_sums(list, o, index);
}

void Expansion::backward_of_weights(WorkList& list, const LayerOperation& o) const {
  const bool wanted = o.inputs.front().gradient;
  if (is_product(o.row.op)) {
    const Gemm p = product(o);
    if (wanted) list.kernel(o.name + " input gradient", gemm(p.m, p.k, p.n));
    list.weight_gradient(o.name + " weight gradient", gemm(p.n, p.k, p.m));
    return;
  }
  if (wanted)
    list.kernel(o.name + " data gradient", convolution(o, ConvolutionPass::data_gradient));
  list.weight_gradient(o.name + " weight gradient",
                       convolution(o, ConvolutionPass::weight_gradient));
}

void Expansion::backward_of_norm(WorkList& list, const LayerOperation& o) const {
  const Bytes in = bytes(o.inputs.front());
  const bool wanted = o.inputs.front().gradient;
  const std::string name = o.name + " backward";
  if (o.row.op != TableOp::layer_norm) {
    const int passes = wanted ? 2 : 1;
    list.kernel(name,
                MemoryBound{MemoryOp::batch_norm, normed(2 * passes * in) + passes * tail(o).signs,
                            normed(wanted ? in : Bytes(0)) + tail(o).addend});
    return;
  }
  if (wanted) list.kernel(name, MemoryBound{MemoryOp::layer_norm, 2 * in, in});
  if (o.row.affine.value_or(true))
    list.kernel(o.name + " weight gradient", MemoryBound{MemoryOp::layer_norm, 2 * in, Bytes(0)});
}

void Expansion::backward_of_inputs(WorkList& list, const LayerOperation& o) const {
  const Bytes out = bytes(o.output);
  const auto moves = [&](Bytes read, Bytes written, const char* what) {
    list.kernel(o.name + what, MemoryBound{MemoryOp::elementwise, read, written});
  };
  const auto sum_over_copies = [&](const LayerTensor& input) {
    if (elements(input) < elements(o.output)) moves(out, bytes(input), " sum over copies");
  };
  if (o.row.op != TableOp::add && o.row.op != TableOp::mul && o.row.op != TableOp::elementwise) {
    const bool wanted = std::any_of(o.inputs.begin(), o.inputs.end(),
                                    [](const LayerTensor& t) { return t.gradient; });
    if (wanted) backward_of_one(list, o);
    return;
  }
  for (const LayerTensor& input : o.inputs) {
    if (!input.gradient) continue;
    if (o.row.op == TableOp::mul)
      moves(out + bytes(o.inputs) - bytes(input), out, " backward");
    else if (o.row.op == TableOp::elementwise)
      moves(out, out, " backward");
    sum_over_copies(input);
  }
}

void Expansion::backward_of_one(WorkList& list, const LayerOperation& o) const {
  const Bytes in = bytes(o.inputs.front()), out = bytes(o.output);
  const auto moves = [&](MemoryOp op, Bytes read, Bytes written, const char* what = " backward") {
    list.kernel(o.name + what, MemoryBound{op, read, written});
  };
  if (is_activation(o.row.op)) return moves(MemoryOp::activation, 2 * out, in);
  switch (o.row.op) {
    case TableOp::max_pool: return moves(MemoryOp::pooling, out + indices(o), in);
    case TableOp::avg_pool:
    case TableOp::resize: return moves(MemoryOp::pooling, out, in);
    case TableOp::softmax: return moves(MemoryOp::softmax, 2 * out, in);
    case TableOp::dropout: return moves(MemoryOp::dropout, out + mask(o), in);
    case TableOp::stochastic_depth:
      return moves(MemoryOp::elementwise, out + one_of_each_sample(), in);
    case TableOp::function: return moves(MemoryOp::elementwise, out + in, in);
    case TableOp::scale:
    case TableOp::copy:
    case TableOp::pad:
    case TableOp::reduce: return moves(MemoryOp::elementwise, out, in);
    case TableOp::part: return moves(MemoryOp::elementwise, out, out);
    case TableOp::slice:
      moves(MemoryOp::elementwise, Bytes(0), in, " gradient zeros");
      return moves(MemoryOp::elementwise, out, out);
    case TableOp::gather:
      moves(MemoryOp::elementwise, Bytes(0), in, " gradient zeros");
      return moves(MemoryOp::embedding, 2 * out, out);
    default: return;  // shifts and joins hand gradients on
  }
}

// Behind the first gradient that reaches a tensor, each further one is added to it.
void Expansion::gradient_sums(WorkList& list, const LayerOperation& o, int index) const {
  if (o.row.op == TableOp::part) return;
  for (const LayerTensor& input : o.inputs) {
    if (input.maker < 0 || !input.gradient || readers_.last(input.maker) <= index) continue;
    list.kernel(o.name + " gradient sum",
                MemoryBound{MemoryOp::elementwise, 2 * bytes(input), bytes(input)});
  }
}

// Of the two products backward for one forward: one for each operand without a gradient.
double Expansion::skipped(const LayerOperation& o) const {
  if (!o.output.gradient) return 2;
  if (o.row.op == TableOp::attention || o.multiply_adds == 0) return 0;
  const auto idle = std::count_if(o.inputs.begin(), o.inputs.end(),
                                  [](const LayerTensor& t) { return !t.gradient; });
  return static_cast<double>(idle);
}

LayerWork Expansion::layer(int index, bool recompute) const {
  LayerWork work;
  WorkList forwards;
  WorkList backwards = WorkList::of_backward();
  const std::vector<LayerOperation>& all = network_.operations;
  const auto is_before = [&](const LayerOperation& o) { return o.layer < index; };
  const auto first = static_cast<std::size_t>(
      std::partition_point(all.begin(), all.end(), is_before) - all.begin());
  std::size_t last = first;
  for (; last < all.size() && all[last].layer == index; ++last) {
    const LayerOperation& o = all[last];
    if (!norms_.absorbs(o)) forward(forwards, o);
    work.parameters += o.parameters;
    if (o.matrix) work.matrices.push_back(*o.matrix);
    const auto made = static_cast<double>(samples(o.output)) * static_cast<double>(o.multiply_adds);
    work.forward_model_flops = work.forward_model_flops + Flops(2 * made);
    if (o.row.op == TableOp::attention)
      work.forward_masked_flops = work.forward_masked_flops + masked_flops(attention(o, false));
    work.skipped_flops = work.skipped_flops + skipped(o) * Flops(2 * made);
  }
  for (std::size_t i = last; i-- > first;)
    backward(backwards, all[i], static_cast<int>(i));
  work.name = network_.layers[static_cast<std::size_t>(index)];
  work.forward = forwards.take();
  work.backward = backwards.take();
  const std::span operations = std::span(all).subspan(first, last - first);
  work.kept.add(Module::layer_input, kept_.input(index, operations, recompute));
  if (!recompute) work.kept.add(Module::features, kept_.made(index));
  work.output = readers_.crossing(index);
  work.passed_on = readers_.passed_on(index);
  if (recompute) {
    work.restored = kept_.made(index);
    work.restored_for_weights = true;
    work.recompute = recomputed(work.forward);
    work.recompute_model_flops = work.forward_model_flops;
    work.recompute_masked_flops = work.forward_masked_flops;
  }
  return work;
}

}  // namespace

NetworkWork expand(const LayerNetwork& network, const Execution& execution) {
  const Expansion expansion(network, execution);
  const int layers = static_cast<int>(network.layers.size());
  NetworkWork work;
  work.divisible.assign(network.layers.size(), true);
  // As stem and classifier the ends go with what stands beside them.
  if (layers > 2) work.divisible.front() = work.divisible.back() = false;
  for (int layer = 0; layer < layers; ++layer) {
    // The backward pass of the last layer follows its forward pass at once.
    const bool recompute = execution.recompute.form == Recompute::full && layer + 1 < layers;
    work.kinds.push_back(expansion.layer(layer, recompute));
    work.chain.push_back(layer);
  }
  work.tensors = expansion.shared();
  work.input = expansion.input();
  return work;
}

}  // namespace trainyard::models
