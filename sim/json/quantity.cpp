#include "sim/json/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <span>

#include "sim/base/text.h"

namespace trainyard::json {
namespace {

// value = number * 10^ten * 2^two of the base unit. Times above a second also multiply by `times`.
struct Unit {
  std::string_view name;
  int ten = 0;
  int two = 0;
  int times = 1;
};

constexpr std::array<Unit, 9> kSizes = {{{"B", 0, 0},
                                         {"KB", 3, 0},
                                         {"MB", 6, 0},
                                         {"GB", 9, 0},
                                         {"TB", 12, 0},
                                         {"KiB", 0, 10},
                                         {"MiB", 0, 20},
                                         {"GiB", 0, 30},
                                         {"TiB", 0, 40}}};
// Of a picosecond.
constexpr std::array<Unit, 8> kTimes = {{{"ps", 0, 0},
                                         {"ns", 3, 0},
                                         {"us", 6, 0},
                                         {"ms", 9, 0},
                                         {"s", 12, 0},
                                         {"min", 12, 0, 60},
                                         {"h", 12, 0, 3600},
                                         {"d", 12, 0, 86400}}};
constexpr std::array<Unit, 19> kBandwidths = {{{"B/s", 0, 0},
                                               {"KB/s", 3, 0},
                                               {"MB/s", 6, 0},
                                               {"GB/s", 9, 0},
                                               {"TB/s", 12, 0},
                                               {"KiB/s", 0, 10},
                                               {"MiB/s", 0, 20},
                                               {"GiB/s", 0, 30},
                                               {"TiB/s", 0, 40},
                                               {"bps", 0, -3},
                                               {"Kbps", 3, -3},
                                               {"Mbps", 6, -3},
                                               {"Gbps", 9, -3},
                                               {"Tbps", 12, -3},
                                               {"bit/s", 0, -3},
                                               {"Kbit/s", 3, -3},
                                               {"Mbit/s", 6, -3},
                                               {"Gbit/s", 9, -3},
                                               {"Tbit/s", 12, -3}}};
constexpr std::array<Unit, 6> kComputeRates = {{{"FLOP/s", 0, 0},
                                                {"MFLOP/s", 6, 0},
                                                {"GFLOP/s", 9, 0},
                                                {"TFLOP/s", 12, 0},
                                                {"PFLOP/s", 15, 0},
                                                {"EFLOP/s", 18, 0}}};
constexpr std::array<Unit, 2> kPowers = {{{"W", 0, 0}, {"kW", 3, 0}}};

struct Dimension {
  std::string_view what;      // "a size"
  std::string_view examples;  // "\"25MiB\" or \"80GB\""
  std::span<const Unit> units;
};

const Dimension kSize{"a size", "\"25MiB\" or \"80GB\"", kSizes};
const Dimension kTime{"a time", "\"1.5us\" or \"30min\"", kTimes};
const Dimension kBandwidth{"a bandwidth", "\"400Gbps\" or \"50GB/s\"", kBandwidths};
const Dimension kComputeRate{"a compute rate", "\"312TFLOP/s\"", kComputeRates};
const Dimension kPower{"a power", "\"700W\"", kPowers};

// A decimal number: digits * 10^exponent, digits without leading zeros.
struct Split {
  std::string number;  // as written, for messages
  std::string digits;
  int exponent = 0;
  const Unit* unit = nullptr;
  std::string problem;
};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string lower(std::string_view text) {
  std::string out;
  for (const char c : text)
    out += lower(c);
  return out;
}

// "gb/s" of "Gbps", "GBps" and "Gb/s".
std::string plain_rate(std::string_view unit) {
  std::string plain = lower(unit);
  if (plain.ends_with("ps")) plain.replace(plain.size() - 2, 2, "/s");
  return plain;
}

// Whether a bandwidth in an unknown unit is one in a known one, as b is a bit and B a byte; where
// all letters are small, or all are capitals, they say nothing.
bool is_meant(std::string_view unit, std::string_view known) {
  if (plain_rate(unit) != plain_rate(known)) return false;
  const std::string small = lower(unit);
  const bool mixed = unit != small && std::any_of(unit.begin(), unit.end(),
                                                  [](char c) { return c >= 'a' && c <= 'z'; });
  // Of "bit/s" and "GiB/s" there is one.
  if (!mixed || small.find("it/") != small.npos || small.find("ib/") != small.npos) return true;
  return (unit.find('B') != unit.npos) == (known.find('B') != known.npos);
}

std::string unit_problem(std::string_view number, std::string_view unit,
                         const Dimension& dimension) {
  if (unit.empty()) return fmt::format("\"{}\" has no unit; write {}", number, dimension.examples);
  if (unit.size() == 1 && std::string_view("KMGTkmgt").find(unit[0]) != std::string_view::npos) {
    if (dimension.what == kBandwidth.what)
      return fmt::format(
          "\"{0}{1}\" may be \"{0}{1}bps\" (bits) or \"{0}{1}B/s\" (bytes); write one", number,
          unit);
    if (dimension.what == kSize.what)
      return fmt::format(
          "\"{0}{1}\" may be \"{0}{1}B\" (powers of 1000) or \"{0}{1}iB\" (powers of "
          "1024); write one",
          number, unit);
  }
  const bool is_rate = dimension.what == kBandwidth.what;
  // "gbps" is Gbps, although "gb/s" may be either.
  const bool is_written = std::any_of(
      dimension.units.begin(), dimension.units.end(),
      [&](const Unit& known) { return lower(known.name) == unit && unit.ends_with("ps"); });
  std::string same_letters;
  for (const Unit& known : dimension.units) {
    const bool is_like =
        is_rate && !is_written ? is_meant(unit, known.name) : lower(known.name) == lower(unit);
    if (is_like)
      same_letters +=
          fmt::format("{}\"{}{}\"", same_letters.empty() ? "" : " or ", number, known.name);
  }
  if (!same_letters.empty())
    return fmt::format("\"{}\" is not a unit (capitals count); write {}", unit, same_letters);
  return fmt::format("\"{}\" is not a unit of {}; write e.g. {}", unit, dimension.what.substr(2),
                     dimension.examples);
}

Split split(std::string_view text, const Dimension& dimension) {
  Split out;
  const auto fail = [&](std::string problem) {
    out.problem = std::move(problem);
    return out;
  };
  if (text.size() > 64)
    return fail(fmt::format("expected {} such as {}", dimension.what, dimension.examples));
  std::size_t i = 0;
  if (!text.empty() && text[0] == '-' && text.size() > 1 && is_digit(text[1]))
    return fail(fmt::format("\"{}\" is negative", text));
  bool any = false, fraction = false;
  for (; i < text.size() && (is_digit(text[i]) || (text[i] == '.' && !fraction && any)); ++i) {
    if (text[i] == '.') {
      fraction = true;
      continue;
    }
    any = true;
    if (!out.digits.empty() || text[i] != '0') out.digits += text[i];
    if (fraction) --out.exponent;
  }
  if (!any || (fraction && text[i - 1] == '.'))
    return fail(fmt::format("expected {} such as {}, got \"{}\"", dimension.what,
                            dimension.examples, text));
  if (i + 1 < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    std::size_t start = i + 1;
    if (text[start] == '+') ++start;
    int exponent = 0;
    const auto result = std::from_chars(text.data() + start, text.data() + text.size(), exponent);
    if (result.ec == std::errc() && exponent > -400 && exponent < 400) {
      out.exponent += exponent;
      i = static_cast<std::size_t>(result.ptr - text.data());
    }
  }
  out.number = text.substr(0, i);
  std::string_view unit = text.substr(i);
  if (!unit.empty() && unit[0] == ' ') unit.remove_prefix(1);
  for (const Unit& known : dimension.units) {
    if (known.name == unit) out.unit = &known;
  }
  if (out.unit == nullptr) return fail(unit_problem(out.number, unit, dimension));
  return out;
}

// number * unit as a whole number of base units, or nothing if it is none. Binary units are whole
// multiples of the base here, so 2^two is an integer.
enum class Whole { exact, fractional, too_large };
Whole whole(const Split& parts, std::int64_t& value) {
  __extension__ using Wide = unsigned __int128;
  constexpr auto kMost = static_cast<Wide>(std::numeric_limits<std::int64_t>::max());
  std::string digits = parts.digits;
  if (digits.empty()) {
    value = 0;
    return Whole::exact;
  }
  int exponent = parts.exponent + parts.unit->ten;
  while (digits.size() > 1 && digits.back() == '0') {
    digits.pop_back();
    ++exponent;
  }
  if (digits.size() > 25 || exponent < -25)
    return exponent < 0 ? Whole::fractional : Whole::too_large;
  Wide result = 0;
  for (const char c : digits)
    result = result * 10 + static_cast<unsigned>(c - '0');
  for (int i = 0; i < parts.unit->two; ++i) {
    // A power of two may cancel a power of five of the fraction: 1.5KiB = 15 * 1024 / 10.
    if (exponent < 0 && result % 5 == 0) {
      result /= 5;
      ++exponent;
      continue;
    }
    if (result > (kMost << 32)) return Whole::too_large;
    result *= 2;
  }
  if (result > (kMost << 32)) return Whole::too_large;
  result *= static_cast<unsigned>(parts.unit->times);
  for (; exponent < 0; ++exponent) {
    if (result % 10 != 0) return Whole::fractional;
    result /= 10;
  }
  for (; exponent > 0; --exponent) {
    if (result > kMost) return Whole::too_large;
    result *= 10;
  }
  if (result > kMost) return Whole::too_large;
  value = static_cast<std::int64_t>(result);
  return Whole::exact;
}

// The double nearest to number * unit: the decimal exponent joins the text before it is read, and
// powers of two are exact.
double real(const Split& parts, int shift_ten) {
  if (parts.digits.empty()) return 0;
  const std::string text =
      fmt::format("{}e{}", parts.digits, parts.exponent + parts.unit->ten + shift_ten);
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  for (int i = 0; i < parts.unit->two; ++i)
    value *= 2;
  for (int i = 0; i > parts.unit->two; --i)
    value /= 2;
  return value * parts.unit->times;
}

template <class T>
Parsed<T> failed(std::string problem) {
  return {T{}, std::move(problem)};
}

template <class T>
Parsed<T> parse_whole(std::string_view text, const Dimension& dimension, std::string_view base) {
  const Split parts = split(text, dimension);
  if (!parts.problem.empty()) return failed<T>(parts.problem);
  std::int64_t value = 0;
  switch (whole(parts, value)) {
    case Whole::exact: return {T(value), ""};
    case Whole::fractional:
      return failed<T>(fmt::format("\"{}\" is not a whole number of {}", text, base));
    case Whole::too_large: break;
  }
  return failed<T>(fmt::format("\"{}\" is too large", text));
}

template <class T>
Parsed<T> parse_real(std::string_view text, const Dimension& dimension, int shift_ten) {
  const Split parts = split(text, dimension);
  if (!parts.problem.empty()) return failed<T>(parts.problem);
  const double value = real(parts, shift_ten);
  if (!(value < 1e300)) return failed<T>(fmt::format("\"{}\" is too large", text));
  return {T(value), ""};
}

// The shortest decimal of a double as digits * 10^exponent, without zeros at either end.
struct Digits {
  std::string digits;
  int exponent = 0;
};

Digits digits_of(double value) {
  const std::string text = shortest(value);
  Digits out;
  bool fraction = false;
  for (const char c : text.substr(0, text.find('e'))) {
    if (c == '.') {
      fraction = true;
      continue;
    }
    if (!out.digits.empty() || c != '0') out.digits += c;
    if (fraction) --out.exponent;
  }
  if (const std::size_t e = text.find('e'); e != std::string::npos)
    out.exponent += std::stoi(text.substr(e + 1));
  while (!out.digits.empty() && out.digits.back() == '0') {
    out.digits.pop_back();
    ++out.exponent;
  }
  return out;
}

// Plain decimal notation, or nothing where it would need many zeros.
std::string plain(const Digits& number) {
  if (number.digits.empty()) return "0";
  const int size = static_cast<int>(number.digits.size());
  const int whole = size + number.exponent;  // digits before the point
  if (whole > 16 || whole < -3) return {};
  if (whole <= 0) return "0." + std::string(static_cast<std::size_t>(-whole), '0') + number.digits;
  if (whole >= size)
    return number.digits + std::string(static_cast<std::size_t>(whole - size), '0');
  const auto point = static_cast<std::size_t>(whole);
  return number.digits.substr(0, point) + "." + number.digits.substr(point);
}

// Largest unit in which value * 10^ten has at most four digits after the point. The decimal point
// moves in the text, so that what is read back is the same double.
std::string in_units(double value, int ten, std::span<const Unit> units) {
  const Digits number = digits_of(value);
  std::string best;
  for (const Unit& unit : units) {
    if (unit.two != 0 || unit.times != 1) continue;
    const std::string text = plain({number.digits, number.exponent + ten - unit.ten});
    const bool below_one = text.substr(0, 1) == "0";
    const std::size_t point = text.find('.');
    if (text.empty() || (below_one && !best.empty())) continue;
    if (!best.empty() && point != std::string::npos && text.size() - point > 5) continue;
    best = text + std::string(unit.name);
  }
  if (!best.empty()) return best;
  return fmt::format("{}e{}{}", number.digits, number.exponent + ten, units.front().name);
}

// The same in powers of 1024, in which division is exact.
std::string in_binary_units(double value) {
  std::string best;
  for (const Unit& unit : kSizes) {
    if (unit.two == 0) continue;
    double size = 1;
    for (int i = 0; i < unit.two; ++i)
      size *= 2;
    if (value < size && !best.empty()) continue;
    const std::string text = shortest(value / size);
    const std::size_t point = text.find('.');
    if (text.find('e') != std::string::npos) continue;
    if (!best.empty() && point != std::string::npos && text.size() - point > 5) continue;
    best = text + std::string(unit.name);
  }
  return best.empty() ? shortest(value) + "B" : best;
}

std::string pattern_of(const Dimension& dimension) {
  std::string units;
  for (const Unit& unit : dimension.units) {
    if (!units.empty()) units += '|';
    units += unit.name;
  }
  return fmt::format("^[0-9]+(\\.[0-9]+)?([eE][+-]?[0-9]+)? ?({})$", units);
}

}  // namespace

Parsed<Bytes> parse_bytes(std::string_view text) {
  return parse_whole<Bytes>(text, kSize, "bytes");
}
Parsed<Duration> parse_duration(std::string_view text) {
  return parse_whole<Duration>(text, kTime, "picoseconds");
}
Parsed<Seconds> parse_seconds(std::string_view text) {
  return parse_real<Seconds>(text, kTime, -12);
}
Parsed<BytesPerSecond> parse_bandwidth(std::string_view text) {
  return parse_real<BytesPerSecond>(text, kBandwidth, 0);
}
Parsed<FlopsPerSecond> parse_compute_rate(std::string_view text) {
  return parse_real<FlopsPerSecond>(text, kComputeRate, 0);
}
Parsed<Watts> parse_power(std::string_view text) {
  return parse_real<Watts>(text, kPower, 0);
}

namespace {

// "25000000 has no unit; write \"25MB\"": a number that large is one of base units.
template <class T>
std::string in_base_units(std::string_view number, double least) {
  double value = 0;
  const auto end = std::from_chars(number.data(), number.data() + number.size(), value);
  if (end.ec != std::errc() || !(value >= least) || !(value < 9e18)) return {};
  const auto count = static_cast<decltype(T{}.count())>(value);
  if (static_cast<double>(count) != value) return {};
  return fmt::format("{} has no unit; write \"{}\"", number, quantity_text(T(count)));
}

}  // namespace

std::string missing_unit(std::string_view number, const Bytes*) {
  if (std::string said = in_base_units<Bytes>(number, 1e4); !said.empty()) return said;
  return fmt::format("{0} has no unit; write \"{0}MiB\" or \"{0}GB\"", number);
}
std::string missing_unit(std::string_view number, const Duration*) {
  return fmt::format("{0} has no unit; write \"{0}us\" or \"{0}ms\"", number);
}
std::string missing_unit(std::string_view number, const Seconds*) {
  return missing_unit(number, static_cast<const Duration*>(nullptr));
}
std::string missing_unit(std::string_view number, const BytesPerSecond*) {
  if (std::string said = in_base_units<BytesPerSecond>(number, 1e6); !said.empty()) {
    std::string bits = said.substr(said.find("write ") + 6);
    bits.replace(bits.find("B/s"), 3, "bps");
    return fmt::format("{} (bytes) or {} (bits)", said, bits);
  }
  return fmt::format("{0} has no unit; write \"{0}Gbps\" (bits) or \"{0}GB/s\" (bytes)", number);
}
std::string missing_unit(std::string_view number, const FlopsPerSecond*) {
  if (std::string said = in_base_units<FlopsPerSecond>(number, 1e6); !said.empty()) return said;
  return fmt::format("{0} has no unit; write \"{0}TFLOP/s\"", number);
}
std::string missing_unit(std::string_view number, const Watts*) {
  return fmt::format("{0} has no unit; write \"{0}W\"", number);
}

std::string quantity_text(Bytes value) {
  const auto count = static_cast<double>(value.count());
  const std::string decimal = in_units(count, 0, kSizes);
  if (value.count() == 0 || value.count() % 1024 != 0) return decimal;
  const std::string binary = in_binary_units(count);
  return binary.size() <= decimal.size() ? binary : decimal;
}
std::string quantity_text(Duration value) {
  return in_units(static_cast<double>(value.count()), 0, kTimes);
}
std::string quantity_text(Seconds value) {
  return in_units(value.count(), 12, kTimes);
}
std::string quantity_text(BytesPerSecond value) {
  return in_units(value.count(), 0, kBandwidths);
}
std::string quantity_text(FlopsPerSecond value) {
  return in_units(value.count(), 0, kComputeRates);
}
std::string quantity_text(Watts value) {
  return in_units(value.count(), 0, kPowers);
}

std::string quantity_pattern(const Bytes*) {
  return pattern_of(kSize);
}
std::string quantity_pattern(const Duration*) {
  return pattern_of(kTime);
}
std::string quantity_pattern(const Seconds*) {
  return pattern_of(kTime);
}
std::string quantity_pattern(const BytesPerSecond*) {
  return pattern_of(kBandwidth);
}
std::string quantity_pattern(const FlopsPerSecond*) {
  return pattern_of(kComputeRate);
}
std::string quantity_pattern(const Watts*) {
  return pattern_of(kPower);
}

}  // namespace trainyard::json
