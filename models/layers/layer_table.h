// A network as a table of layers, each a list of operations: any network at all, written by hand or
// captured from a framework. docs/layers.md has the format and the rules by which shapes, counts,
// kernels and memory follow from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/families/network.h"
#include "models/layer/kernel.h"
#include "models/layer/layer_work.h"
#include "sim/base/units.h"

namespace trainyard::models {

enum class TableOp : std::uint8_t {
  conv,
  depthwise_conv,
  conv_transpose,
  linear,
  gemm,
  matmul,
  attention,
  batch_norm,
  group_norm,
  layer_norm,
  relu,
  sigmoid,
  tanh,
  leaky_relu,
  elu,
  gelu,
  silu,
  relu6,
  hardswish,
  hardsigmoid,
  mish,
  softplus,
  max_pool,
  avg_pool,
  resize,
  softmax,
  dropout,
  stochastic_depth,
  function,
  scale,
  shift,
  loss,
  add,
  mul,
  elementwise,
  concat,
  copy,
  pad,
  reduce,
  slice,
  part,
  gather,
  view,
  parameter,
  buffer,
  constant,
  embedding,
  memory,
  time,
};

// Elements that an operation `memory` moves.
struct TableTraffic {
  std::int64_t read = 0, written = 0;
};

// An operation as written. What is absent has its default; two numbers of an image are height and
// width, a single one stands for both.
struct TableRow {
  TableOp op = TableOp::conv;
  std::string name;
  std::optional<std::vector<std::string>> after;
  std::vector<std::int64_t> kernel, stride, padding, dilation, output_padding, to, by, shape;
  std::optional<std::int64_t> in, out, groups, m, n, k, count, heads, kv_heads, query, key, head,
      width, rows, axis, keeps, parameters, micro_batch;
  std::optional<bool> bias, tied, affine, causal, ceil, in_place, fixed;
  std::optional<MemoryOp> as;
  std::optional<TableTraffic> forward, backward;
  std::optional<Duration> forward_time, backward_time;
};

struct TableBlock {
  std::string name;
  std::vector<TableRow> ops;
};

struct TableLayer {
  std::string name;
  std::optional<std::string> block;
  std::vector<TableRow> ops;
  std::optional<std::vector<std::string>> after;
};

struct LayerTable {
  std::vector<std::int64_t> input;  // sizes of one sample
  std::vector<TableBlock> blocks;
  std::vector<TableLayer> layers;
};

// The table worked out: every operation in its place, every tensor with its shape.
//
// A tensor is what an operation hands on, or the network's input. Views of it are tensors of the
// same maker.
struct LayerTensor {
  std::vector<std::int64_t> shape;
  std::int64_t count = 1;  // elements: of a sample, or in all if `fixed`
  bool fixed = false;
  bool gradient = false;  // it needs one
  int maker = -1;         // index of the operation; -1: the network's input
};

// Of both kinds: over images, with weights.
bool is_convolution(TableOp op);

struct LayerOperation {
  TableRow row;
  std::string name;  // "LAYER OPERATION"
  int layer = 0;
  std::vector<LayerTensor> inputs;
  LayerTensor output;
  std::int64_t groups = 1;
  std::int64_t parameters = 0, multiply_adds = 0;
  std::optional<WeightMatrix> matrix;  // among the parameters
};

// Sizes of tensors in a micro-batch.
class BatchSizes {
 public:
  BatchSizes(std::int64_t batch, Dtype dtype) : batch_(batch), dtype_(dtype) {}

  std::int64_t samples(const LayerTensor& t) const { return t.fixed ? 1 : batch_; }
  std::int64_t elements(const LayerTensor& t) const { return t.count * samples(t); }
  Bytes bytes(const LayerTensor& t) const { return elements(t) * size_of(dtype_); }
  Bytes bytes(const std::vector<LayerTensor>& tensors) const {
    Bytes sum;
    for (const LayerTensor& tensor : tensors)
      sum = sum + bytes(tensor);
    return sum;
  }
  Bytes one_of_each_sample() const { return batch_ * size_of(dtype_); }
  // Beside an output: indices of maxima, the mask of a dropout, fp32 probabilities, a bit for the
  // sign of each element.
  Bytes indices(const LayerOperation& o) const { return Bytes(8 * elements(o.output)); }
  Bytes mask(const LayerOperation& o) const { return Bytes(elements(o.output)); }
  Bytes signs(const LayerOperation& o) const { return Bytes((elements(o.output) + 7) / 8); }
  Bytes probabilities(const LayerOperation& o) const {
    return elements(o.output) * size_of(Dtype::fp32);
  }

 protected:
  std::int64_t batch_;
  Dtype dtype_;
};

struct LayerNetwork {
  std::vector<std::string> layers;
  std::vector<LayerOperation> operations;  // in forward order; layers are contiguous
  std::int64_t parameters = 0, multiply_adds = 0;
};

// Why a row has no shape. Thrown and caught inside the room.
struct RowRefused {
  std::string key;  // of the row; empty: the row as a whole
  std::string message, hint;
};

// Elements of a tensor. Throws RowRefused above 2^44.
std::int64_t count_of(const std::vector<std::int64_t>& shape);

// Fills in the output's shape, and the counts, of an operation whose row and inputs are known.
// Throws RowRefused if they do not fit each other.
void measure(LayerOperation& operation);

// The same network with layers of one branch each: a layer is cut where it parts (what is made
// there several operations read) and where branches of it join. Pieces are called "LAYER/1",
// "LAYER/2", ..., with more slashes where names of layers have as many; a layer without branches
// stays one. What reads nothing, weights and constants, goes with what stands behind it.
LayerNetwork cut_at_branches(LayerNetwork network);

// Kernels and memory of the layers. Requires: as models::network_work.
NetworkWork expand(const LayerNetwork& network, const Execution& execution);

// What is wrong with a table; `pointer` begins at its top ("/layers/3/after/0").
struct TableProblem {
  std::string pointer, message, hint;
};

// Works out a table. With problems the result is what could be understood.
// Requires: rows have the keys that their operation needs, and numbers of at least 0.
LayerNetwork resolve(const LayerTable& table, std::vector<TableProblem>& problems);

const Family<LayerNetwork>& row_of(const LayerNetwork*);

}  // namespace trainyard::models
