#include "cli/commands/kernel_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <set>
#include <string_view>

#include "cli/commands/unknown_name.h"
#include "cli/exit_code.h"
#include "sim/base/diagnostic.h"
#include "sim/base/text.h"
#include "sim/json/quantity.h"

namespace trainyard::cli {

using models::AttentionKernel;
using models::ConvolutionPass;
using models::Dtype;
using models::MemoryOp;

namespace {

constexpr std::int64_t kMostSize = std::int64_t{1} << 40;
constexpr double kMostElements = 1e15;
constexpr std::size_t kMostFileBytes = std::size_t{1} << 28;

using Names = std::vector<std::string_view>;

[[noreturn]] void fail_unknown(std::string_view what, const std::string& word, const Names& known) {
  std::string hint = fmt::format("there are {}", fmt::join(known, ", "));
  if (const auto near = find_nearest(word, known))
    hint = fmt::format("did you mean '{}'? {}", *near, hint);
  throw SpecError(fmt::format("no {} is called '{}'; {}", what, escape_control(word), hint));
}

template <class Enum>
using Named = std::vector<std::pair<std::string_view, Enum>>;

// By what the enumeration calls them, from its first to `last`.
template <class Enum>
Named<Enum> names_to(Enum last) {
  Named<Enum> rows;
  for (int i = 0; i <= static_cast<int>(last); ++i)
    rows.emplace_back(name(static_cast<Enum>(i)), static_cast<Enum>(i));
  return rows;
}

// Hands out values by key, and knows in the end which nobody asked for.
class Reader {
 public:
  Reader(std::string kind, const KeyValues& values) : kind_(std::move(kind)), values_(values) {}

  // At least 1; `fallback` where it is not said, without one it must be.
  std::int64_t size(std::string_view key, std::optional<std::int64_t> fallback = {},
                    std::int64_t least = 1) {
    const std::string* text = find(key);
    if (!text && fallback) return *fallback;
    if (!text) fail_missing(key);
    std::int64_t value = 0;
    const char* end = text->data() + text->size();
    const auto [stopped, code] = std::from_chars(text->data(), end, value);
    if (code != std::errc{} || stopped != end || value < least || value > kMostSize)
      throw SpecError(fmt::format("{}: '{}' is no whole number from {} to 2^40", key,
                                  escape_control(*text), least));
    return value;
  }

  // "1GiB", or a number of bytes; nothing where it is not said.
  std::optional<Bytes> bytes(std::string_view key, std::int64_t least = 0) {
    const std::string* text = find(key);
    if (!text) return std::nullopt;
    const bool plain = text->find_first_not_of("0123456789") == std::string::npos;
    const json::Parsed<Bytes> parsed = json::parse_bytes(plain ? *text + "B" : *text);
    if (!parsed.ok() || parsed.value.count() < least || parsed.value.count() > kMostSize)
      throw SpecError(
          fmt::format("{}: '{}' is no size from {} B to 1 TiB; write 64MiB or a number of bytes",
                      key, escape_control(*text), least));
    return parsed.value;
  }

  template <class Enum>
  Enum choice(std::string_view key, const Named<Enum>& known, std::optional<Enum> fallback = {}) {
    const std::string* text = find(key);
    if (!text && fallback) return *fallback;
    if (!text) fail_missing(key);
    Names names;
    for (const auto& [word, value] : known) {
      if (word == *text) return value;
      names.push_back(word);
    }
    fail_unknown(key, *text, names);
  }

  bool has(std::string_view key) { return find(key) != nullptr; }

  void finish() const {
    const Names known(known_.begin(), known_.end());
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const std::string& key = values_[i].first;
      if (std::find(known.begin(), known.end(), key) == known.end())
        fail_unknown(fmt::format("key of {}", kind_), key, known);
      for (std::size_t j = 0; j < i; ++j)
        if (values_[j].first == key) throw SpecError(fmt::format("{} is said twice", key));
    }
  }

 private:
  const std::string* find(std::string_view key) {
    known_.emplace(key);
    for (const auto& [name, value] : values_)
      if (name == key) return &value;
    return nullptr;
  }

  // What was meant may have been said with a slip.
  [[noreturn]] void fail_missing(std::string_view key) const {
    for (const auto& [name, value] : values_)
      if (known_.count(name) == 0 && find_nearest(name, Names{key}))
        throw SpecError(
            fmt::format("{} needs {}; did you mean it by '{}'?", kind_, key, escape_control(name)));
    throw SpecError(fmt::format("{} needs {}", kind_, key));
  }

  std::string kind_;
  const KeyValues& values_;
  std::set<std::string_view> known_;  // keys are literals
};

Dtype read_dtype(Reader& reader, Dtype usual) {
  return reader.choice<Dtype>("dtype", names_to(Dtype::fp8), usual);
}

// Operands beyond any memory would not fit into the integers that count them.
void require_possible(std::initializer_list<double> products) {
  for (const double elements : products)
    if (elements > kMostElements)
      throw SpecError(fmt::format("an operand of {:.1e} elements is beyond any memory", elements));
}

double product(std::initializer_list<std::int64_t> sizes) {
  double all = 1;
  for (const std::int64_t size : sizes)
    all *= static_cast<double>(size);
  return all;
}

ConvolutionPass read_pass(Reader& reader) {
  const Named<ConvolutionPass> passes = {{"forward", ConvolutionPass::forward},
                                         {"data_gradient", ConvolutionPass::data_gradient},
                                         {"weight_gradient", ConvolutionPass::weight_gradient}};
  return reader.choice<ConvolutionPass>("pass", passes, ConvolutionPass::forward);
}

// C[m,n] = A[m,k] B[k,n] forward; its gradients are products of the same three sizes.
void turn(models::Gemm& gemm, ConvolutionPass pass) {
  if (pass == ConvolutionPass::data_gradient) std::swap(gemm.n, gemm.k);
  if (pass != ConvolutionPass::weight_gradient) return;
  const std::int64_t rows = gemm.m;
  gemm.m = gemm.n;
  gemm.n = gemm.k;
  gemm.k = rows;
  gemm.over_rows = true;
}

models::Kernel read_gemm(Reader& reader, Dtype usual, bool grouped) {
  models::Gemm gemm;
  gemm.grouped = grouped;
  gemm.m = reader.size("m");
  gemm.n = reader.size("n");
  gemm.k = reader.size("k");
  gemm.batch = grouped ? reader.size("groups") : reader.size("batch", 1);
  if (grouped) turn(gemm, read_pass(reader));
  gemm.dtype = read_dtype(reader, usual);
  if (reader.has("adds_to")) gemm.adds_to = reader.choice<Dtype>("adds_to", names_to(Dtype::fp16));
  if (reader.has("scaling")) {
    gemm.scaling = reader.choice<models::Scaling>("scaling", names_to(models::Scaling::micro));
    if (gemm.dtype != Dtype::fp8)
      throw SpecError(
          fmt::format("scaling: operands of {} have no scales; add dtype=fp8", name(gemm.dtype)));
  }
  require_possible({product({gemm.batch, gemm.m, gemm.k}), product({gemm.batch, gemm.k, gemm.n}),
                    product({gemm.batch, gemm.m, gemm.n})});
  return gemm;
}

models::Kernel read_attention(Reader& reader, Dtype usual) {
  models::Attention attention;
  attention.batch = reader.size("batch", 1);
  attention.heads = reader.size("heads");
  attention.kv_heads = reader.size("kv_heads", attention.heads);
  const bool has_sequence = reader.has("sequence");
  if (has_sequence && (reader.has("queries") || reader.has("keys")))
    throw SpecError("sequence is queries and keys in one: say it, or the two");
  attention.query_length = reader.size(has_sequence ? "sequence" : "queries");
  attention.key_length = has_sequence ? attention.query_length : reader.size("keys");
  attention.head_size = reader.size("head_size");
  const Named<bool> flags = {{"true", true}, {"false", false}, {"1", true}, {"0", false}};
  attention.causal = reader.choice<bool>("causal", flags, true);
  attention.window = reader.size("window", 0, 0);
  const Named<bool> passes = {{"forward", false}, {"backward", true}};
  attention.backward = reader.choice<bool>("pass", passes, false);
  attention.kernel = reader.choice<AttentionKernel>("kernel", names_to(AttentionKernel::cudnn),
                                                    AttentionKernel::usual);
  attention.dropout = reader.choice<bool>("dropout", flags, false);
  attention.dtype = read_dtype(reader, usual);
  if (attention.kernel == AttentionKernel::unfused)
    throw SpecError(
        "kernel: unfused is no kernel of its own; ask for gemm with batch, and memory:op=softmax");
  if (attention.heads % attention.kv_heads != 0)
    throw SpecError(
        fmt::format("kv_heads: {} does not divide {} heads", attention.kv_heads, attention.heads));
  if (attention.window > 0 && !attention.causal)
    throw SpecError("window: only causal attention has one");
  require_possible(
      {product({attention.batch, attention.heads, attention.query_length, attention.head_size}),
       product({attention.batch, attention.heads, attention.key_length, attention.head_size}),
       product({attention.batch, attention.heads, attention.query_length, attention.key_length})});
  return attention;
}

std::int64_t output_size(std::string_view side, std::int64_t input, std::int64_t filter,
                         std::int64_t stride, std::int64_t pad) {
  const std::int64_t room = input + 2 * pad - filter;
  if (room < 0)
    throw SpecError(fmt::format("{}: {} with padding {} is smaller than the filter's {}", side,
                                input, pad, filter));
  return room / stride + 1;
}

models::Kernel read_convolution(Reader& reader, Dtype usual) {
  models::Convolution c;
  c.batch = reader.size("n");
  c.in_channels = reader.size("c");
  c.in_height = reader.size("h");
  c.in_width = reader.size("w", c.in_height);
  c.out_channels = reader.size("k");
  c.kernel_height = reader.size("r");
  c.kernel_width = reader.size("s", c.kernel_height);
  const std::int64_t stride = reader.size("stride", 1), pad = reader.size("pad", 0, 0);
  c.out_height = output_size("h", c.in_height, c.kernel_height, reader.size("stride_h", stride),
                             reader.size("pad_h", pad, 0));
  c.out_width = output_size("w", c.in_width, c.kernel_width, reader.size("stride_w", stride),
                            reader.size("pad_w", pad, 0));
  c.groups = reader.size("groups", 1);
  c.pass = read_pass(reader);
  const Named<bool> layouts = {{"nhwc", false}, {"nchw", true}};
  c.channels_first = reader.choice<bool>("layout", layouts, false);
  c.dtype = read_dtype(reader, usual);
  if (c.in_channels % c.groups != 0 || c.out_channels % c.groups != 0)
    throw SpecError(fmt::format("groups: {} does not divide {} and {} channels", c.groups,
                                c.in_channels, c.out_channels));
  require_possible({product({c.batch, c.in_channels, c.in_height, c.in_width}),
                    product({c.batch, c.out_channels, c.out_height, c.out_width}),
                    product({c.in_channels, c.out_channels, c.kernel_height, c.kernel_width})});
  return c;
}

models::Kernel read_memory(Reader& reader) {
  models::MemoryBound kernel;
  kernel.op = reader.choice<MemoryOp>("op", names_to(MemoryOp::optimizer));
  const std::optional<Bytes> all = reader.bytes("bytes", 1), read = reader.bytes("read"),
                             written = reader.bytes("written");
  if (all && (read || written))
    throw SpecError("bytes is read and written in one: say it, or the two");
  if (!all && !read && !written)
    throw SpecError("memory needs bytes, all that it moves, or read and written");
  kernel.read = all ? Bytes(all->count() / 2) : read.value_or(Bytes(0));
  kernel.written = all ? *all - kernel.read : written.value_or(Bytes(0));
  const Named<bool> passes = {{"forward", false}, {"backward", true}};
  kernel.backward = reader.choice<bool>("pass", passes, false);
  kernel.elements = reader.size("elements", 0);
  return kernel;
}

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == by)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

// "4096x11008x4096" is m, n and k.
void add_sizes(const std::string& word, KeyValues& values) {
  const std::vector<std::string> sizes = split(word, 'x');
  if (sizes.size() != 3)
    throw SpecError(
        fmt::format("'{}' is no KEY=VALUE; of a product MxNxK is one too", escape_control(word)));
  values.insert(values.end(), {{"m", sizes[0]}, {"n", sizes[1]}, {"k", sizes[2]}});
}

std::vector<std::string> read_lines(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) fail_input(path, "cannot be read");
  const auto size = file.tellg();
  if (size < 0 || static_cast<std::size_t>(size) > kMostFileBytes)
    fail_input(path, "is no file of at most 256 MiB");
  std::string text(static_cast<std::size_t>(size), '\0');
  file.seekg(0);
  if (!file.read(text.data(), size)) fail_input(path, "cannot be read");
  std::erase(text, '\r');
  return split(text, '\n');
}

// docs/kernel.md has the keys.
AskedKernel kernel_of(std::string text, const std::string& kind, const KeyValues& values,
                      Dtype usual) {
  static const Names kKinds = {"gemm", "grouped_gemm", "attention", "conv", "memory"};
  Reader reader(kind, values);
  AskedKernel asked{std::move(text), {}};
  const Named<bool> runs = {{"settled", false}, {"short", true}};
  if (kind == "gemm" || kind == "grouped_gemm") {
    asked.kernel = read_gemm(reader, usual, kind == "grouped_gemm");
    asked.in_short_run = reader.choice<bool>("run", runs, false);
  } else if (kind == "attention") {
    asked.kernel = read_attention(reader, usual);
  } else if (kind == "conv") {
    asked.kernel = read_convolution(reader, usual);
  } else if (kind == "memory") {
    asked.kernel = read_memory(reader);
  } else {
    fail_unknown("kind of kernel", kind, kKinds);
  }
  reader.finish();
  return asked;
}

AskedKernel kernel_of_row(const std::vector<std::string>& keys,
                          const std::vector<std::string>& cells, Dtype usual) {
  if (cells.size() != keys.size())
    throw SpecError(fmt::format("{} cells under {} names", cells.size(), keys.size()));
  std::string kind, text;
  KeyValues values;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] == "kind")
      kind = cells[i];
    else if (!cells[i].empty())
      values.emplace_back(keys[i], cells[i]);
  }
  for (const auto& [key, value] : values)
    text += fmt::format("{}{}={}", text.empty() ? ":" : ",", key, value);
  return kernel_of(kind + text, kind, values, usual);
}

}  // namespace

AskedKernel parse_kernel(const std::string& spec, Dtype usual) {
  const std::size_t colon = spec.find(':');
  const std::string kind = spec.substr(0, colon);
  KeyValues values;
  if (colon != std::string::npos && colon + 1 < spec.size()) {
    for (const std::string& word : split(spec.substr(colon + 1), ',')) {
      const std::size_t equal = word.find('=');
      if (equal == std::string::npos)
        add_sizes(word, values);
      else
        values.emplace_back(word.substr(0, equal), word.substr(equal + 1));
    }
  }
  return kernel_of(spec, kind, values, usual);
}

std::vector<AskedKernel> read_kernels(const std::string& path, Dtype usual,
                                      const Refusal& refusal) {
  std::vector<AskedKernel> kernels;
  std::vector<Diagnostic> wrong;
  std::vector<std::string> keys;
  int number = 0;
  const auto complain = [&](const std::string& message, const std::string& hint) {
    wrong.push_back({Severity::error, {path, number, 1}, "", message, hint});
  };
  for (const std::string& line : read_lines(path)) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string> cells = split(line, ',');
    if (keys.empty()) {
      keys = cells;
      if (std::find(keys.begin(), keys.end(), "kind") != keys.end()) continue;
      complain("no column is called kind", "the first line names the keys: kind,m,n,k,dtype");
      break;
    }
    try {
      kernels.push_back(kernel_of_row(keys, cells, usual));
      if (const std::string why = refusal(kernels.back().kernel); !why.empty()) complain(why, "");
    } catch (const SpecError& error) {
      complain(error.what(), "");
    }
  }
  if (wrong.empty() && keys.empty())
    complain("is empty", "the first line names the keys: kind,m,n,k");
  else if (wrong.empty() && kernels.empty())
    complain("holds no kernel", "write one a line below the line that names the keys");
  if (!wrong.empty()) throw ScenarioError(std::move(wrong));
  return kernels;
}

}  // namespace trainyard::cli
