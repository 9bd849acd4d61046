#include "models/layers/kept_tensors.h"

#include <algorithm>
#include <map>

#include "models/layers/operator_kinds.h"

namespace trainyard::models {

KeptTensors::KeptTensors(const LayerNetwork& network, const BatchSizes& sizes,
                         const Readers& readers, const FusedNorms& norms)
    : BatchSizes(sizes),
      network_(network),
      readers_(readers),
      norms_(norms),
      read_(network.layers.size()),
      made_(network.layers.size()) {
  const auto add = [](std::vector<Bytes>& by_layer, int layer, Bytes more) {
    Bytes& sum = by_layer[static_cast<std::size_t>(layer)];
    sum = sum + more;
  };
  std::map<int, LayerTensor> tensors;
  for (const LayerOperation& o : network_.operations) {
    const Kept own = kept(o);
    add(made_, o.layer, own.other);
    for (const LayerTensor& tensor : own.tensors)
      tensors[tensor.maker] = tensor;
  }
  for (const auto& [maker, tensor] : tensors) {
    if (is_weight(tensor)) continue;
    if (const int reader = readers_.first_layer(maker); reader >= 0)
      add(read_, reader, bytes(tensor));
    else if (maker >= 0)
      add(made_, network_.operations[static_cast<std::size_t>(maker)].layer, bytes(tensor));
  }
}

bool KeptTensors::is_weight(const LayerTensor& t) const {
  if (t.maker < 0) return false;
  const TableOp op = network_.operations[static_cast<std::size_t>(t.maker)].row.op;
  return op == TableOp::parameter || op == TableOp::buffer;
}

KeptTensors::Kept KeptTensors::kept(const LayerOperation& o) const {
  if (!o.output.gradient || norms_.absorbs(o)) return {};
  const TableOp op = o.row.op;
  if (is_convolution(op) || is_product(op) || is_norm(op) || op == TableOp::function)
    return {o.inputs, norms_.activates(o) ? signs(o) : Bytes(0)};
  if (is_activation(op)) {
    const bool in_place = o.row.in_place.value_or(false);
    const Keeps keeps = activation_keeps(op);
    if (keeps == Keeps::output || (keeps == Keeps::output_in_place && in_place))
      return {{o.output}, {}};
    if (in_place) return {{}, bytes(o.output)};
    return {o.inputs, {}};
  }
  if (op != TableOp::matmul && op != TableOp::mul) return kept_of_memory(o);
  Kept result;
  for (std::size_t i = 0; i < o.inputs.size(); ++i) {
    bool partner = false;
    for (std::size_t k = 0; k < o.inputs.size(); ++k)
      partner = partner || (k != i && o.inputs[k].gradient);
    if (partner) result.tensors.push_back(o.inputs[i]);
  }
  return result;
}

KeptTensors::Kept KeptTensors::kept_of_memory(const LayerOperation& o) const {
  const TableRow& row = o.row;
  switch (row.op) {
    case TableOp::attention: {
      std::vector<LayerTensor> tensors = o.inputs;
      tensors.push_back(o.output);
      return {tensors, batch_ * *row.heads * *row.query * size_of(Dtype::fp32)};
    }
    case TableOp::softmax: return {{o.output}, {}};
    case TableOp::max_pool: return {o.inputs, indices(o)};
    case TableOp::avg_pool:
      if (row.to == std::vector<std::int64_t>{1, 1} || row.to == std::vector<std::int64_t>{1})
        return {};
      return {o.inputs, {}};
    case TableOp::dropout: return {{}, mask(o)};
    case TableOp::stochastic_depth: return {{}, one_of_each_sample()};
    case TableOp::loss: return {{}, probabilities(o)};
    case TableOp::memory:
    case TableOp::time: return {{}, row.keeps.value_or(0) * (samples(o.output) * size_of(dtype_))};
    default: return {};
  }
}

Bytes KeptTensors::input(int index, std::span<const LayerOperation> layer, bool recompute) const {
  if (!recompute) return read_[static_cast<std::size_t>(index)];
  std::map<int, LayerTensor> read;
  for (const LayerOperation& o : layer)
    for (const LayerTensor& tensor : o.inputs)
      read[tensor.maker] = tensor;
  Bytes input;
  for (const auto& [maker, tensor] : read)
    if (!is_weight(tensor) && readers_.first_layer(maker) == index) input = input + bytes(tensor);
  return input;
}

std::vector<SharedTensor> KeptTensors::shared() const {
  // The network's input first.
  std::vector<SharedTensor> by_maker(network_.operations.size() + 1);
  const auto add = [](std::vector<int>& layers, int layer) {
    if (layers.empty() || layers.back() != layer) layers.push_back(layer);
  };
  const auto crosses = [&](const LayerTensor& tensor, const LayerOperation& reader) {
    return tensor.maker < 0 ||
           network_.operations[static_cast<std::size_t>(tensor.maker)].layer != reader.layer;
  };
  for (const LayerOperation& o : network_.operations) {
    for (const LayerTensor& tensor : o.inputs) {
      if (!crosses(tensor, o)) continue;
      SharedTensor& own = by_maker[static_cast<std::size_t>(tensor.maker + 1)];
      add(own.readers, o.layer);
      own.bytes = std::max(own.bytes, bytes(tensor));
      own.gradient = tensor.gradient;
      own.weight = is_weight(tensor);
    }
    for (const LayerTensor& tensor : kept(o).tensors)
      if (!is_weight(tensor))
        add(by_maker[static_cast<std::size_t>(tensor.maker + 1)].keepers, o.layer);
  }
  std::vector<SharedTensor> tensors;
  for (std::size_t i = 0; i < by_maker.size(); ++i) {
    if (by_maker[i].readers.empty()) continue;
    by_maker[i].maker = i == 0 ? -1 : network_.operations[i - 1].layer;
    tensors.push_back(std::move(by_maker[i]));
  }
  return tensors;
}

}  // namespace trainyard::models
