#include "sim/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace trainyard {
namespace {

// Three significant digits without an exponent.
std::string three_digits(double value) {
  const double size = std::abs(value);
  if (size >= 100) return fmt::format("{:.0f}", value);
  if (size >= 10) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j)
    row[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int above = row[j];
      const int substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above + 1, row[j - 1] + 1, substituted});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::optional<std::string_view> find_nearest(std::string_view word,
                                             std::span<const std::string_view> known) {
  const std::vector<std::string_view> best = nearest(word, known, 1);
  if (best.empty()) return std::nullopt;
  const int longest = static_cast<int>(std::max(word.size(), best[0].size()));
  if (edit_distance(word, best[0]) > std::max(1, longest / 3)) return std::nullopt;
  return best[0];
}

std::vector<std::string_view> find_all_nearest(std::string_view word,
                                               std::span<const std::string_view> known) {
  const std::optional<std::string_view> first = find_nearest(word, known);
  if (!first) return {};
  std::vector<std::string_view> names(known.begin(), known.end());
  std::erase_if(names, [&](std::string_view name) {
    return edit_distance(word, name) != edit_distance(word, *first);
  });
  return names;
}

std::optional<std::string_view> find_part(std::string_view word,
                                          std::span<const std::string_view> known) {
  const auto has = [&](std::string_view part) {
    return ("_" + std::string(word) + "_").find("_" + std::string(part) + "_") != word.npos;
  };
  std::optional<std::string_view> longest;
  for (const std::string_view name : known)
    if (has(name) && (!longest || longest->size() < name.size())) longest = name;
  return longest;
}

std::vector<std::string_view> nearest(std::string_view word,
                                      std::span<const std::string_view> known, std::size_t count) {
  std::vector<std::string_view> names(known.begin(), known.end());
  std::stable_sort(names.begin(), names.end(), [&](std::string_view a, std::string_view b) {
    return edit_distance(word, a) < edit_distance(word, b);
  });
  if (names.size() > count) names.resize(count);
  return names;
}

std::vector<std::string_view> nearest_names(std::string_view word,
                                            std::span<const std::string_view> known,
                                            std::size_t count) {
  constexpr std::size_t kShortest = 3;
  std::vector<std::string_view> names = nearest(word, known, known.size());
  if (word.size() >= kShortest) {
    const auto holds = [&](std::string_view name) {
      return name.find(word) != std::string_view::npos;
    };
    const auto end = std::stable_partition(names.begin(), names.end(), holds);
    if (end != names.begin()) names.erase(end, names.end());
    std::stable_partition(names.begin(), names.end(),
                          [&](std::string_view name) { return name.starts_with(word); });
  }
  if (names.size() > count) names.resize(count);
  return names;
}

std::vector<std::string_view> near_names(std::string_view word,
                                         std::span<const std::string_view> known,
                                         std::size_t count) {
  std::vector<std::string_view> names = nearest_names(word, known, count);
  std::erase_if(names, [&](std::string_view name) {
    const int longest = static_cast<int>(std::max(word.size(), name.size()));
    return name.find(word) == std::string_view::npos &&
           edit_distance(word, name) > std::max(1, longest / 2);
  });
  return names;
}

std::string escape_control(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // U+202A..U+202E and U+2066..U+2069 reorder what a terminal shows.
    const bool bidirectional = byte == 0xE2 && i + 2 < text.size() &&
                               ((static_cast<unsigned char>(text[i + 1]) == 0x80 &&
                                 static_cast<unsigned char>(text[i + 2]) >= 0xAA &&
                                 static_cast<unsigned char>(text[i + 2]) <= 0xAE) ||
                                (static_cast<unsigned char>(text[i + 1]) == 0x81 &&
                                 static_cast<unsigned char>(text[i + 2]) >= 0xA6 &&
                                 static_cast<unsigned char>(text[i + 2]) <= 0xA9));
    if (bidirectional) {
      for (int k = 0; k < 3; ++k, ++i)
        out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[i]));
      --i;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string to_text(Duration duration) {
  const double seconds = Seconds(duration).count();
  static constexpr std::array<std::pair<double, std::string_view>, 5> kUnits = {
      {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}, {1e-12, "ps"}}};
  for (const auto& [scale, unit] : kUnits) {
    if (std::abs(seconds) >= scale)
      return fmt::format("{} {}", three_digits(seconds / scale), unit);
  }
  return "0 s";
}

std::string to_text(Bytes bytes) {
  const auto count = static_cast<double>(bytes.count());
  static constexpr std::array<std::pair<double, std::string_view>, 4> kUnits = {
      {{0x1p40, "TiB"}, {0x1p30, "GiB"}, {0x1p20, "MiB"}, {0x1p10, "KiB"}}};
  for (const auto& [scale, unit] : kUnits) {
    if (std::abs(count) >= scale) return fmt::format("{} {}", three_digits(count / scale), unit);
  }
  return fmt::format("{} B", bytes.count());
}

std::string shortest(double value) {
  std::array<char, 32> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return {buffer.data(), result.ptr};
}

}  // namespace trainyard
