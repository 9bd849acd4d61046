// Shapes and counts of the operations of a table, by docs/layers.md.
#include <fmt/format.h>

#include <algorithm>

#include "models/layers/layer_table.h"

namespace trainyard::models {
namespace {

using Sizes = std::vector<std::int64_t>;

constexpr std::int64_t kMostElements = std::int64_t{1} << 44;

std::string text(const Sizes& sizes) {
  return fmt::format("[{}]", fmt::join(sizes, ", "));
}

std::int64_t product(std::initializer_list<std::int64_t> factors) {
  double exact = 1;
  std::int64_t result = 1;
  for (const std::int64_t factor : factors) {
    exact *= static_cast<double>(factor);
    if (exact > static_cast<double>(kMostElements))
      throw RowRefused{"", "sizes multiply to more than 2^44", ""};
    result *= factor;
  }
  return result;
}

std::int64_t high(const Sizes& pair, std::int64_t otherwise) {
  return pair.empty() ? otherwise : pair.front();
}
std::int64_t wide(const Sizes& pair, std::int64_t otherwise) {
  return pair.empty() ? otherwise : pair.back();
}

const Sizes& image(const LayerTensor& tensor) {
  if (tensor.shape.size() != 3)
    throw RowRefused{"",
                     fmt::format("needs channels, height and width, got {}", text(tensor.shape)),
                     "put a view before it"};
  return tensor.shape;
}

struct Window {
  std::int64_t kernel, stride, padding, dilation, extra;
};

// Along height, or along width.
Window window_of(const TableRow& row, bool along_width) {
  const auto pick = [&](const Sizes& pair, std::int64_t otherwise) {
    return along_width ? wide(pair, otherwise) : high(pair, otherwise);
  };
  const std::int64_t kernel = pick(row.kernel, 1);
  const bool pools = row.op == TableOp::max_pool || row.op == TableOp::avg_pool;
  return {kernel, pick(row.stride, pools ? kernel : 1), pick(row.padding, 0), pick(row.dilation, 1),
          pick(row.output_padding, 0)};
}

// Rounded down; with "ceil" up, less a window that would begin behind image and padding.
std::int64_t reduced(const TableRow& row, std::int64_t length, bool along_width) {
  const Window w = window_of(row, along_width);
  const std::int64_t room = length + 2 * w.padding - w.dilation * (w.kernel - 1) - 1;
  if (room < 0)
    throw RowRefused{
        "kernel", fmt::format("a window of {} does not fit into {} pixels", w.kernel, length), ""};
  const bool up = row.ceil.value_or(false);
  std::int64_t steps = up ? (room + w.stride - 1) / w.stride : room / w.stride;
  if (up && steps * w.stride >= length + w.padding) --steps;
  return steps + 1;
}

std::int64_t grown(const TableRow& row, std::int64_t length, bool along_width) {
  const Window w = window_of(row, along_width);
  const std::int64_t size =
      (length - 1) * w.stride - 2 * w.padding + w.dilation * (w.kernel - 1) + w.extra + 1;
  if (size < 1) throw RowRefused{"padding", fmt::format("hands on {} pixels", size), ""};
  return size;
}

std::int64_t groups_of(const TableRow& row, std::int64_t channels, std::int64_t outputs) {
  const std::int64_t groups = row.op == TableOp::depthwise_conv ? channels : row.groups.value_or(1);
  if (channels % groups != 0 || outputs % groups != 0)
    throw RowRefused{
        row.groups ? "groups" : "out",
        fmt::format("{} groups do not divide {} and {} channels", groups, channels, outputs), ""};
  return groups;
}

void must_have(const LayerTensor& tensor, std::int64_t count) {
  if (tensor.count != count)
    throw RowRefused{"", fmt::format("{} elements where {} are needed", tensor.count, count), ""};
}

Sizes joined(const TableRow& row, const std::vector<LayerTensor>& inputs) {
  Sizes sizes = inputs.front().shape;
  const auto axis = static_cast<std::size_t>(row.axis.value_or(0));
  if (axis >= sizes.size())
    throw RowRefused{"axis", fmt::format("{} has no axis {}", text(sizes), axis), ""};
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    Sizes other = inputs[i].shape;
    if (other.size() == sizes.size()) {
      const std::int64_t along = other[axis];
      other[axis] = sizes[axis];
      if (other == sizes) {
        sizes[axis] += along;
        continue;
      }
    }
    throw RowRefused{"",
                     fmt::format("{} and {} cannot be joined along axis {}",
                                 text(inputs.front().shape), text(inputs[i].shape), axis),
                     ""};
  }
  return sizes;
}

// Rows of `width` elements.
std::int64_t rows_of(const LayerTensor& tensor, std::int64_t width, const char* key) {
  if (tensor.count % width != 0)
    throw RowRefused{key, fmt::format("{} elements are not rows of {}", tensor.count, width), ""};
  return tensor.count / width;
}

Sizes shape_of_image(const TableRow& row, const LayerTensor& first) {
  const Sizes& in = image(first);
  switch (row.op) {
    case TableOp::conv_transpose:
      return {*row.out, grown(row, in[1], false), grown(row, in[2], true)};
    case TableOp::resize:
      if (row.to.empty()) return {in[0], in[1] * high(row.by, 1), in[2] * wide(row.by, 1)};
      return {in[0], row.to.front(), row.to.back()};
    case TableOp::max_pool:
    case TableOp::avg_pool:
      if (!row.to.empty()) return {in[0], row.to.front(), row.to.back()};
      return {in[0], reduced(row, in[1], false), reduced(row, in[2], true)};
    default:
      return {row.out.value_or(in[0]), reduced(row, in[1], false), reduced(row, in[2], true)};
  }
}

Sizes shape_of_product(const TableRow& row, const std::vector<LayerTensor>& inputs) {
  const std::int64_t count = row.count.value_or(1);
  switch (row.op) {
    case TableOp::linear: {
      const std::int64_t rows = rows_of(inputs.front(), *row.in, "in");
      return rows == 1 ? Sizes{*row.out} : Sizes{rows, *row.out};
    }
    case TableOp::gemm: return {*row.m, *row.n};
    case TableOp::matmul:
      if (inputs.size() != 2) throw RowRefused{"after", "a product needs two tensors", ""};
      if (!inputs[0].fixed) must_have(inputs[0], product({count, *row.m, *row.k}));
      if (!inputs[1].fixed) must_have(inputs[1], product({count, *row.k, *row.n}));
      return {count, *row.m, *row.n};
    default:
      if (inputs.size() != 3) throw RowRefused{"after", "attention reads three tensors", ""};
      return {*row.heads, *row.query, *row.head};
  }
}

Sizes shape_of(const TableRow& row, const std::vector<LayerTensor>& inputs) {
  const bool pools_or_resizes =
      row.op == TableOp::max_pool || row.op == TableOp::avg_pool || row.op == TableOp::resize;
  if (is_convolution(row.op) || pools_or_resizes) return shape_of_image(row, inputs.front());
  switch (row.op) {
    case TableOp::linear:
    case TableOp::gemm:
    case TableOp::matmul:
    case TableOp::attention: return shape_of_product(row, inputs);
    case TableOp::embedding: {
      Sizes sizes = inputs.front().shape;
      sizes.push_back(*row.width);
      return sizes;
    }
    case TableOp::layer_norm: rows_of(inputs.front(), *row.width, "width"); break;
    case TableOp::batch_norm:
    case TableOp::group_norm: image(inputs.front()); break;
    case TableOp::concat:
      if (row.shape.empty()) return joined(row, inputs);
      break;
    case TableOp::view: must_have(inputs.front(), count_of(row.shape)); break;
    default: break;
  }
  if (!row.shape.empty()) return row.shape;
  // Smaller ones are repeated.
  return std::max_element(inputs.begin(), inputs.end(),
                          [](const LayerTensor& a, const LayerTensor& b) {
                            return std::pair(!a.fixed, a.count) < std::pair(!b.fixed, b.count);
                          })
      ->shape;
}

std::int64_t parameters_of(const LayerOperation& operation) {
  const TableRow& row = operation.row;
  if (row.tied.value_or(false)) return 0;
  const std::int64_t bias = row.bias.value_or(false) ? 1 : 0;
  const Sizes& out = operation.output.shape;
  switch (row.op) {
    case TableOp::conv:
    case TableOp::depthwise_conv:
    case TableOp::conv_transpose:
      return product({operation.inputs.front().shape[0] / operation.groups, out[0],
                      high(row.kernel, 1), wide(row.kernel, 1)}) +
             bias * out[0];
    case TableOp::linear: return product({*row.in + bias, *row.out});
    case TableOp::gemm: return product({*row.k + bias, *row.n});
    case TableOp::batch_norm:
    case TableOp::group_norm: return row.affine.value_or(true) ? 2 * out[0] : 0;
    case TableOp::layer_norm:
      return row.affine.value_or(true) ? (row.bias.value_or(true) ? 2 : 1) * *row.width : 0;
    case TableOp::embedding: return product({*row.rows, *row.width});
    case TableOp::parameter: return operation.output.count;
    default: return row.parameters.value_or(0);
  }
}

std::int64_t multiply_adds_of(const LayerOperation& operation) {
  const TableRow& row = operation.row;
  const std::int64_t count = row.count.value_or(1);
  switch (row.op) {
    case TableOp::conv:
    case TableOp::depthwise_conv:
    case TableOp::conv_transpose: {
      const Sizes& in = operation.inputs.front().shape;
      const Sizes& out = operation.output.shape;
      const Sizes& pixels = row.op == TableOp::conv_transpose ? in : out;
      return product({pixels[1], pixels[2], in[0] / operation.groups, out[0], high(row.kernel, 1),
                      wide(row.kernel, 1)});
    }
    case TableOp::linear: return product({operation.inputs.front().count, *row.out});
    case TableOp::gemm:
    case TableOp::matmul: return product({count, *row.m, *row.n, *row.k});
    case TableOp::attention: return product({2, *row.heads, *row.query, *row.key, *row.head});
    default: return 0;
  }
}

std::optional<WeightMatrix> matrix_of(const LayerOperation& o) {
  const TableRow& row = o.row;
  if (row.tied.value_or(false)) return std::nullopt;
  if (is_convolution(row.op)) {
    const std::int64_t out = o.output.shape[0];
    return WeightMatrix{
        out, o.inputs.front().shape[0] / o.groups * row.kernel.front() * row.kernel.back()};
  }
  if (row.op == TableOp::linear) return WeightMatrix{*row.out, *row.in};
  if (row.op == TableOp::gemm) return WeightMatrix{*row.n, *row.k};
  if (row.op == TableOp::embedding) return WeightMatrix{*row.rows, *row.width};
  return std::nullopt;
}

}  // namespace

bool is_convolution(TableOp op) {
  return op == TableOp::conv || op == TableOp::depthwise_conv || op == TableOp::conv_transpose;
}

std::int64_t count_of(const std::vector<std::int64_t>& sizes) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes)
    count = product({count, size});
  return count;
}

void measure(LayerOperation& operation) {
  const TableRow& row = operation.row;
  LayerTensor& out = operation.output;
  out.shape = shape_of(row, operation.inputs);
  out.count = count_of(out.shape);
  if (row.op == TableOp::view) return;
  if (is_convolution(row.op))
    operation.groups = groups_of(row, operation.inputs.front().shape[0], out.shape[0]);
  operation.parameters = parameters_of(operation);
  operation.multiply_adds = multiply_adds_of(operation);
  operation.matrix = matrix_of(operation);
}

}  // namespace trainyard::models
