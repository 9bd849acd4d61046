#include "sim/json/field_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "sim/base/text.h"
#include "sim/json/quantity.h"

namespace trainyard::json {

namespace {

// 1000000000 rather than 1e+09.
std::string plain(double value) {
  return std::abs(value) < 1e15 && value == std::floor(value) ? fmt::format("{:.0f}", value)
                                                              : shortest(value);
}

std::string with_hyphens(std::string_view text) {
  std::string out(text);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

template <class Say>
std::string describe(const Bounds& bounds, Say say) {
  const bool below = bounds.most < std::numeric_limits<double>::infinity();
  const bool above = bounds.least > -std::numeric_limits<double>::infinity();
  if (above && bounds.least == bounds.most) return say(bounds.least);
  std::string text;
  if (above) text = fmt::format("{} {}", bounds.open ? "above" : "at least", say(bounds.least));
  if (below) text += fmt::format("{}at most {}", above ? " and " : "", say(bounds.most));
  return text;
}

}  // namespace

std::string describe(const Bounds& bounds) {
  return describe(bounds, plain);
}

std::string describe(const Bounds& bounds, const Target& target) {
  return std::visit(
      [&bounds](const auto* value) {
        using T = std::remove_cvref_t<decltype(*value)>;
        if constexpr (std::is_same_v<T, std::string> || std::is_arithmetic_v<T>)
          return describe(bounds, plain);
        else
          return describe(bounds, [](double count) {
            if (count == 0) return std::string("0");
            if constexpr (std::is_same_v<T, Duration>)
              return quantity_text(Duration(static_cast<Duration::rep>(count)));
            else if constexpr (std::is_same_v<T, Bytes>)
              return quantity_text(Bytes(static_cast<std::int64_t>(count)));
            else
              return quantity_text(T(count));
          });
      },
      target);
}

bool can_be_said(const Bounds& bounds, const Target& target) {
  return std::visit(
      [&bounds](const auto* value) {
        using T = std::remove_cvref_t<decltype(*value)>;
        if constexpr (std::is_same_v<T, std::string>)
          return !value->empty();
        else if constexpr (std::is_arithmetic_v<T>)
          return bounds.hold(static_cast<double>(*value));
        else
          return bounds.hold(static_cast<double>(value->count()));
      },
      target);
}

std::optional<std::size_t> find_name(std::string_view word,
                                     std::span<const std::string_view> names) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (with_hyphens(names[i]) == with_hyphens(word)) return i;
  }
  return std::nullopt;
}

}  // namespace trainyard::json
