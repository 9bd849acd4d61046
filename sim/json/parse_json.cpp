// nlohmann/json reads the grammar; this file adds what it lacks: positions, duplicate keys, limits,
// and words that say how to repair the text.
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "sim/base/check.h"
#include "sim/json/parse.h"

namespace trainyard::json {
namespace {

// Walks the source behind the parser: the parser says what comes next, the walker knows where.
class Walker {
 public:
  explicit Walker(std::string_view text) : text_(text) {}

  // Moves to the next token: over space, comments, and the punctuation the parser has accepted.
  void skip() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
        step();
      } else if (c == ',' || c == ':') {
        last_punctuation_ = c;
        step();
      } else if (c == '/' && at_ + 1 < text_.size() && text_[at_ + 1] == '/') {
        while (at_ < text_.size() && text_[at_] != '\n')
          step();
      } else if (c == '/' && at_ + 1 < text_.size() && text_[at_ + 1] == '*') {
        const std::size_t end = text_.find("*/", at_ + 2);
        const std::size_t stop = end == std::string_view::npos ? text_.size() : end + 2;
        while (at_ < stop)
          step();
      } else {
        return;
      }
    }
  }

  // The token at the cursor: a string with its quotes, a number or word, or one other character.
  std::string_view take() {
    last_punctuation_ = 0;
    const std::size_t start = at_;
    if (at_ >= text_.size()) return {};
    if (text_[at_] == '"') {
      step();
      while (at_ < text_.size() && text_[at_] != '"') {
        if (text_[at_] == '\\') step();
        step();
      }
      step();
    } else if (is_word(text_[at_])) {
      while (at_ < text_.size() && is_word(text_[at_]))
        step();
    } else {
      step();
    }
    return text_.substr(start, at_ - start);
  }

  std::size_t offset() const { return at_; }
  int line() const { return line_; }
  int column() const { return column_; }
  char last_punctuation() const { return last_punctuation_; }  // skipped since the last token

 private:
  static bool is_word(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '+' || c == '.' || c == '_';
  }
  void step() {
    if (at_ >= text_.size()) return;
    if (text_[at_] == '\n') {
      ++line_;
      column_ = 1;
    } else {
      ++column_;
    }
    ++at_;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  int column_ = 1;
  char last_punctuation_ = 0;
};

// What is wrong at a token that the grammar does not allow, in words that say the cure.
struct Complaint {
  std::string message, hint;
};

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

Complaint complain(std::string_view text, const Walker& walker, const std::string& parser_says) {
  const std::string_view rest = text.substr(walker.offset());
  const char first = rest.empty() ? ' ' : rest[0];
  if (first == '\'') return {"strings are written in double quotes", "write \"...\" for '...'"};
  if ((first == '}' || first == ']') && walker.last_punctuation() == ',')
    return {fmt::format("a comma stands before '{}'", first), "remove the last comma"};
  if (starts_with(rest, "NaN") || starts_with(rest, "nan") || starts_with(rest, "Infinity") ||
      starts_with(rest, "-Infinity") || starts_with(rest, "inf") || starts_with(rest, "-inf"))
    return {"JSON has no NaN and no infinity", "write a finite number"};
  if (first == '+') return {"a number starts with '+'", "remove the '+'"};
  if (first == '#') return {"a comment begins with //", "write // for #"};
  if (first == '.') return {"a number starts with '.'", "write a zero before the point"};
  if (starts_with(rest, "True") || starts_with(rest, "False") || starts_with(rest, "None"))
    return {"unknown word", "write true, false or null"};
  if (first == '"' && parser_says.find("invalid string") == std::string::npos &&
      walker.last_punctuation() == 0)
    return {"a comma or colon is missing before this", ""};
  return {parser_says, ""};
}

// The parser stops a number at the first character that is none; what was meant needs the whole
// word.
Complaint misspelt_number(std::string_view word) {
  const std::size_t end = word.find_first_not_of("0123456789.eE+-");
  if (word.substr(0, 2) == "0x" || word.substr(0, 2) == "0X")
    return {"hexadecimal numbers are not JSON", "write the number in decimal"};
  if (end != std::string_view::npos)
    return {"a number is followed by other characters",
            "write quantities as strings, e.g. \"25MiB\""};
  const std::string_view digits = word.substr(word[0] == '-' ? 1 : 0);
  if (digits.size() > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9')
    return {"a number starts with a zero", "remove the leading zeros"};
  return {};
}

// "[json...] parse error at line 1, column 2: syntax error while parsing value - X; last read: 'Y'"
// -> X
std::string core_of(std::string what) {
  const std::size_t dash = what.find(" - ");
  if (dash != std::string::npos) what = what.substr(dash + 3);
  const std::size_t tail = what.find("; last read");
  if (tail != std::string::npos) what = what.substr(0, tail);
  if (starts_with(what, "[json.exception")) what = what.substr(what.find(']') + 2);
  return what;
}

class Builder {
 public:
  Builder(std::string_view text, const std::string& file, std::vector<Diagnostic>& diagnostics,
          const Limits& limits)
      : text_(text),
        file_(std::make_shared<const std::string>(file)),
        diagnostics_(diagnostics),
        limits_(limits),
        walker_(text) {}

  using string_t = nlohmann::json::string_t;
  using number_float_t = nlohmann::json::number_float_t;

  bool null() { return scalar(Value::null()); }
  bool boolean(bool flag) { return scalar(Value::of(flag)); }
  bool number_integer(std::int64_t) { return number(); }
  bool number_unsigned(std::uint64_t) { return number(); }
  bool number_float(double value, const string_t&) {
    walker_.skip();
    const Place at = place();
    const std::string_view source = walker_.take();
    const Complaint complaint = misspelt_number(source);
    if (!complaint.message.empty()) return fail(at, complaint.message, complaint.hint);
    if (value == 0 && source.substr(0, source.find_first_of("eE")).find_first_of("123456789") !=
                          std::string_view::npos)
      return fail(at, fmt::format("{} is smaller than any number a computer holds", source));
    return add(number_value(source), at);
  }
  bool string(string_t& value) {
    walker_.skip();
    const Place at = place();
    walker_.take();
    if (!acceptable(value, at)) return false;
    return add(Value::of(std::string_view(value)), at);
  }
  bool binary(nlohmann::json::binary_t&) { return true; }

  bool start_object(std::size_t) { return open(Value::object()); }
  bool start_array(std::size_t) { return open(Value::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(string_t& key) {
    walker_.skip();
    key_at_ = place();
    walker_.take();
    key_ = key;
    return acceptable(key, key_at_);
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& what) {
    walker_.skip();
    if (what.id == 406)  // out of range: the token was not taken yet
      return fail(place(), fmt::format("{} is larger than any number a computer holds",
                                       Walker(walker_).take()));
    if (walker_.offset() >= text_.size() && !open_.empty()) {
      const Value& open = *open_.back().value;
      return fail(
          place(), fmt::format("the text ends inside {}", name(open.kind)),
          fmt::format("close the '{}' of line {}", open.is(Kind::array) ? '[' : '{', open.at.line));
    }
    const std::string core = core_of(what.what());
    if (core.find("missing closing quote") != std::string::npos)
      return fail(place(), "the text ends inside a string", "close it with '\"'");
    if (root_done_) return fail(place(), "text follows after the end of the document");
    const Complaint complaint = complain(text_, walker_, core);
    return fail(place(), complaint.message, complaint.hint);
  }

  Value take_root() { return std::move(root_); }

 private:
  Place place() const { return {file_, walker_.line(), walker_.column()}; }

  bool fail(const Place& at, std::string message, std::string hint = {}) {
    diagnostics_.push_back(
        {Severity::error, at.position(), "", std::move(message), std::move(hint)});
    return false;
  }

  bool acceptable(const std::string& text, const Place& at) {
    if (text.size() > limits_.string_bytes)
      return fail(at, fmt::format("a string of {} bytes; at most {} are read", text.size(),
                                  limits_.string_bytes));
    if (text.find('\0') != std::string::npos) return fail(at, "a string holds a NUL character");
    return true;
  }

  static Value number_value(std::string_view source) {
    Value value;
    value.kind = Kind::number;
    value.text = source;
    return value;
  }
  bool number() {
    walker_.skip();
    const Place at = place();
    const std::string_view source = walker_.take();
    const Complaint complaint = misspelt_number(source);
    if (!complaint.message.empty()) return fail(at, complaint.message, complaint.hint);
    return add(number_value(source), at);
  }
  bool scalar(Value value) {
    walker_.skip();
    const Place at = place();
    walker_.take();
    return add(std::move(value), at);
  }

  bool add(Value value, const Place& at) {
    value.at = at;
    return attach(std::move(value)) != nullptr;
  }

  // Puts a value where it belongs; values of a duplicate key are kept aside so that reading can go
  // on.
  Value* attach(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
      root_done_ = !root_.is(Kind::object) && !root_.is(Kind::array);
      return &root_;
    }
    Value& parent = *open_.back().value;
    if (parent.is(Kind::array)) {
      if (parent.items.size() >= limits_.array_items) {
        fail(value.at, fmt::format("more than {} items", limits_.array_items));
        return nullptr;
      }
      return &parent.append(std::move(value));
    }
    if (parent.members.size() >= limits_.object_keys) {
      fail(value.at, fmt::format("more than {} keys", limits_.object_keys));
      return nullptr;
    }
    const auto [earlier, is_new] = open_.back().lines.try_emplace(key_, key_at_.line);
    if (!is_new) {
      fail(key_at_, fmt::format("duplicate key '{}'", key_),
           fmt::format("it stands on line {} already", earlier->second));
      duplicates_.push_back(std::make_unique<Value>(std::move(value)));
      return duplicates_.back().get();
    }
    parent.members.push_back({key_, key_at_, std::move(value)});
    return &parent.members.back().value;
  }

  bool open(Value value) {
    walker_.skip();
    value.at = place();
    walker_.take();
    if (static_cast<int>(open_.size()) >= limits_.depth)
      return fail(value.at, fmt::format("more than {} levels of nesting", limits_.depth));
    Value* attached = attach(std::move(value));
    if (attached != nullptr) open_.push_back({attached, {}});
    return attached != nullptr;
  }

  bool close() {
    walker_.skip();
    walker_.take();
    open_.pop_back();
    root_done_ = open_.empty();
    return true;
  }

  std::string_view text_;
  std::shared_ptr<const std::string> file_;
  std::vector<Diagnostic>& diagnostics_;
  const Limits& limits_;
  Walker walker_;
  Value root_;
  bool root_done_ = false;
  // The open containers with the keys seen in them. A container's address is stable while it is
  // open: its parent grows only after it is closed.
  struct Frame {
    Value* value;
    std::map<std::string, int> lines;
  };
  std::vector<Frame> open_;
  std::vector<std::unique_ptr<Value>> duplicates_;
  std::string key_;
  Place key_at_;
};

// Byte offset of the first byte that is not UTF-8, or npos.
std::size_t invalid_utf8(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  for (std::size_t i = 0; i < text.size();) {
    const unsigned char lead = byte(i);
    std::size_t length = 1;
    if (lead >= 0x80) {
      length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
      if (lead < 0xC2 || lead > 0xF4 || i + length > text.size()) return i;
      for (std::size_t k = 1; k < length; ++k) {
        if ((byte(i + k) & 0xC0) != 0x80) return i;
      }
      // Overlong forms, surrogates, and above U+10FFFF.
      if ((lead == 0xE0 && byte(i + 1) < 0xA0) || (lead == 0xED && byte(i + 1) > 0x9F) ||
          (lead == 0xF0 && byte(i + 1) < 0x90) || (lead == 0xF4 && byte(i + 1) > 0x8F))
        return i;
    }
    i += length;
  }
  return std::string_view::npos;
}

Position position_of(std::string_view text, std::size_t offset, const std::string& file) {
  Position at{file, 1, 1};
  for (std::size_t i = 0; i < offset; ++i) {
    if (text[i] == '\n') {
      ++at.line;
      at.column = 1;
    } else {
      ++at.column;
    }
  }
  return at;
}

// Says what a text is that cannot be JSON at all; empty if it may be.
Complaint not_text(std::string_view text) {
  const auto has = [&](std::size_t i, unsigned char byte) {
    return i < text.size() && static_cast<unsigned char>(text[i]) == byte;
  };
  if ((has(0, 0xFF) && has(1, 0xFE)) || (has(0, 0xFE) && has(1, 0xFF)) ||
      (text.size() >= 2 && (has(0, 0) != has(1, 0))))
    return {"the text is UTF-16", "save it as UTF-8"};
  if (has(0, 0x1F) && has(1, 0x8B)) return {"the file is compressed (gzip)", "run gunzip first"};
  return {};
}

}  // namespace

Value parse_text(std::string_view text, const std::string& file,
                 std::vector<Diagnostic>& diagnostics, const Limits& limits) {
  const auto fail = [&](Position at, std::string message, std::string hint) {
    diagnostics.push_back(
        {Severity::error, std::move(at), "", std::move(message), std::move(hint)});
    return Value::null();
  };
  const Complaint other = not_text(text);
  if (!other.message.empty()) return fail({file, 0, 0}, other.message, other.hint);
  if (starts_with(text, "\xEF\xBB\xBF")) text.remove_prefix(3);
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    return fail({file, 0, 0}, "the file is empty", "");
  const std::size_t invalid = invalid_utf8(text);
  if (invalid != std::string_view::npos)
    return fail(position_of(text, invalid, file),
                fmt::format("byte {} (0x{:02x}) is not UTF-8", invalid,
                            static_cast<unsigned char>(text[invalid])),
                "save the file as UTF-8");
  const std::size_t nul = text.find('\0');
  if (nul != std::string_view::npos) return fail(position_of(text, nul, file), "a NUL byte", "");

  Builder builder(text, file, diagnostics, limits);
  const bool read = nlohmann::json::sax_parse(text.begin(), text.end(), &builder,
                                              nlohmann::json::input_format_t::json,
                                              /*strict=*/true, /*ignore_comments=*/true);
  return read ? builder.take_root() : Value::null();
}

Value parse_file(const std::string& path, std::vector<Diagnostic>& diagnostics,
                 const Limits& limits) {
  const Position whole_file{path, 0, 0};
  const auto fail = [&](std::string message) {
    diagnostics.push_back({Severity::error, whole_file, "", std::move(message), ""});
    return Value::null();
  };
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0)
    return fail(fmt::format("cannot be read: {}", std::strerror(errno)));
  if (!S_ISREG(status.st_mode)) return fail("is not a regular file");
  if (static_cast<std::size_t>(status.st_size) > limits.file_bytes)
    return fail(
        fmt::format("has {} bytes; at most {} are read", status.st_size, limits.file_bytes));
  std::ifstream stream(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  stream.read(text.data(), status.st_size);
  if (!stream) return fail("cannot be read");
  return parse_text(text, path, diagnostics, limits);
}

}  // namespace trainyard::json
