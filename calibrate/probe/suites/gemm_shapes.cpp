#include "gemm_shapes.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

namespace trainyard::probe {
namespace {

constexpr std::int64_t kLow = 64, kMiddle = 1024, kHigh = 16384;

// van der Corput with the digits but 0 reversed, which breaks the correlation of the higher bases
// (Braaten and Weller 1979 in its simplest form).
double radical_inverse(std::uint64_t index, unsigned base) {
  double value = 0, weight = 1.0 / base;
  for (; index > 0; index /= base, weight /= base) {
    const auto digit = static_cast<unsigned>(index % base);
    value += (digit == 0 ? 0 : base - digit) * weight;
  }
  return value;
}

// A size by its octave: 2^floor(x) and linear to the next power of two. No log, no exp: the shapes
// are the same with every C library.
std::int64_t size_at(double octave) {
  const int whole = static_cast<int>(octave);
  const double size = static_cast<double>(std::int64_t{1} << whole) * (1 + (octave - whole));
  return static_cast<std::int64_t>(size + 0.5);
}

std::int64_t rounded(std::int64_t size, std::int64_t multiple) {
  return std::max(multiple, (size + multiple / 2) / multiple * multiple);
}

Layout layout_at(std::size_t index) {
  return static_cast<Layout>(index % 3);
}

// A product of the forward pass, and what its two gradients make of it.
GemmShape of_pass(std::int64_t tokens, std::int64_t outputs, std::int64_t inputs, Layout layout) {
  switch (layout) {
    case Layout::tn: return {tokens, outputs, inputs, 1, layout};
    case Layout::nn: return {tokens, inputs, outputs, 1, layout};
    case Layout::nt: return {outputs, inputs, tokens, 1, layout};
  }
  return {};
}

// Layers of transformers, every combination once. The stride through the list is near the golden
// section of its length and no factor in common with it, so that any beginning is spread out.
std::vector<GemmShape> transformer_shapes() {
  constexpr std::array<std::int64_t, 12> kHidden = {4096, 768,  12288, 2048, 8192, 1024,
                                                    5120, 1600, 16384, 3072, 7168, 2560};
  constexpr std::array<std::int64_t, 5> kTokens = {4096, 1024, 8192, 2048, 16384};
  std::vector<GemmShape> all;
  for (const std::int64_t h : kHidden) {
    for (const std::int64_t tp : {1, 2, 4, 8}) {
      const std::int64_t gated = rounded(h * 7 / 2, 256);  // Llama 3's width of the MLP
      const std::array<std::array<std::int64_t, 2>, 7> layers = {{
          {3 * h / tp, h},      // query, key, value
          {h, h / tp},          // projection
          {4 * h / tp, h},      // MLP of GPT
          {h, 4 * h / tp},      //
          {2 * gated / tp, h},  // MLP of Llama, gate and up in one
          {h, gated / tp},      //
          {51200 / tp, h},      // logits of GPT
      }};
      for (const auto& [outputs, inputs] : layers)
        for (const std::int64_t tokens : kTokens)
          for (std::size_t pass = 0; pass < 3; ++pass)
            all.push_back(of_pass(tokens, outputs, inputs, layout_at(pass)));
    }
  }
  std::vector<GemmShape> spread;
  const std::size_t count = all.size();
  std::size_t stride = count * 618 / 1000;
  while (std::gcd(stride, count) != 1)
    ++stride;
  for (std::size_t i = 0; i < count; ++i)
    spread.push_back(all[i * stride % count]);
  return spread;
}

GemmShape filling_shape(std::size_t index) {
  const std::uint64_t i = index + 1;
  GemmShape shape;
  shape.m = rounded(size_at(4 + 11 * radical_inverse(i, 2)), 8);
  shape.n = rounded(size_at(5 + 10.5 * radical_inverse(i, 3)), 8);
  shape.k = rounded(size_at(5 + 10 * radical_inverse(i, 5)), 8);
  shape.layout = layout_at(index);
  return shape;
}

// Few rows: the end of a sequence, one sample, the router of experts.
GemmShape skinny_shape(std::size_t index) {
  const std::uint64_t i = index + 1;
  GemmShape shape;
  shape.m = size_at(6 * radical_inverse(i, 2));
  shape.n = rounded(size_at(7 + 8 * radical_inverse(i, 3)), 8);
  shape.k = rounded(size_at(7 + 8 * radical_inverse(i, 5)), 8);
  if (index % 4 == 1) std::swap(shape.m, shape.n);
  shape.layout = layout_at(index);
  return shape;
}

GemmShape uneven_shape(std::size_t index) {
  GemmShape shape = filling_shape(index + 1000);
  constexpr std::array<std::int64_t, 4> kOdd = {1, 3, 2, 4};
  shape.m += index % 3 == 0 ? 0 : kOdd[index % 4];
  shape.n += kOdd[(index + 1) % 4];
  shape.k += index % 2 == 0 ? 0 : kOdd[(index + 2) % 4];
  return shape;
}

// Scores and values of attention that is not fused.
GemmShape attention_shape(std::size_t index) {
  constexpr std::array<std::int64_t, 5> kLength = {1024, 512, 2048, 128, 4096};
  constexpr std::array<std::int64_t, 4> kHead = {128, 64, 80, 96};
  constexpr std::array<std::int64_t, 5> kBatch = {32, 96, 8, 256, 16};
  const std::int64_t length = kLength[index % 5];
  const std::int64_t head = kHead[index / 5 % 4];
  const std::int64_t batch = kBatch[(index + index / 5) % 5];
  if (index % 2 == 0) return {length, length, head, batch, Layout::tn};
  return {length, head, length, batch, index % 4 == 1 ? Layout::nn : Layout::nt};
}

// Collects what is new and fits.
class List {
 public:
  List(Type type, std::size_t count, const GemmLimits& limits)
      : type_(type), count_(count), limits_(limits) {}

  bool full() const { return shapes_.size() >= count_; }
  void add(GemmShape shape) {
    if (full()) return;
    if (type_ == Type::fp8) {
      if (shape.batch > 1) return;
      shape.m = rounded(shape.m, 16);
      shape.n = rounded(shape.n, 16);
      shape.k = rounded(shape.k, 16);
      shape.layout = Layout::tn;
    }
    if (shape.input_bytes(type_) > limits_.input_bytes ||
        shape.output_bytes(type_) > limits_.output_bytes || shape.flops() > limits_.flops)
      return;
    if (known_.insert(shape).second) shapes_.push_back(shape);
  }
  std::vector<GemmShape> take() { return std::move(shapes_); }

 private:
  Type type_;
  std::size_t count_;
  GemmLimits limits_;
  std::set<GemmShape> known_;
  std::vector<GemmShape> shapes_;
};

void add_grid(List& list, const std::vector<GemmShape>& real) {
  std::vector<GemmShape> corners, rest;
  for (const std::int64_t k : {kHigh, kLow, kMiddle})
    for (const std::int64_t n : {kHigh, kLow, kMiddle})
      for (const std::int64_t m : {kHigh, kLow, kMiddle}) {
        const bool corner = m != kMiddle && n != kMiddle && k != kMiddle;
        (corner ? corners : rest).push_back({m, n, k, 1, Layout::tn});
      }
  for (const GemmShape& shape : corners)
    list.add(shape);
  for (std::size_t i = 0; i < rest.size(); ++i) {
    list.add(real[i]);
    list.add(rest[i]);
  }
}

}  // namespace

const char* layout_name(Layout layout) {
  switch (layout) {
    case Layout::tn: return "TN";
    case Layout::nn: return "NN";
    case Layout::nt: return "NT";
  }
  return "";
}

std::size_t GemmShape::input_bytes(Type type) const {
  return static_cast<std::size_t>((m * k + k * n) * batch) * type_bytes(type);
}

std::size_t GemmShape::output_bytes(Type type) const {
  return static_cast<std::size_t>(m * n * batch) * (type == Type::fp8 ? 2 : type_bytes(type));
}

double GemmShape::flops() const {
  return 2.0 * static_cast<double>(m * n) * static_cast<double>(k * batch);
}

bool operator<(const GemmShape& a, const GemmShape& b) {
  return std::tie(a.m, a.n, a.k, a.batch, a.layout) < std::tie(b.m, b.n, b.k, b.batch, b.layout);
}

std::vector<GemmShape> gemm_shapes(Type type, std::size_t count, const GemmLimits& limits) {
  List list(type, count, limits);
  const std::vector<GemmShape> real = transformer_shapes();
  add_grid(list, real);
  std::size_t next_real = 19, filling = 0, skinny = 0, batched = 0, uneven = 0;
  for (std::size_t turn = 0; !list.full() && turn < 16 * count + 1024; ++turn) {
    switch (turn % 16) {
      case 3:
      case 11: list.add(skinny_shape(skinny++)); break;
      case 6:
      case 14: list.add(attention_shape(batched++)); break;
      case 9: list.add(uneven_shape(uneven++)); break;
      case 1:
      case 5:
      case 8:
      case 13: list.add(filling_shape(filling++)); break;
      default:
        if (next_real < real.size()) list.add(real[next_real++]);
    }
  }
  return list.take();
}

}  // namespace trainyard::probe
