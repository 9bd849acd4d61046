#include "tests/calibrate/reference.h"

#include <algorithm>
#include <cmath>

#include "tests/support/rooms.h"

namespace trainyard::reference {

namespace {

// The mean and 1 / deviation of the values that `at(0 .. count-1)` gives.
template <typename At>
void moments(int count, double epsilon, bool centre, At at, double& mean, double& inverse) {
  mean = 0;
  for (int i = 0; centre && i < count; ++i) {
    mean += at(i) / count;
  }
  double variance = 0;
  for (int i = 0; i < count; ++i) {
    variance += (at(i) - mean) * (at(i) - mean) / count;
  }
  inverse = 1 / std::sqrt(variance + epsilon);
}

}  // namespace

double gelu(double x) {
  return 0.5 * x *
         (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * std::pow(x, 3))));
}

double silu(double x) {
  return x / (1 + std::exp(-x));
}

double slope(double (*function)(double), double x) {
  constexpr double kStep = 1e-5;
  return (function(x + kStep) - function(x - kStep)) / (2 * kStep);
}

Norm norm(const Values& x, const Values& gamma, const Values& beta, double epsilon, bool centre) {
  const int columns = static_cast<int>(gamma.size());
  const int rows = static_cast<int>(x.size()) / columns;
  Norm result{Values(x.size()), Values(rows), Values(rows)};
  for (int r = 0; r < rows; ++r) {
    const double* row = &x[r * columns];
    moments(
        columns, epsilon, centre, [&](int i) { return row[i]; }, result.mean[r], result.inverse[r]);
    for (int c = 0; c < columns; ++c) {
      result.y[r * columns + c] =
          (row[c] - result.mean[r]) * result.inverse[r] * gamma[c] + (centre ? beta[c] : 0.0);
    }
  }
  return result;
}

NormGradients norm_backward(const Values& x, const Values& dy, const Values& gamma, double epsilon,
                            bool centre) {
  const int columns = static_cast<int>(gamma.size());
  const int rows = static_cast<int>(x.size()) / columns;
  const Norm forward = norm(x, gamma, Values(columns), epsilon, centre);
  NormGradients result{Values(x.size()), Values(columns), Values(columns)};
  for (int r = 0; r < rows; ++r) {
    double sum = 0;
    double product = 0;
    const auto normalised = [&](int c) {
      return (x[r * columns + c] - forward.mean[r]) * forward.inverse[r];
    };
    for (int c = 0; c < columns; ++c) {
      const double d = dy[r * columns + c];
      result.dgamma[c] += d * normalised(c);
      result.dbeta[c] += d;
      sum += d * gamma[c] / columns;
      product += d * gamma[c] * normalised(c) / columns;
    }
    for (int c = 0; c < columns; ++c) {
      result.dx[r * columns + c] =
          forward.inverse[r] *
          (dy[r * columns + c] * gamma[c] - (centre ? sum : 0.0) - normalised(c) * product);
    }
  }
  return result;
}

Values softmax(const Values& x, int columns, double scale, int queries) {
  Values y(x.size());
  const int rows = static_cast<int>(x.size()) / columns;
  for (int r = 0; r < rows; ++r) {
    const int seen = queries > 0 ? r % queries + 1 : columns;
    double highest = -INFINITY;
    for (int c = 0; c < seen; ++c) {
      highest = std::max(highest, scale * x[r * columns + c]);
    }
    double sum = 0;
    for (int c = 0; c < seen; ++c) {
      sum += std::exp(scale * x[r * columns + c] - highest);
    }
    for (int c = 0; c < seen; ++c) {
      y[r * columns + c] = std::exp(scale * x[r * columns + c] - highest) / sum;
    }
  }
  return y;
}

Values softmax_backward(const Values& y, const Values& dy, int columns, double scale) {
  Values dx(y.size());
  for (std::size_t row = 0; row < y.size(); row += columns) {
    double product = 0;
    for (int c = 0; c < columns; ++c) {
      product += y[row + c] * dy[row + c];
    }
    for (int c = 0; c < columns; ++c) {
      dx[row + c] = scale * y[row + c] * (dy[row + c] - product);
    }
  }
  return dx;
}

Loss cross_entropy(const Values& logits, const std::vector<std::int32_t>& labels, int columns,
                   double scale) {
  Loss result{Values(labels.size()), softmax(logits, columns, 1, 0)};
  for (std::size_t r = 0; r < labels.size(); ++r) {
    const std::size_t chosen = r * columns + labels[r];
    result.loss[r] = -std::log(result.gradient[chosen]);
    result.gradient[chosen] -= 1;
  }
  for (double& g : result.gradient) {
    g *= scale;
  }
  return result;
}

AdamState adam(AdamState state, double gradient, const AdamRates& rates, int step) {
  state.first = rates.beta1 * state.first + (1 - rates.beta1) * gradient;
  state.second = rates.beta2 * state.second + (1 - rates.beta2) * gradient * gradient;
  const double first = state.first / (1 - std::pow(rates.beta1, step));
  const double second = state.second / (1 - std::pow(rates.beta2, step));
  state.weight -= rates.learning_rate *
                  (first / (std::sqrt(second) + rates.epsilon) + rates.weight_decay * state.weight);
  return state;
}

Values rope(const Values& x, int length, int heads, int size, bool backward) {
  Values y(x.size());
  for (std::size_t row = 0; row < x.size() / size; ++row) {
    const double position = static_cast<double>(row / heads % length);
    for (int i = 0; i < size / 2; ++i) {
      const double angle = (backward ? -1 : 1) * position / std::pow(10000.0, 2.0 * i / size);
      const double a = x[row * size + i];
      const double b = x[row * size + size / 2 + i];
      y[row * size + i] = a * std::cos(angle) - b * std::sin(angle);
      y[row * size + size / 2 + i] = a * std::sin(angle) + b * std::cos(angle);
    }
  }
  return y;
}

namespace {

// Index of the i-th value of a channel.
std::size_t of_channel(const ChannelShape& s, int channel, int i) {
  return (static_cast<std::size_t>(i / s.inner) * s.channels + channel) * s.inner + i % s.inner;
}

}  // namespace

BatchNorm batch_norm(const Values& x, const Values& gamma, const Values& beta,
                     const ChannelShape& shape, double epsilon) {
  BatchNorm result{Values(x.size()), Values(shape.channels), Values(shape.channels)};
  const int count = shape.outer * shape.inner;
  for (int c = 0; c < shape.channels; ++c) {
    moments(
        count, epsilon, true, [&](int i) { return x[of_channel(shape, c, i)]; }, result.mean[c],
        result.inverse[c]);
    for (int i = 0; i < count; ++i) {
      const std::size_t at = of_channel(shape, c, i);
      result.y[at] = (x[at] - result.mean[c]) * result.inverse[c] * gamma[c] + beta[c];
    }
  }
  return result;
}

NormGradients batch_norm_backward(const Values& x, const Values& dy, const Values& gamma,
                                  const ChannelShape& shape, double epsilon) {
  const BatchNorm forward = batch_norm(x, gamma, Values(shape.channels), shape, epsilon);
  NormGradients result{Values(x.size()), Values(shape.channels), Values(shape.channels)};
  const int count = shape.outer * shape.inner;
  for (int c = 0; c < shape.channels; ++c) {
    const auto normalised = [&](std::size_t at) {
      return (x[at] - forward.mean[c]) * forward.inverse[c];
    };
    for (int i = 0; i < count; ++i) {
      const std::size_t at = of_channel(shape, c, i);
      result.dgamma[c] += dy[at] * normalised(at);
      result.dbeta[c] += dy[at];
    }
    for (int i = 0; i < count; ++i) {
      const std::size_t at = of_channel(shape, c, i);
      result.dx[at] =
          gamma[c] * forward.inverse[c] *
          (dy[at] - result.dbeta[c] / count - normalised(at) * result.dgamma[c] / count);
    }
  }
  return result;
}

namespace {

// Calls `use(output index, input index, inputs of the window)` for every pair of a window and an
// input.
template <typename Use>
void for_windows(const Pool& s, int channel, Use use) {
  const auto inside = [](int at, int size) { return at >= 0 && at < size; };
  for (int b = 0; b < s.batch; ++b) {
    for (int out = 0; out < s.out_height * s.out_width; ++out) {
      const int top = out / s.out_width * s.stride - s.padding;
      const int left = out % s.out_width * s.stride - s.padding;
      std::vector<std::size_t> covered;
      for (int w = 0; w < s.window * s.window; ++w) {
        const int y = top + w / s.window;
        const int x = left + w % s.window;
        if (!inside(y, s.in_height) || !inside(x, s.in_width)) continue;
        covered.push_back(((static_cast<std::size_t>(b) * s.in_height + y) * s.in_width + x) *
                              s.channels +
                          channel);
      }
      use((static_cast<std::size_t>(b) * s.out_height * s.out_width + out) * s.channels + channel,
          covered);
    }
  }
}

std::size_t greatest(const Values& x, const std::vector<std::size_t>& places) {
  return *std::max_element(places.begin(), places.end(),
                           [&](std::size_t a, std::size_t b) { return x[a] < x[b]; });
}

}  // namespace

Values pool(const Values& x, const Pool& shape, bool maximum) {
  Values y(static_cast<std::size_t>(shape.batch) * shape.out_height * shape.out_width *
           shape.channels);
  for (int channel = 0; channel < shape.channels; ++channel) {
    for_windows(shape, channel, [&](std::size_t out, const std::vector<std::size_t>& covered) {
      double sum = 0;
      for (const std::size_t at : covered) {
        sum += x[at];
      }
      y[out] = maximum ? x[greatest(x, covered)] : sum / static_cast<double>(covered.size());
    });
  }
  return y;
}

Values pool_backward(const Values& x, const Values& dy, const Pool& shape, bool maximum) {
  Values dx(x.size());
  for (int channel = 0; channel < shape.channels; ++channel) {
    for_windows(shape, channel, [&](std::size_t out, const std::vector<std::size_t>& covered) {
      if (maximum) {
        dx[greatest(x, covered)] += dy[out];
        return;
      }
      for (const std::size_t at : covered) {
        dx[at] += dy[out] / static_cast<double>(covered.size());
      }
    });
  }
  return dx;
}

namespace {

// Where the rows of a head begin, in units of rows.
struct HeadRows {
  int query, key;
};

HeadRows rows_of(const AttentionShape& s, int batch, int head) {
  const int kv_head = head / (s.heads / s.kv_heads);
  return {(batch * s.heads + head) * s.queries, (batch * s.kv_heads + kv_head) * s.keys};
}

double dot(const Values& a, int row_a, const Values& b, int row_b, int size) {
  double sum = 0;
  for (int i = 0; i < size; ++i) {
    sum += a[row_a * size + i] * b[row_b * size + i];
  }
  return sum;
}

// Probabilities of one head, [queries][keys].
Values probabilities(const Values& q, const Values& k, const AttentionShape& s,
                     const HeadRows& rows, double scale) {
  Values scores(static_cast<std::size_t>(s.queries) * s.keys);
  for (int i = 0; i < s.queries; ++i) {
    for (int j = 0; j < s.keys; ++j) {
      scores[i * s.keys + j] = dot(q, rows.query + i, k, rows.key + j, s.size);
    }
  }
  return softmax(scores, s.keys, scale, s.causal ? s.queries : 0);
}

}  // namespace

Attention attention(const Values& q, const Values& k, const Values& v, const AttentionShape& s,
                    double scale) {
  Attention result{Values(q.size()), Values(q.size() / s.size)};
  for (int head = 0; head < s.batch * s.heads; ++head) {
    const HeadRows rows = rows_of(s, head / s.heads, head % s.heads);
    const Values p = probabilities(q, k, s, rows, scale);
    for (int i = 0; i < s.queries; ++i) {
      // p of key 0, which every query sees, is exp(score - lse).
      result.lse[rows.query + i] =
          scale * dot(q, rows.query + i, k, rows.key, s.size) - std::log(p[i * s.keys]);
      for (int j = 0; j < s.keys; ++j) {
        for (int c = 0; c < s.size; ++c) {
          result.o[(rows.query + i) * s.size + c] +=
              p[i * s.keys + j] * v[(rows.key + j) * s.size + c];
        }
      }
    }
  }
  return result;
}

AttentionGradients attention_backward(const Values& q, const Values& k, const Values& v,
                                      const Values& d_o, const AttentionShape& s, double scale) {
  AttentionGradients result{Values(q.size()), Values(k.size()), Values(v.size())};
  for (int head = 0; head < s.batch * s.heads; ++head) {
    const HeadRows rows = rows_of(s, head / s.heads, head % s.heads);
    const Values p = probabilities(q, k, s, rows, scale);
    Values dp(p.size());
    for (int i = 0; i < s.queries; ++i) {
      for (int j = 0; j < s.keys; ++j) {
        dp[i * s.keys + j] = dot(d_o, rows.query + i, v, rows.key + j, s.size);
      }
    }
    const Values ds = softmax_backward(p, dp, s.keys, scale);
    for (int i = 0; i < s.queries; ++i) {
      for (int j = 0; j < s.keys; ++j) {
        for (int c = 0; c < s.size; ++c) {
          const int query = (rows.query + i) * s.size + c;
          const int key = (rows.key + j) * s.size + c;
          result.dv[key] += p[i * s.keys + j] * d_o[query];
          result.dk[key] += ds[i * s.keys + j] * q[query];
          result.dq[query] += ds[i * s.keys + j] * k[key];
        }
      }
    }
  }
  return result;
}

}  // namespace trainyard::reference
