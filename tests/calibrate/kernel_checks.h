// Every memory-bound kernel of the probes against its reference, for one element type. `Array` is
// the device's memory, emulated or real, and comes from the file that includes this one.
#pragma once

#include "calibrate/probe/kernels/batch_norm.cuh"
#include "calibrate/probe/kernels/elementwise.cuh"
#include "calibrate/probe/kernels/optimizer.cuh"
#include "calibrate/probe/kernels/pooling.cuh"
#include "calibrate/probe/kernels/rows.cuh"
#include "calibrate/probe/kernels/tokens.cuh"
#include "tests/calibrate/close.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

namespace trainyard {

using reference::Values;

template <typename Function>
Values each(const Values& x, Function function) {
  Values y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    y[i] = function(i);
  }
  return y;
}

// A real device also gets more than one turn of the grid-stride loops: 144 x 32 blocks of 256
// threads with a pack each. One type will do for that: the host's references take their time.
template <typename T>
std::size_t map_count() {
  if (kEmulated) return 3 * 1024;
  return std::is_same_v<T, float> ? 5 << 20 : 1 << 18;
}

template <typename T>
void check_elementwise() {
  const std::size_t count = map_count<T>();
  const std::size_t columns = 64;
  const Values x = inputs<T>(count, 1), u = inputs<T>(count, 2), dy = inputs<T>(count, 3);
  const Values bias = inputs<T>(columns, 4);
  const Array<T> at(x), up(u), slope(dy), shift(bias), one(count), two(count);
  const std::int64_t packs = static_cast<std::int64_t>(count) / probe::kPack<T>;
  const std::int64_t row = columns / probe::kPack<T>;
  const auto biased = [&](std::size_t i) { return x[i] + bias[i % columns]; };

  probe::launch_map<T, 1, 1>({{at.data()}, {one.data()}, nullptr, packs, row},
                             probe::CopyFunction{}, nullptr);
  check_close<T>(one.values(), x, 0);
  probe::launch_map<T, 2, 1>({{at.data(), up.data()}, {one.data()}, nullptr, packs, row},
                             probe::AddFunction{}, nullptr);
  check_close<T>(one.values(), each(x, [&](std::size_t i) { return x[i] + u[i]; }), 1e-6);
  probe::launch_map<T, 1, 1>({{at.data()}, {one.data()}, shift.data(), packs, row},
                             probe::GeluFunction{}, nullptr);
  check_close<T>(one.values(), each(x, [&](std::size_t i) { return reference::gelu(biased(i)); }),
                 1e-5);
  probe::launch_map<T, 2, 1>({{at.data(), slope.data()}, {one.data()}, shift.data(), packs, row},
                             probe::GeluBackwardFunction{}, nullptr);
  check_close<T>(
      one.values(),
      each(x, [&](std::size_t i) { return dy[i] * reference::slope(reference::gelu, biased(i)); }),
      1e-5);
  probe::launch_map<T, 1, 1>({{at.data()}, {one.data()}, nullptr, packs, row},
                             probe::ReluFunction{}, nullptr);
  check_close<T>(one.values(), each(x, [&](std::size_t i) { return std::fmax(x[i], 0); }), 0);
  probe::launch_map<T, 2, 1>({{at.data(), slope.data()}, {one.data()}, nullptr, packs, row},
                             probe::ReluBackwardFunction{}, nullptr);
  check_close<T>(one.values(), each(x, [&](std::size_t i) { return x[i] > 0 ? dy[i] : 0; }), 0);
  probe::launch_map<T, 2, 1>({{at.data(), up.data()}, {one.data()}, nullptr, packs, row},
                             probe::SwigluFunction{}, nullptr);
  check_close<T>(one.values(), each(x, [&](std::size_t i) { return reference::silu(x[i]) * u[i]; }),
                 1e-5);
  probe::launch_map<T, 3, 2>(
      {{at.data(), up.data(), slope.data()}, {one.data(), two.data()}, nullptr, packs, row},
      probe::SwigluBackwardFunction{}, nullptr);
  check_close<T>(
      one.values(),
      each(x,
           [&](std::size_t i) { return dy[i] * u[i] * reference::slope(reference::silu, x[i]); }),
      1e-5);
  check_close<T>(two.values(),
                 each(x, [&](std::size_t i) { return dy[i] * reference::silu(x[i]); }), 1e-5);
}

template <typename T>
void check_dropout() {
  const std::size_t count = map_count<T>();
  const double probability = 0.25;
  const std::uint64_t seed = 77;
  const Values x = inputs<T>(count, 1);
  const Array<T> at(x), out(count), back(count);
  const Array<std::uint8_t> mask(count);
  const std::int64_t length = static_cast<std::int64_t>(count);
  probe::launch_dropout(at.data(), out.data(), mask.data(), length, probability, seed, nullptr);
  const Values kept = mask.values();
  // The mask is the generator's: word i % 4 of counter i / 4, kept if it is not below the
  // threshold.
  const Values expected = each(x, [&](std::size_t i) {
    return probe::philox(i / 4, 0, seed).word[i % 4] >= 0x40000000u ? 1.0 : 0.0;
  });
  CHECK(kept == expected);
  double share = 0;
  for (const double k : kept) {
    share += k / static_cast<double>(count);
  }
  CHECK(share == about(1 - probability).within(4 * std::sqrt(0.25 / 0.75 / count)));
  const Values y = each(x, [&](std::size_t i) { return kept[i] * x[i] / (1 - probability); });
  check_close<T>(out.values(), y, 1e-6);
  probe::launch_dropout_backward(at.data(), mask.data(), back.data(), length, probability, nullptr);
  check_close<T>(back.values(), y, 1e-6);
}

template <typename T>
void check_rope() {
  const int length = 6, heads = 3, size = 64, tokens = 2 * length;
  const Values x = inputs<T>(tokens * heads * size, 1);
  Values cosine, sine;
  for (int p = 0; p < length; ++p) {
    for (int i = 0; i < size / 2; ++i) {
      cosine.push_back(std::cos(p / std::pow(10000.0, 2.0 * i / size)));
      sine.push_back(std::sin(p / std::pow(10000.0, 2.0 * i / size)));
    }
  }
  const Array<T> at(x), out(x.size());
  const Array<float> c(cosine), s(sine);
  for (const bool backward : {false, true}) {
    probe::launch_rope(at.data(), out.data(), c.data(), s.data(), tokens, length, heads, size,
                       backward, nullptr);
    check_close<T>(out.values(), reference::rope(x, length, heads, size, backward), 1e-6);
  }
}

// Columns that fill a warp in part, several warps, and two and four turns of the largest block.
template <typename T>
void check_norm() {
  const int turn = 512 * probe::kPack<T>;
  for (const int columns : {2 * probe::kPack<T>, 80 * probe::kPack<T>, turn + 64, 4 * turn}) {
    for (const bool centre : {true, false}) {
      CAPTURE(columns);
      // 300: more than norm_parts. The emulation takes its time, so it has them once.
      const bool many = columns < 100 && (!kEmulated || (centre && std::is_same_v<T, float>));
      const int rows = many ? 300 : 3;
      const std::size_t count = static_cast<std::size_t>(rows) * columns;
      const Values x = inputs<T>(count, 1), dy = inputs<T>(count, 2), gamma = inputs<T>(columns, 3);
      const Values beta = inputs<T>(columns, 4);
      const Array<T> at(x), slope(dy), scale(gamma), shift(beta), y(count), dx(count);
      const Array<T> dgamma(columns), dbeta(columns);
      const Array<float> mean(rows), inverse(rows);
      const Array<float> parts(static_cast<std::size_t>(probe::norm_parts(rows)) * 2 * columns);
      probe::launch_norm<T>({at.data(), scale.data(), shift.data(), y.data(), mean.data(),
                             inverse.data(), rows, columns, 1e-5f},
                            centre, nullptr);
      const auto forward = reference::norm(x, gamma, beta, 1e-5, centre);
      check_close<T>(y.values(), forward.y, 2e-5);
      check_close<float>(inverse.values(), forward.inverse, 1e-5);
      if (centre) check_close<float>(mean.values(), forward.mean, 1e-5);
      probe::launch_norm_backward<T>(
          {at.data(), slope.data(), scale.data(), mean.data(), inverse.data(), dx.data(),
           parts.data(), dgamma.data(), dbeta.data(), rows, columns},
          centre, nullptr);
      const auto backward = reference::norm_backward(x, dy, gamma, 1e-5, centre);
      check_close<T>(dx.values(), backward.dx, 5e-5);
      check_close<T>(dgamma.values(), backward.dgamma, 2e-4);
      if (centre) check_close<T>(dbeta.values(), backward.dbeta, 2e-4);
    }
  }
}

template <typename T>
void check_softmax() {
  const int turn = 512 * probe::kPack<T>;
  for (const int columns : {2 * probe::kPack<T>, 64, turn + 64, 4 * turn}) {
    for (const int queries : {0, 64}) {
      CAPTURE(columns);
      const int rows = columns != 64 ? 4 : kEmulated ? 66 : 3000;  // 3000: more than row_grid
      const std::size_t count = static_cast<std::size_t>(rows) * columns;
      const Values x = inputs<T>(count, 1), dy = inputs<T>(count, 2);
      const Array<T> at(x), slope(dy), y(count), dx(count);
      probe::launch_softmax<T>({at.data(), y.data(), rows, columns, queries, 0.7f}, queries > 0,
                               nullptr);
      const Values forward = reference::softmax(x, columns, 0.7f, queries);
      check_close<T>(y.values(), forward, 1e-6);
      const Array<T> kept(forward);
      probe::launch_softmax_backward<T>(
          {kept.data(), slope.data(), dx.data(), rows, columns, queries, 0.7f}, queries > 0,
          nullptr);
      check_close<T>(dx.values(), reference::softmax_backward(kept.values(), dy, columns, 0.7f),
                     1e-6);
    }
  }
}

template <typename T>
void check_tokens() {
  const int vocabulary = 10, columns = 40 * probe::kPack<T>, tokens = 24;
  const Values table = inputs<T>(vocabulary * columns, 1), dout = inputs<T>(tokens * columns, 2);
  Values ids;
  for (int t = 0; t < tokens; ++t) {
    ids.push_back(t * t % vocabulary);  // repeats
  }
  const Array<T> from(table), out(tokens * columns), slope(dout);
  const Array<std::int32_t> id(ids);
  probe::launch_gather(from.data(), id.data(), out.data(), tokens, columns, nullptr);
  Values gathered(tokens * columns), sums(vocabulary * columns, 0.25);
  const Array<float> gradient(sums);  // added to what is there
  for (int i = 0; i < tokens * columns; ++i) {
    const int to = static_cast<int>(ids[i / columns]) * columns + i % columns;
    gathered[i] = table[to];
    sums[to] += dout[i];
  }
  check_close<T>(out.values(), gathered, 0);
  probe::launch_scatter_add(slope.data(), id.data(), gradient.data(), tokens, columns, nullptr);
  check_close<float>(gradient.values(), sums, 1e-5);
}

template <typename T>
void check_cross_entropy() {
  const int rows = 3, columns = 1100 * probe::kPack<T>;  // more packs than threads
  const Values logits = inputs<T>(static_cast<std::size_t>(rows) * columns, 1);
  const std::vector<std::int32_t> labels = {0, columns - 1, 77};
  const Array<T> x(logits);
  const Array<std::int32_t> chosen(Values(labels.begin(), labels.end()));
  const Array<float> loss(rows);
  probe::launch_cross_entropy(x.data(), chosen.data(), loss.data(), rows, columns, 0.5f, nullptr);
  const auto expected = reference::cross_entropy(logits, labels, columns, 0.5);
  check_close<float>(loss.values(), expected.loss, 2e-5);
  check_close<T>(x.values(), expected.gradient, 1e-6);
}

template <typename T>
void check_optimizers() {
  const std::size_t count = map_count<T>();
  const std::int64_t packs = static_cast<std::int64_t>(count) / probe::kPack<T>;
  const Values gradient = inputs<T>(count, 1), weight = inputs<float>(count, 2);
  const Values first = inputs<float>(count, 3);
  const Values second = each(first, [&](std::size_t i) { return first[i] * first[i]; });
  const int step = 3;
  const reference::AdamRates rates{0.01f, 0.9f, 0.95f, 1e-8f, 0.1f};
  const Array<T> g(gradient), copy(count);
  {
    const Array<float> w(weight), m(first), v(second);
    const float correction1 = static_cast<float>(1 / (1 - std::pow(rates.beta1, step)));
    const float correction2 = static_cast<float>(1 / (1 - std::pow(rates.beta2, step)));
    probe::launch_adam<T>({g.data(), w.data(), m.data(), v.data(), copy.data(), packs},
                          {0.01f, 0.9f, 0.95f, 1e-8f, 0.1f, correction1, correction2}, nullptr);
    const auto after = [&](std::size_t i) {
      return reference::adam({weight[i], first[i], second[i]}, gradient[i], rates, step);
    };
    check_close<float>(w.values(), each(weight, [&](std::size_t i) { return after(i).weight; }),
                       2e-6);
    check_close<float>(m.values(), each(weight, [&](std::size_t i) { return after(i).first; }),
                       2e-6);
    check_close<float>(v.values(), each(weight, [&](std::size_t i) { return after(i).second; }),
                       2e-6);
    if (!std::is_same_v<T, float>) CHECK(copy.values() == rounded<T>(w.values()));
  }
  const Array<float> w(weight), m(first);
  probe::launch_momentum<T>({g.data(), w.data(), m.data(), nullptr, copy.data(), packs},
                            {0.01f, 0.9f, 0.1f}, nullptr);
  const auto velocity = [&](std::size_t i) {
    return double{0.9f} * first[i] + gradient[i] + double{0.1f} * weight[i];
  };
  check_close<float>(m.values(), each(weight, velocity), 2e-6);
  check_close<float>(
      w.values(),
      each(weight, [&](std::size_t i) { return weight[i] - double{0.01f} * velocity(i); }), 2e-6);
}

template <typename T>
void check_sums() {
  const std::size_t count = map_count<T>();
  const Values x = inputs<T>(count, 1);
  double sum = 0, squares = 0;
  for (const double value : x) {
    sum += value;
    squares += value * value;
  }
  const Array<T> at(x);
  const Array<float> parts(probe::kSumParts), result(1);
  const std::int64_t length = static_cast<std::int64_t>(count);
  probe::launch_sum(at.data(), length, false, parts.data(), result.data(), nullptr);
  // The sum of random signs is small beside what was added: the error goes with the square root.
  check_close<float>(result.values(), {sum}, 1e-6 * std::sqrt(squares) * 10);
  probe::launch_sum(at.data(), length, true, parts.data(), result.data(), nullptr);
  check_close<float>(result.values(), {std::sqrt(squares)}, 1e-5 * std::sqrt(squares));
}

template <typename T>
void check_batch_norm() {
  // NHWC with few and many channels; NCHW with images of whole packs and of none.
  for (const reference::ChannelShape shape :
       {reference::ChannelShape{kEmulated ? 100 : 9000, 64, 1},
        {37, 24 * probe::kPack<T>, 1},
        {3, 3, 64},
        {2, 3, 49}}) {
    CAPTURE(shape.channels);
    const std::size_t count = static_cast<std::size_t>(shape.outer) * shape.channels * shape.inner;
    const Values x = inputs<T>(count, 1), dy = inputs<T>(count, 2);
    const Values gamma = inputs<float>(shape.channels, 3), beta = inputs<float>(shape.channels, 4);
    const Array<T> at(x), slope(dy), y(count), dx(count);
    const Array<float> scale(gamma), shift(beta), mean(shape.channels), inverse(shape.channels);
    const Array<float> dgamma(shape.channels), dbeta(shape.channels);
    const Array<float> parts(static_cast<std::size_t>(probe::kNormParts) * 2 * shape.channels);
    probe::BatchNorm<T> n{at.data(),   slope.data(),   y.data(),      scale.data(), shift.data(),
                          mean.data(), inverse.data(), dgamma.data(), dbeta.data(), parts.data(),
                          shape.outer, shape.channels, shape.inner,   1e-5f};
    probe::launch_batch_norm<T, false>(n, nullptr);
    const auto forward = reference::batch_norm(x, gamma, beta, shape, 1e-5);
    check_close<float>(mean.values(), forward.mean, 1e-5);
    check_close<float>(inverse.values(), forward.inverse, 1e-5);
    check_close<T>(y.values(), forward.y, 2e-5);
    n.out = dx.data();
    probe::launch_batch_norm<T, true>(n, nullptr);
    const auto backward = reference::batch_norm_backward(x, dy, gamma, shape, 1e-5);
    check_close<float>(dbeta.values(), backward.dbeta, 2e-4);
    check_close<float>(dgamma.values(), backward.dgamma, 2e-4);
    check_close<T>(dx.values(), backward.dx, 2e-5);
  }
}

template <typename T>
void check_pooling() {
  const int c = 2 * probe::kPack<T>;
  for (const reference::Pool s : {reference::Pool{2, 9, 12, 5, 6, c, 3, 2, 1},
                                  {2, 8, 6, 4, 3, c, 2, 2, 0},
                                  {3, 7, 7, 1, 1, c, 7, 7, 0}}) {
    const probe::PoolShape shape{s.batch,    s.in_height, s.in_width, s.out_height, s.out_width,
                                 s.channels, s.window,    s.stride,   s.padding};
    const std::size_t in = static_cast<std::size_t>(s.batch) * s.in_height * s.in_width * c;
    const std::size_t out = static_cast<std::size_t>(s.batch) * s.out_height * s.out_width * c;
    // Distinct values: which of two equal ones wins is nobody's contract. Those of seeded_values
    // may become equal when rounded, so here every value is an integer of its own.
    Values x(in);
    for (std::size_t i = 0; i < in; ++i) {
      x[i] = static_cast<double>(i * 37 % 251) - 125;
    }
    const Values dy = inputs<T>(out, 2);
    const Array<T> at(x), slope(dy), y(out), dx(in);
    const Array<std::uint8_t> winners(out);
    for (const bool maximum : {true, false}) {
      probe::launch_pool(at.data(), y.data(), winners.data(), shape, maximum, nullptr);
      check_close<T>(y.values(), reference::pool(x, s, maximum), 1e-4);
      probe::launch_pool_backward(slope.data(), winners.data(), dx.data(), shape, maximum, nullptr);
      check_close<T>(dx.values(), reference::pool_backward(x, dy, s, maximum), 1e-6);
    }
  }
}

}  // namespace trainyard
