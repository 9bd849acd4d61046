#include "calibrate/fit/samples/sample_kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/base/text.h"

namespace trainyard::fit {
namespace {

using Line = SampleLine;

constexpr std::string_view kWarm = "-warm";

models::Dtype read_dtype(Line& line) {
  constexpr std::array kAll = {models::Dtype::fp32, models::Dtype::tf32, models::Dtype::bf16,
                               models::Dtype::fp16, models::Dtype::fp8};
  const std::string word =
      line.word("dtype", {"fp32", "tf32", "bf16", "fp16", "fp8"}, Line::required);
  for (const models::Dtype dtype : kAll)
    if (name(dtype) == word) return dtype;
  return models::Dtype::fp32;
}

Bytes read_bytes(Line& line, std::string_view key, std::int64_t least = 1) {
  return Bytes(line.integer(key, least, Line::required, least));
}

std::int64_t read_size(Line& line, std::string_view key) {
  return line.integer(key, 1, Line::required, 1);
}

// Products of sizes are counted in 64 bits; no memory holds a 64th of what they can count.
constexpr double kMostTraffic = 1.4e17;

double real(std::int64_t size) {
  return static_cast<double>(size);
}

void refuse_huge(Line& line, std::string_view key, double elements) {
  if (elements * 8 > kMostTraffic) line.error(key, "these sizes fit into no memory");
}

GemmCase read_gemm(Line& line) {
  GemmCase c;
  c.shape.dtype = read_dtype(line);
  c.shape.m = read_size(line, "m");
  c.shape.n = read_size(line, "n");
  c.shape.k = read_size(line, "k");
  c.shape.batch = line.integer("batch", 1, Line::optional, 1);
  const double m = real(c.shape.m), n = real(c.shape.n), k = real(c.shape.k);
  refuse_huge(line, "m", real(c.shape.batch) * (m * k + k * n + m * n));
  c.layout = line.word("layout", {"TN", "NN", "NT", "TT"}, Line::optional, "");
  c.shape.over_rows = c.layout == "NT";
  return c;
}

MemoryCase read_memory(Line& line) {
  MemoryCase c;
  std::vector<std::string> words;
  for (const models::MemoryOp op : models::kAllMemoryOps) {
    std::string& word = words.emplace_back(name(op));
    std::replace(word.begin(), word.end(), '_', '-');
  }
  const std::string word = line.word("op", {words.begin(), words.end()}, Line::required);
  for (std::size_t op = 0; op < words.size(); ++op)
    if (words[op] == word) c.op = models::kAllMemoryOps[op];
  c.variant = line.text("variant", Line::optional);
  if (c.variant.ends_with(kWarm)) {
    c.warm = true;
    c.variant.resize(c.variant.size() - kWarm.size());
  }
  c.dtype = line.text("dtype", Line::optional);
  c.rows = line.integer("rows", 0, Line::optional, 0);
  c.columns = line.integer("columns", 0, Line::optional, 0);
  c.read = read_bytes(line, "read_bytes", 0);
  c.written = read_bytes(line, "written_bytes", 0);
  if ((c.read + c.written).count() == 0)
    line.error("read_bytes", "nothing is read and nothing is written");
  return c;
}

AttentionCase read_attention(Line& line) {
  AttentionCase c;
  c.implementation = line.text("implementation", Line::optional);
  c.shape.dtype = read_dtype(line);
  c.shape.batch = read_size(line, "batch");
  c.shape.heads = read_size(line, "heads");
  c.shape.kv_heads = line.integer("kv_heads", 1, Line::optional, c.shape.heads);
  c.shape.query_length = read_size(line, "query_length");
  c.shape.key_length = line.integer("key_length", 1, Line::optional, c.shape.query_length);
  c.shape.head_size = read_size(line, "head_size");
  c.shape.causal = line.flag("causal", Line::required);
  c.shape.backward = line.flag("backward", Line::required);
  const double rows = real(c.shape.query_length) + real(c.shape.key_length);
  refuse_huge(line, "batch",
              real(c.shape.batch) * real(c.shape.heads) * rows * 4 * real(c.shape.head_size));
  if (c.shape.heads % c.shape.kv_heads != 0)
    line.error("kv_heads", fmt::format("{} heads cannot share {} heads of keys", c.shape.heads,
                                       c.shape.kv_heads));
  return c;
}

ConvolutionCase read_convolution(Line& line) {
  ConvolutionCase c;
  models::Convolution& s = c.shape;
  const std::string pass =
      line.word("pass", {"forward", "data_gradient", "weight_gradient"}, Line::required);
  if (pass == "data_gradient") s.pass = models::ConvolutionPass::data_gradient;
  if (pass == "weight_gradient") s.pass = models::ConvolutionPass::weight_gradient;
  s.dtype = read_dtype(line);
  s.batch = read_size(line, "batch");
  s.in_channels = read_size(line, "in_channels");
  s.out_channels = read_size(line, "out_channels");
  s.in_height = read_size(line, "in_height");
  s.in_width = read_size(line, "in_width");
  s.out_height = read_size(line, "out_height");
  s.out_width = read_size(line, "out_width");
  s.kernel_height = read_size(line, "kernel_height");
  s.kernel_width = read_size(line, "kernel_width");
  s.groups = line.integer("groups", 1, Line::optional, 1);
  c.stride = line.integer("stride", 1, Line::optional, 1);
  c.network = line.text("network", Line::optional);
  const double inputs = real(s.in_channels) * real(s.in_height) * real(s.in_width);
  const double outputs = real(s.out_channels) * real(s.out_height) * real(s.out_width);
  const double filter = real(s.in_channels) * real(s.out_channels) * real(s.kernel_height);
  // Few channels are filled up to eight.
  refuse_huge(line, "batch",
              64 * (real(s.batch) * (inputs + outputs) + filter * real(s.kernel_width)));
  if (s.in_channels % s.groups != 0 || s.out_channels % s.groups != 0)
    line.error("groups", fmt::format("{} groups do not divide {} and {} channels", s.groups,
                                     s.in_channels, s.out_channels));
  return c;
}

LaunchCase read_launch(Line& line) {
  return {line.word("what",
                    {"kernel", "graph_node", "graph_launch", "event_record", "stream_wait",
                     "empty_kernel", "round_trip"},
                    Line::required)};
}

CopyCase read_copy(Line& line) {
  CopyCase c;
  c.direction = line.word("direction", {"h2d", "d2h", "d2d", "h2h"}, Line::required);
  c.pinned = line.flag("pinned", Line::optional, true);
  c.bytes = read_bytes(line, "bytes");
  return c;
}

PeerCase read_peer(Line& line) {
  PeerCase c;
  c.from = line.count("from", 0, Line::required, 0);
  c.to = line.count("to", 0, Line::required, 1);
  c.bytes = read_bytes(line, "bytes");
  c.access = line.word("access", {"peer", "staged"}, Line::optional, "peer");
  c.mode = line.word("mode", {"alone", "both", "all"}, Line::optional, "alone");
  return c;
}

CollectiveCase read_collective(Line& line) {
  CollectiveCase c;
  c.collective = line.word("collective",
                           {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast",
                            "send-recv", "reduce", "gather", "scatter", "hypercube"},
                           Line::required);
  c.ranks = line.count("ranks", 1, Line::required, 2);
  c.servers = line.count("servers", 1, Line::optional, 1);
  c.bytes = read_bytes(line, "bytes", 0);
  c.backend = line.word("backend", {"nccl", "gloo", "ring", "loopback"}, Line::optional, "nccl");
  c.in_switch = line.flag("in_switch", Line::optional, false);
  if (c.servers > c.ranks) line.error("servers", "more servers than ranks");
  return c;
}

OverlapCase read_overlap(Line& line) {
  OverlapCase c;
  c.victim = line.word("victim", {"gemm", "memory"}, Line::required);
  c.load = line.word("load", {"hold", "stream"}, Line::required);
  c.channels = line.count("channels", 1, Line::required, 1);
  c.multiprocessors = line.count("multiprocessors", 1, Line::required, 1);
  c.alone_us = line.positive("alone_us", Line::required);
  c.load_alone_us = line.number("load_alone_us", 0, Line::optional, 0);
  c.load_us = line.number("load_us", 0, Line::optional, 0);
  return c;
}

// Everything that tells one case from another. Numbers are filled up, so that the order of keys is
// the order of sizes.
std::string key_of(const GemmCase& c) {
  return fmt::format("gemm {} {:010} {:010} {:010} {:010} {}", name(c.shape.dtype), c.shape.batch,
                     c.shape.n, c.shape.k, c.shape.m, c.layout);
}
std::string key_of(const MemoryCase& c) {
  return fmt::format("memory {} {} {} {:016} {:016} {} {:010} {:010}", name(c.op), c.variant,
                     c.warm ? 1 : 0, c.read.count(), c.written.count(), c.dtype, c.rows, c.columns);
}
std::string key_of(const AttentionCase& c) {
  const models::Attention& s = c.shape;
  return fmt::format("attention {} {} {:06} {} {} {:010} {:010} {:010} {:06} {:06}",
                     c.implementation, name(s.dtype), s.head_size, s.causal ? 1 : 0,
                     s.backward ? 1 : 0, s.query_length, s.key_length, s.batch, s.heads,
                     s.kv_heads);
}
std::string key_of(const ConvolutionCase& c) {
  const models::Convolution& s = c.shape;
  return fmt::format(
      "convolution {} {} {:06} {:06} {:06} {:06} {:06} {:06} {:03} {:03} {:06} {:03} {:010}",
      name(s.dtype), static_cast<int>(s.pass), s.in_channels, s.out_channels, s.in_height,
      s.in_width, s.out_height, s.out_width, s.kernel_height, s.kernel_width, s.groups, c.stride,
      s.batch);
}
std::string key_of(const LaunchCase& c) {
  return "launch " + c.what;
}
std::string key_of(const CopyCase& c) {
  return fmt::format("copy {} {} {:016}", c.direction, c.pinned ? 1 : 0, c.bytes.count());
}
std::string key_of(const PeerCase& c) {
  return fmt::format("p2p {} {} {:016} {:04} {:04}", c.access, c.mode, c.bytes.count(), c.from,
                     c.to);
}
std::string key_of(const CollectiveCase& c) {
  return fmt::format("collective {} {:06} {:06} {} {} {:016}", c.collective, c.servers, c.ranks,
                     c.backend, c.in_switch ? 1 : 0, c.bytes.count());
}
std::string key_of(const OverlapCase& c) {
  return fmt::format("overlap {} {} {:04} {:04} {} {} {}", c.victim, c.load, c.channels,
                     c.multiprocessors, shortest(c.alone_us), shortest(c.load_alone_us),
                     shortest(c.load_us));
}

// A value of the machine line as people read it; lists and objects are written as JSON.
std::string fact_of(const json::Value& value) {
  const bool plain = value.is(json::Kind::string) || value.is(json::Kind::number);
  return plain ? value.text : json::to_text(value, -1);
}

}  // namespace

Machine read_machine(Line& line) {
  Machine machine;
  machine.probe = line.text("probe", Line::optional);
  machine.date = line.text("date", Line::optional);
  machine.driver = line.text("driver", Line::optional);
  machine.cuda = line.text("cuda", Line::optional);
  for (const std::string_view key : {"probe", "date", "driver", "cuda", "cublas", "cudnn", "nccl",
                                     "cpu", "sockets", "host_memory_bytes"}) {
    const json::Value* value = line.find(key);
    if (value != nullptr && !value->is(json::Kind::null))
      machine.facts.emplace_back(key, fact_of(*value));
  }
  const json::Value* gpus = line.find("gpus");
  if (gpus == nullptr || !gpus->is(json::Kind::array) || gpus->items.empty()) {
    line.error("gpus", "expected a list of GPUs", R"(write [{"name": "..."}])");
    return machine;
  }
  for (const json::Value& gpu : gpus->items) {
    const json::Value* gpu_name = gpu.find("name");
    if (gpu_name == nullptr || !gpu_name->is(json::Kind::string) || gpu_name->text.empty()) {
      line.error("gpus", "every GPU needs a name", "write it as the driver does");
      return machine;
    }
    machine.gpus.push_back(gpu_name->text);
    if (machine.gpus.size() > 1) continue;
    for (const json::Member& member : gpu.members)
      machine.facts.emplace_back("gpu " + member.key, fact_of(member.value));
  }
  machine.facts.emplace_back("gpus", std::to_string(machine.gpus.size()));
  return machine;
}

std::optional<Sample> read_sample(const std::string& kind, Line& line) {
  Sample sample;
  const auto take = [&sample](auto c) {
    sample.key = key_of(c);
    sample.of = std::move(c);
  };
  if (kind == "gemm") {
    take(read_gemm(line));
  } else if (kind == "memory") {
    take(read_memory(line));
  } else if (kind == "attention") {
    take(read_attention(line));
  } else if (kind == "convolution") {
    take(read_convolution(line));
  } else if (kind == "launch") {
    take(read_launch(line));
  } else if (kind == "copy") {
    take(read_copy(line));
  } else if (kind == "p2p") {
    take(read_peer(line));
  } else if (kind == "collective") {
    take(read_collective(line));
  } else if (kind == "overlap") {
    take(read_overlap(line));
  } else {
    return std::nullopt;
  }
  sample.time_us = line.positive("time_us", Line::required);
  sample.spread = line.number("spread", 0, Line::optional, 0);
  sample.gpu = line.count("gpu", 0, Line::optional, 0);
  sample.at = line.at();
  return sample;
}

}  // namespace trainyard::fit
