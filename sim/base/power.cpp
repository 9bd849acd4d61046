#include "sim/base/power.h"

#include <bit>
#include <cmath>
#include <cstdint>

#include "sim/base/check.h"

namespace trainyard {
namespace {

constexpr double kLn2High = 0x1.62e42fefa3800p-1;  // ln 2 with 12 trailing zero bits,
constexpr double kLn2Low = 0x1.ef35793c76730p-45;  // and the rest of it

// A sum of two doubles that do not overlap: the logarithm needs more than 53 bits because the
// exponent multiplies its absolute error.
struct Pair {
  double high;
  double low;
};

Pair sum(double a, double b) {
  const double s = a + b;
  const double t = s - a;
  return {s, (a - (s - t)) + (b - t)};
}

// Veltkamp's split and Dekker's product: a * b exactly, as high + low.
Pair product(double a, double b) {
  constexpr double kSplit = 134217729;  // 2^27 + 1
  const double p = a * b;
  const double ca = kSplit * a;
  const double a_high = ca - (ca - a);
  const double a_low = a - a_high;
  const double cb = kSplit * b;
  const double b_high = cb - (cb - b);
  const double b_low = b - b_high;
  return {p, ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low};
}

// ln x = k ln 2 + 2 atanh(s), s = (m - 1) / (m + 1), x = m 2^k, m in [1/sqrt 2, sqrt 2).
Pair logarithm(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  int k = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFULL) | 0x3FF0000000000000ULL);
  if (m > 1.4142135623730951) {
    m /= 2;
    ++k;
  }
  const double numerator = m - 1;
  const double denominator = m + 1;
  const double s = numerator / denominator;
  // What the division lost: numerator - s * denominator, exactly.
  const Pair back = product(s, denominator);
  const Pair denominator_pair = sum(m, 1);
  const double s_low =
      ((numerator - back.high) - back.low - s * denominator_pair.low) / denominator;
  const double z = s * s;
  double tail = 0;
  for (int n = 21; n >= 3; n -= 2)
    tail = (tail + 1.0 / n) * z;
  // tail = z/3 + z^2/5 + ...; ln m = 2 s (1 + tail).
  const Pair head = sum(2 * s, 2 * s_low + 2 * s * tail);
  const Pair scaled = sum(k * kLn2High, head.high);
  return sum(scaled.high, scaled.low + head.low + k * kLn2Low);
}

// e^(x.high + x.low) = 2^k e^r, |r| <= ln 2 / 2.
double exponential(Pair x) {
  const double k = std::floor(x.high / (kLn2High + kLn2Low) + 0.5);
  const double r = ((x.high - k * kLn2High) - k * kLn2Low) + x.low;
  double series = 1;
  for (int n = 18; n >= 1; --n)
    series = 1 + series * r / n;
  TRAINYARD_CHECK(k > -1022 && k < 1023, "power overflows: 2^{}", k);
  const auto exponent = static_cast<std::uint64_t>(static_cast<std::int64_t>(k) + 1023);
  return series * std::bit_cast<double>(exponent << 52);
}

}  // namespace

double power(double base, double exponent) {
  TRAINYARD_CHECK(base >= 0x1p-1000 && base <= 0x1p1000, "power of {}", base);
  TRAINYARD_CHECK(exponent >= -64 && exponent <= 64, "power to {}", exponent);
  const Pair log = logarithm(base);
  const Pair scaled = product(log.high, exponent);
  return exponential({scaled.high, scaled.low + log.low * exponent});
}

double binary_log(double x) {
  TRAINYARD_CHECK(x >= 0x1p-1000 && x <= 0x1p1000, "logarithm of {}", x);
  // The exponent apart, so that a power of two has no rounding at all.
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const int exponent = static_cast<int>(bits >> 52) - 1023;
  const double mantissa =
      std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFULL) | 0x3FF0000000000000ULL);
  const Pair log = logarithm(mantissa);
  return exponent + (log.high + log.low) / (kLn2High + kLn2Low);
}

}  // namespace trainyard
