#include "calibrate/import/line_diagnostics.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "sim/base/text.h"

namespace trainyard::imports {

bool Imported::ok() const {
  return std::none_of(diagnostics.begin(), diagnostics.end(), [](const Diagnostic& diagnostic) {
    return diagnostic.severity == Severity::error;
  });
}

std::string samples_text(const std::vector<json::Value>& samples) {
  std::string text;
  for (const json::Value& sample : samples)
    text += json::to_text(sample, -1) + "\n";
  return text;
}

namespace {

constexpr std::size_t kShown = 40;
constexpr int kMostNotes = 100;

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\v' || c == '\f';
}

// Position behind an escape sequence that begins at `at`: ESC [ ... letter, or ESC and one byte.
std::size_t behind_escape(std::string_view text, std::size_t at) {
  if (at + 1 >= text.size() || text[at + 1] != '[') return std::min(at + 2, text.size());
  std::size_t end = at + 2;
  while (end < text.size() && (text[end] < '@' || text[end] > '~'))
    ++end;
  return std::min(end + 1, text.size());
}

std::string without_escapes(std::string_view line) {
  std::string clean;
  for (std::size_t i = 0; i < line.size();) {
    if (line[i] == '\x1b') {
      i = behind_escape(line, i);
    } else {
      clean += line[i++];
    }
  }
  return clean;
}

// Bytes of a UTF-8 sequence by its first byte; 0 if none starts so.
std::size_t sequence_length(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0) return 2;
  if (first >= 0xE0 && first < 0xF0) return 3;
  return first >= 0xF0 && first < 0xF5 ? 4 : 0;
}

// Neither longer than needed, nor a surrogate, nor beyond Unicode.
bool is_allowed(unsigned char first, unsigned char second) {
  if (first == 0xE0) return second >= 0xA0;
  if (first == 0xED) return second < 0xA0;
  if (first == 0xF0) return second >= 0x90;
  return first != 0xF4 || second < 0x90;
}

}  // namespace

void Notes::note(Severity severity, int line, std::string message, std::string hint) {
  int& count = severity == Severity::error ? errors_ : warnings_;
  if (++count > kMostNotes + 1) return;
  if (count == kMostNotes + 1) {
    message = fmt::format("more than {} {}; the others are not listed", kMostNotes,
                          severity == Severity::error ? "mistakes" : "warnings");
    hint.clear();
  }
  Diagnostic diagnostic;
  diagnostic.severity = severity;
  diagnostic.at = {file_, line, line > 0 ? 1 : 0};
  diagnostic.message = std::move(message);
  diagnostic.hint = std::move(hint);
  // In the order of the lines, whatever reads a log first; what is said of the whole file is last.
  std::vector<Diagnostic>& list = imported_.diagnostics;
  const auto behind =
      line > 0
          ? std::find_if(list.begin(), list.end(),
                         [&](const Diagnostic& d) { return d.at.line == 0 || d.at.line > line; })
          : list.end();
  list.insert(behind, std::move(diagnostic));
}

void Notes::error(int line, std::string message, std::string hint) {
  note(Severity::error, line, std::move(message), std::move(hint));
}

void Notes::warning(int line, std::string message, std::string hint) {
  note(Severity::warning, line, std::move(message), std::move(hint));
}

void Notes::require_samples(std::string_view of_what) {
  if (imported_.samples.empty() && imported_.ok())
    error(0, fmt::format("the file has no {} that can be used", of_what),
          "give the file as the tool has written it (docs/samples.md)");
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(without_escapes(line));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < line.size();) {
    if (is_space(line[i])) {
      ++i;
      continue;
    }
    const std::size_t begin = i;
    while (i < line.size() && !is_space(line[i]))
      ++i;
    words.emplace_back(line.substr(begin, i - begin));
  }
  return words;
}

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    const std::size_t length = sequence_length(first);
    if (length == 0 || i + length > text.size()) return false;
    for (std::size_t k = 1; k < length; ++k)
      if ((static_cast<unsigned char>(text[i + k]) & 0xC0) != 0x80) return false;
    if (length > 1 && !is_allowed(first, static_cast<unsigned char>(text[i + 1]))) return false;
    i += length;
  }
  return true;
}

std::optional<std::int64_t> find_count(std::string_view word) {
  std::int64_t value = 0;
  const char* const end = word.data() + word.size();
  const auto result = std::from_chars(word.data(), end, value);
  if (word.empty() || result.ec != std::errc() || result.ptr != end || value < 0)
    return std::nullopt;
  return value;
}

std::optional<double> find_measure(std::string_view word) {
  double value = 0;
  const char* const end = word.data() + word.size();
  const auto result = std::from_chars(word.data(), end, value);
  if (word.empty() || result.ec != std::errc() || result.ptr != end) return std::nullopt;
  if (!std::isfinite(value) || std::signbit(value)) return std::nullopt;
  return value;
}

std::string shown(std::string_view word) {
  const bool is_long = word.size() > kShown;
  return "'" + escape_control(word.substr(0, kShown)) + (is_long ? "...'" : "'");
}

json::Value machine_sample(std::string_view probe, const std::vector<std::string>& gpus) {
  json::Value list = json::Value::array();
  for (const std::string& name : gpus) {
    json::Value gpu = json::Value::object();
    gpu.set("name", json::Value::of(name));
    list.append(std::move(gpu));
  }
  json::Value machine = json::Value::object();
  machine.set("kind", json::Value::of("machine"));
  machine.set("probe", json::Value::of(probe));
  machine.set("gpus", std::move(list));
  return machine;
}

}  // namespace trainyard::imports
