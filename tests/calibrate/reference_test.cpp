#include "tests/calibrate/reference.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "calibrate/probe/kernels/element_math.h"
#include "tests/calibrate/values.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

namespace trainyard {
namespace {

using reference::Values;

double weighted_sum(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

// d f / d x by central differences, element by element, against what is claimed.
void check_gradient(const std::function<double(const Values&)>& f, Values x,
                    const Values& claimed) {
  REQUIRE(x.size() == claimed.size());
  constexpr double kStep = 1e-5;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    x[i] = at + kStep;
    const double above = f(x);
    x[i] = at - kStep;
    const double below = f(x);
    x[i] = at;
    CAPTURE(i);
    CHECK(claimed[i] == about((above - below) / (2 * kStep)).within(1e-5).give_or_take(1e-5));
  }
}

TEST_CASE("softmax rows sum to 1, and a causal row sees itself and what came before") {
  const Values x = seeded_values(6 * 16, 1);
  for (const int queries : {0, 3}) {
    const Values y = reference::softmax(x, 16, 0.7, queries);
    for (int r = 0; r < 6; ++r) {
      double sum = 0;
      for (int c = 0; c < 16; ++c) {
        sum += y[r * 16 + c];
        CHECK((y[r * 16 + c] > 0) == (queries == 0 || c <= r % queries));
      }
      CHECK(sum == about(1).within(1e-12));
    }
  }
}

TEST_CASE("softmax backward is the gradient of softmax") {
  const Values x = seeded_values(4 * 8, 2);
  const Values dy = seeded_values(4 * 8, 3);
  for (const int queries : {0, 4}) {
    const Values y = reference::softmax(x, 8, 0.7, queries);
    check_gradient(
        [&](const Values& at) { return weighted_sum(reference::softmax(at, 8, 0.7, queries), dy); },
        x, reference::softmax_backward(y, dy, 8, 0.7));
  }
}

TEST_CASE("normalised rows have mean 0 and square 1") {
  const Values x = seeded_values(3 * 64, 4);
  const Values ones(64, 1);
  const Values y = reference::norm(x, ones, Values(64), 0, true).y;
  const Values rms = reference::norm(x, ones, Values(64), 0, false).y;
  for (int r = 0; r < 3; ++r) {
    double sum = 0, squares = 0, rms_squares = 0;
    for (int c = 0; c < 64; ++c) {
      sum += y[r * 64 + c];
      squares += y[r * 64 + c] * y[r * 64 + c];
      rms_squares += rms[r * 64 + c] * rms[r * 64 + c];
    }
    CHECK(std::abs(sum) < 1e-10);
    CHECK(squares == about(64));
    CHECK(rms_squares == about(64));
  }
}

TEST_CASE("norm backward is the gradient of layer norm and of RMS norm") {
  const Values x = seeded_values(3 * 16, 5);
  const Values dy = seeded_values(3 * 16, 6);
  const Values gamma = seeded_values(16, 7);
  const Values beta = seeded_values(16, 8);
  for (const bool centre : {true, false}) {
    const auto f = [&](const Values& at_x, const Values& at_gamma, const Values& at_beta) {
      return weighted_sum(reference::norm(at_x, at_gamma, at_beta, 1e-3, centre).y, dy);
    };
    const auto g = reference::norm_backward(x, dy, gamma, 1e-3, centre);
    check_gradient([&](const Values& at) { return f(at, gamma, beta); }, x, g.dx);
    check_gradient([&](const Values& at) { return f(x, at, beta); }, gamma, g.dgamma);
    if (centre) check_gradient([&](const Values& at) { return f(x, gamma, at); }, beta, g.dbeta);
  }
}

TEST_CASE("batch norm backward is the gradient of batch norm, in both layouts") {
  for (const reference::ChannelShape shape : {reference::ChannelShape{6, 4, 1}, {2, 4, 5}}) {
    const int count = shape.outer * shape.channels * shape.inner;
    const Values x = seeded_values(count, 9);
    const Values dy = seeded_values(count, 10);
    const Values gamma = seeded_values(4, 11);
    const Values beta = seeded_values(4, 12);
    const auto f = [&](const Values& at_x, const Values& at_gamma, const Values& at_beta) {
      return weighted_sum(reference::batch_norm(at_x, at_gamma, at_beta, shape, 1e-3).y, dy);
    };
    const auto g = reference::batch_norm_backward(x, dy, gamma, shape, 1e-3);
    check_gradient([&](const Values& at) { return f(at, gamma, beta); }, x, g.dx);
    check_gradient([&](const Values& at) { return f(x, at, beta); }, gamma, g.dgamma);
    check_gradient([&](const Values& at) { return f(x, gamma, at); }, beta, g.dbeta);
  }
}

TEST_CASE("pooling backward is the gradient of pooling") {
  const reference::Pool shape{2, 5, 6, 3, 3, 2, 3, 2, 1};
  const Values x = seeded_values(2 * 5 * 6 * 2, 13);
  const Values dy = seeded_values(2 * 3 * 3 * 2, 14);
  for (const bool maximum : {true, false}) {
    check_gradient(
        [&](const Values& at) { return weighted_sum(reference::pool(at, shape, maximum), dy); }, x,
        reference::pool_backward(x, dy, shape, maximum));
  }
}

TEST_CASE("the gradient of cross-entropy is that of its loss, and sums to 0 over a row") {
  const Values logits = seeded_values(3 * 10, 15);
  const std::vector<std::int32_t> labels = {0, 9, 4};
  const auto at_once = reference::cross_entropy(logits, labels, 10, 1);
  check_gradient(
      [&](const Values& at) {
        return weighted_sum(reference::cross_entropy(at, labels, 10, 1).loss, Values(3, 1));
      },
      logits, at_once.gradient);
  // All logits equal: every class is as likely.
  CHECK(reference::cross_entropy(Values(10, 5), {3}, 10, 1).loss[0] == about(std::log(10.0)));
}

TEST_CASE("attention over equal keys is the mean of the values it may see") {
  const reference::AttentionShape shape{1, 2, 1, 4, 4, 2, true};
  const Values v = {1, 10, 2, 20, 3, 30, 4, 40};
  const auto result = reference::attention(seeded_values(16, 16), Values(8, 0.5), v, shape, 1);
  for (int head = 0; head < 2; ++head) {
    for (int i = 0; i < 4; ++i) {
      const double mean = (i + 2) / 2.0;  // of 1 .. i + 1
      CHECK(result.o[(head * 4 + i) * 2] == about(mean));
      CHECK(result.o[(head * 4 + i) * 2 + 1] == about(10 * mean));
    }
  }
}

TEST_CASE("attention backward is the gradient of attention, with groups, causal and full") {
  for (const bool causal : {false, true}) {
    const reference::AttentionShape shape{2, 4, 2, 5, 5, 3, causal};
    const Values q = seeded_values(2 * 4 * 5 * 3, 17);
    const Values k = seeded_values(2 * 2 * 5 * 3, 18);
    const Values v = seeded_values(2 * 2 * 5 * 3, 19);
    const Values d_o = seeded_values(q.size(), 20);
    const auto f = [&](const Values& at_q, const Values& at_k, const Values& at_v) {
      return weighted_sum(reference::attention(at_q, at_k, at_v, shape, 0.6).o, d_o);
    };
    const auto g = reference::attention_backward(q, k, v, d_o, shape, 0.6);
    check_gradient([&](const Values& at) { return f(at, k, v); }, q, g.dq);
    check_gradient([&](const Values& at) { return f(q, at, v); }, k, g.dk);
    check_gradient([&](const Values& at) { return f(q, k, at); }, v, g.dv);
  }
}

TEST_CASE("lse is the logarithm of the sum of exponentials of a query's scores") {
  const reference::AttentionShape shape{1, 1, 1, 1, 3, 2, false};
  const Values q = {1, 2};
  const Values k = {1, 0, 0, 1, -1, 1};  // scores 1, 2, 1
  CHECK(reference::attention(q, k, Values(6), shape, 1).lse[0] ==
        about(std::log(2 * std::exp(1.0) + std::exp(2.0))));
}

// By hand: with g = 0.5, m = 0.05, v = 0.00025; corrected 0.5 and 0.25, so the step is the rate
// itself.
TEST_CASE("the first step of Adam is the learning rate times the sign of the gradient") {
  const auto after = reference::adam({1, 0, 0}, 0.5, {0.1, 0.9, 0.999, 0, 0}, 1);
  CHECK(after.first == about(0.05));
  CHECK(after.second == about(0.00025));
  CHECK(after.weight == about(0.9));
  // Decay pulls the weight itself: 1 - 0.1 (1 + 0.01 x 1).
  CHECK(reference::adam({1, 0, 0}, 0.5, {0.1, 0.9, 0.999, 0, 0.01}, 1).weight == about(0.899));
}

TEST_CASE("rotary embedding keeps lengths, and backward undoes it") {
  const Values x = seeded_values(6 * 2 * 8, 21);
  const Values y = reference::rope(x, 6, 2, 8, false);
  CHECK(weighted_sum(y, y) == about(weighted_sum(x, x)));
  const Values back = reference::rope(y, 6, 2, 8, true);
  for (std::size_t i = 0; i < x.size(); ++i) {
    CHECK(back[i] == about(x[i]));
  }
  // Position 1, pair 0 turns by one radian.
  CHECK(y[2 * 8] == about(x[2 * 8] * std::cos(1.0) - x[2 * 8 + 4] * std::sin(1.0)));
}

TEST_CASE("activations meet their known values") {
  CHECK(reference::gelu(0) == 0);
  CHECK(reference::slope(reference::gelu, 0) == about(0.5));
  CHECK(reference::silu(0) == 0);
  CHECK(reference::slope(reference::silu, 0) == about(0.5));
  CHECK(reference::gelu(10) == about(10));
  // x P(X <= x) of the normal distribution, which the tanh form approaches within 5e-4.
  CHECK(reference::gelu(1) == about(0.8413447461).within(1e-3));
}

// Known answers of the authors' library Random123 for philox 4x32-10.
TEST_CASE("Philox gives the published words") {
  const auto zero = probe::philox(0, 0, 0);
  CHECK(zero.word[0] == 0x6627e8d5u);
  CHECK(zero.word[1] == 0xe169c58du);
  CHECK(zero.word[2] == 0xbc57ac4cu);
  CHECK(zero.word[3] == 0x9b00dbd8u);
  const auto ones = probe::philox(~0ull, ~0ull, ~0ull);
  CHECK(ones.word[0] == 0x408f276du);
  CHECK(ones.word[1] == 0x41c83b0eu);
  CHECK(ones.word[2] == 0xa20bc7c6u);
  CHECK(ones.word[3] == 0x6d5451fdu);
}

TEST_CASE("the arithmetic of one element agrees with double precision") {
  for (double x = -6; x <= 6; x += 0.37) {
    const float at = static_cast<float>(x);
    CHECK(probe::gelu(at) == about(reference::gelu(x)).within(1e-5).give_or_take(1e-5));
    CHECK(probe::silu(at) == about(reference::silu(x)).within(1e-5).give_or_take(1e-5));
    CHECK(probe::gelu_slope(at) ==
          about(reference::slope(reference::gelu, x)).within(1e-5).give_or_take(1e-5));
    CHECK(probe::silu_slope(at) ==
          about(reference::slope(reference::silu, x)).within(1e-5).give_or_take(1e-5));
  }
}

TEST_CASE("online softmax does not depend on how a row is cut") {
  const Values x = seeded_values(50, 22);
  double sum = 0;
  for (const double value : x) {
    sum += std::exp(20 * value);
  }
  for (int cut = 0; cut <= 50; ++cut) {
    probe::OnlineSoftmax parts[2];
    for (int i = 0; i < 50; ++i) {
      auto& part = parts[i < cut ? 0 : 1];
      part = probe::with(part, static_cast<float>(20 * x[i]));
    }
    const auto all = probe::merge(parts[0], parts[1]);
    CHECK(all.maximum + std::log(all.sum) == about(std::log(sum)).within(1e-6));
  }
  CHECK(probe::merge({}, {}).sum == 0);
}

TEST_CASE("the windows that cover an input are those whose range contains it") {
  for (const int window : {2, 3, 7}) {
    for (const int stride : {1, 2, 3, 7}) {
      for (int padding = 0; padding < window; ++padding) {
        const int size = 14;
        const int count = (size + 2 * padding - window) / stride + 1;
        for (int at = 0; at < size; ++at) {
          const auto claimed = probe::windows_of(at, count, window, stride, padding);
          for (int w = 0; w < count; ++w) {
            const auto range = probe::window_range(w, size, window, stride, padding);
            CHECK((range.begin <= at && at < range.end) == (claimed.begin <= w && w < claimed.end));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace trainyard
