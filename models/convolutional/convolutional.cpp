// Kernels of a layer graph, forward in node order and backward in reverse, and what stays in
// memory.
//
// Passes over a tensor, as frameworks run them without fusion:
//   batch norm  forward  read twice (statistics, then normalization), write once
//               backward read input and gradient twice (two sums, then the result), write once
//   ReLU        forward  read, write;           backward read output and gradient, write
//   add         forward  read two, write one;   backward nothing: both inputs get the same gradient
//   max pool    forward  read, write with an 8-byte index each; backward the other way round
//   average     forward  read, write;           backward the other way round
//   loss        fp32: read logits, write probabilities; backward read them, write gradients
// Where a tensor has several readers, each gradient after the first is added by a kernel of its
// own. Biases belong to the kernels of their convolutions and matrix multiplications.
//
// Kept until the backward pass, each tensor once: the inputs of convolutions, batch norms and
// linear layers, the outputs of ReLU (computed in place, so the input is gone), indices of max
// pools, probabilities of the loss. A unit's input counts for the unit that reads it.
#include "models/convolutional/convolutional.h"

#include <algorithm>

#include "models/layer/work_list.h"
#include "sim/base/check.h"

namespace trainyard::models {
namespace {

using Kind = LayerNode::Kind;

constexpr std::int64_t kIndexBytes = 8;

class Graph {
 public:
  Graph(const Convolutional& network, const Execution& execution)
      : network_(network), batch_(execution.micro_batch.size), dtype_(execution.compute) {
    // Only matrix multiplications exist in 8 bits.
    if (dtype_ == Dtype::fp8) dtype_ = Dtype::bf16;
    last_reader_.assign(network.nodes.size(), -1);
    for (int i = 0; i < size(); ++i) {
      for (const int input : node(i).inputs) {
        if (input >= 0) last_reader_[static_cast<std::size_t>(input)] = i;
      }
    }
  }

  int size() const { return static_cast<int>(network_.nodes.size()); }
  const LayerNode& node(int i) const { return network_.nodes[static_cast<std::size_t>(i)]; }

  // Elements of one image; -1 is the network's input.
  std::int64_t features(int i) const {
    if (i < 0) return network_.in_channels * network_.in_height * network_.in_width;
    return node(i).out_channels * node(i).out_height * node(i).out_width;
  }
  std::int64_t elements(int i) const { return batch_ * features(i); }
  Bytes bytes(int i) const { return elements(i) * size_of(dtype_); }
  Bytes indices(int i) const { return Bytes(kIndexBytes * elements(i)); }
  Bytes probabilities(int i) const { return elements(i) * size_of(Dtype::fp32); }

  bool read_after(int tensor, int reader) const {
    return tensor >= 0 && last_reader_[static_cast<std::size_t>(tensor)] > reader;
  }
  bool read_outside_unit(int tensor) const {
    const int reader = last_reader_[static_cast<std::size_t>(tensor)];
    return reader >= 0 && node(reader).unit != node(tensor).unit;
  }

  Kernel convolution(int i, ConvolutionPass pass) const {
    const LayerNode& n = node(i);
    const int input = n.inputs.front();
    const bool first = input < 0;
    return Convolution{.batch = batch_,
                       .in_channels = first ? network_.in_channels : node(input).out_channels,
                       .out_channels = n.out_channels,
                       .in_height = first ? network_.in_height : node(input).out_height,
                       .in_width = first ? network_.in_width : node(input).out_width,
                       .out_height = n.out_height,
                       .out_width = n.out_width,
                       .kernel_height = n.kernel,
                       .kernel_width = n.kernel,
                       .groups = 1,
                       .pass = pass,
                       .dtype = dtype_};
  }

  std::int64_t parameters(int i) const {
    const LayerNode& n = node(i);
    const int input = n.inputs.front();
    const std::int64_t bias = n.bias ? n.out_channels : 0;
    switch (n.kind) {
      case Kind::convolution: {
        const std::int64_t in = input < 0 ? network_.in_channels : node(input).out_channels;
        return in * n.out_channels * n.kernel * n.kernel + bias;
      }
      case Kind::linear: return features(input) * n.out_channels + bias;
      case Kind::batch_norm: return 2 * n.out_channels;  // scale and shift
      default: return 0;
    }
  }

  void forward(WorkList& list, int i) const;
  void backward(WorkList& list, int i) const;
  Flops model_flops(int i) const;

  // Of the unit [first, last): the tensors it reads from outside, what else it keeps, and the
  // tensors it hands on.
  struct UnitMemory {
    Bytes input, rest, output;
  };
  UnitMemory memory(int first, int last) const;

 private:
  MemoryBound pass(MemoryOp op, Bytes read, Bytes written) const { return {op, read, written}; }
  Kernel linear(int i) const {
    return Gemm{batch_, node(i).out_channels, features(node(i).inputs.front()), 1, dtype_};
  }

  const Convolutional& network_;
  std::int64_t batch_;
  Dtype dtype_;
  std::vector<int> last_reader_;
};

void Graph::forward(WorkList& list, int i) const {
  const LayerNode& n = node(i);
  const Bytes in = bytes(n.inputs.front());
  const Bytes out = bytes(i);
  switch (n.kind) {
    case Kind::convolution: return list.kernel(n.name, convolution(i, ConvolutionPass::forward));
    case Kind::linear: return list.kernel(n.name, linear(i));
    case Kind::batch_norm: return list.kernel(n.name, pass(MemoryOp::batch_norm, 2 * in, out));
    case Kind::relu: return list.kernel(n.name, pass(MemoryOp::activation, in, out));
    case Kind::max_pool: return list.kernel(n.name, pass(MemoryOp::pooling, in, out + indices(i)));
    case Kind::average_pool: return list.kernel(n.name, pass(MemoryOp::pooling, in, out));
    case Kind::add: return list.kernel(n.name, pass(MemoryOp::elementwise, 2 * in, out));
    case Kind::softmax_loss:
      return list.kernel(n.name, pass(MemoryOp::cross_entropy, probabilities(i), probabilities(i)));
  }
}

void Graph::backward(WorkList& list, int i) const {
  const LayerNode& n = node(i);
  const int input = n.inputs.front();
  const Bytes in = bytes(input);
  const Bytes out = bytes(i);
  const std::string name = n.name + " backward";
  switch (n.kind) {
    case Kind::convolution:
      // The gradient of the images is nobody's input.
      if (input >= 0) {
        list.kernel(n.name + " data gradient", convolution(i, ConvolutionPass::data_gradient));
      }
      list.weight_gradient(n.name + " weight gradient",
                           convolution(i, ConvolutionPass::weight_gradient));
      break;
    case Kind::linear:
      if (input >= 0) {
        list.kernel(n.name + " input gradient",
                    Gemm{batch_, features(input), n.out_channels, 1, dtype_});
      }
      list.weight_gradient(n.name + " weight gradient",
                           Gemm{n.out_channels, features(input), batch_, 1, dtype_});
      break;
    case Kind::batch_norm: list.kernel(name, pass(MemoryOp::batch_norm, 4 * in, in)); break;
    case Kind::relu: list.kernel(name, pass(MemoryOp::activation, 2 * out, in)); break;
    case Kind::max_pool: list.kernel(name, pass(MemoryOp::pooling, out + indices(i), in)); break;
    case Kind::average_pool: list.kernel(name, pass(MemoryOp::pooling, out, in)); break;
    case Kind::add: break;
    case Kind::softmax_loss:
      list.kernel(name, pass(MemoryOp::cross_entropy, probabilities(i), probabilities(i)));
      break;
  }
  for (const int tensor : n.inputs) {
    if (!read_after(tensor, i)) continue;
    list.kernel(n.name + " gradient sum",
                pass(MemoryOp::elementwise, 2 * bytes(tensor), bytes(tensor)));
  }
}

Flops Graph::model_flops(int i) const {
  if (node(i).kind == Kind::convolution) return flops(convolution(i, ConvolutionPass::forward));
  if (node(i).kind == Kind::linear) return flops(linear(i));
  return Flops(0);
}

Graph::UnitMemory Graph::memory(int first, int last) const {
  std::vector<int> external;
  std::vector<bool> kept(static_cast<std::size_t>(last - first), false);
  UnitMemory result;
  for (int i = first; i < last; ++i) {
    const LayerNode& n = node(i);
    const auto own = static_cast<std::size_t>(i - first);
    const bool keeps_input =
        n.kind == Kind::convolution || n.kind == Kind::batch_norm || n.kind == Kind::linear;
    for (const int input : n.inputs) {
      if (input < first) {
        external.push_back(input);
      } else if (keeps_input) {
        kept[static_cast<std::size_t>(input - first)] = true;
      }
    }
    if (n.kind == Kind::relu) kept[own] = true;
    if (n.kind == Kind::max_pool) result.rest = result.rest + indices(i);
    if (n.kind == Kind::softmax_loss) result.rest = result.rest + probabilities(i);
  }
  std::sort(external.begin(), external.end());
  external.erase(std::unique(external.begin(), external.end()), external.end());
  for (const int tensor : external)
    result.input = result.input + bytes(tensor);
  for (int i = first; i < last; ++i) {
    if (read_outside_unit(i)) {
      result.output = result.output + bytes(i);
    } else if (kept[static_cast<std::size_t>(i - first)]) {
      result.rest = result.rest + bytes(i);
    }
  }
  return result;
}

LayerWork unit_work(const Graph& graph, int first, int last, bool recompute) {
  WorkList forward;
  WorkList backward;
  LayerWork work;
  for (int i = first; i < last; ++i) {
    graph.forward(forward, i);
    work.parameters += graph.parameters(i);
    const LayerNode& n = graph.node(i);
    if (n.kind == LayerNode::Kind::convolution || n.kind == LayerNode::Kind::linear)
      work.matrices.push_back(
          {n.out_channels, graph.parameters(i) / n.out_channels - (n.bias ? 1 : 0)});
    work.forward_model_flops = work.forward_model_flops + graph.model_flops(i);
  }
  for (int i = last - 1; i >= first; --i)
    graph.backward(backward, i);
  work.forward = forward.take();
  work.backward = backward.take();

  const Graph::UnitMemory memory = graph.memory(first, last);
  work.output = memory.output;
  work.kept.add(Module::layer_input, memory.input);
  if (!recompute) {
    work.kept.add(Module::features, memory.rest);
  } else {
    work.restored = memory.rest;
    work.restored_for_weights = true;
    work.recompute = recomputed(work.forward);
    work.recompute_model_flops = work.forward_model_flops;
  }
  return work;
}

}  // namespace

std::vector<bool> divisible_units(const Convolutional& network) {
  std::vector<bool> divisible(network.unit_names.size(), true);
  if (divisible.size() > 2) {
    divisible.front() = false;
    divisible.back() = false;
  }
  return divisible;
}

NetworkWork convolutional_work(const Convolutional& network, const Execution& execution) {
  const Graph graph(network, execution);
  const int units = static_cast<int>(network.unit_names.size());
  NetworkWork work;
  work.divisible = divisible_units(network);
  int first = 0;
  for (int unit = 0; unit < units; ++unit) {
    int last = first;
    while (last < graph.size() && graph.node(last).unit == unit)
      ++last;
    TRAINYARD_CHECK(last > first, "unit {} of {} is empty", unit, network.name);
    // The backward pass of the last unit follows its forward pass at once: recomputing it saves
    // nothing.
    const bool recompute = execution.recompute.form == Recompute::full && unit + 1 < units;
    work.kinds.push_back(unit_work(graph, first, last, recompute));
    work.kinds.back().name = network.unit_names[static_cast<std::size_t>(unit)];
    work.chain.push_back(unit);
    first = last;
  }
  TRAINYARD_CHECK(first == graph.size(), "units of {} are not contiguous", network.name);
  return work;
}

std::int64_t convolutional_parameters(const Convolutional& network) {
  const Graph graph(network, Execution{});
  std::int64_t parameters = 0;
  for (int i = 0; i < graph.size(); ++i)
    parameters += graph.parameters(i);
  return parameters;
}

}  // namespace trainyard::models
