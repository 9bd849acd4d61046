// Networks as a table of layers, docs/layers.md: kind layers.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "models/layers/layer_table.h"
#include "sim/json/schema.h"
#include "sim/scenario/topics/assemble.h"
#include "sim/scenario/topics/model/model_family.h"
#include "sim/scenario/topics/word_lists.h"

namespace trainyard::models {

void visit_fields(json::Fields& f, TableTraffic& s);
void visit_fields(json::Fields& f, TableRow& s);
void visit_fields(json::Fields& f, TableLayer& s);
void visit_named(json::Fields& f, std::string_view name, TableBlock& s);

namespace {

using json::anything;
using json::between;
using json::optional;
using json::required;

constexpr double kMostPixels = 65536;
constexpr double kMostOfOne = 1e13;  // elements, parameters: sums stay within 64 bits

constexpr std::array<json::Choice<MemoryOp>, 13> kMemoryOps = {
    {{"elementwise", MemoryOp::elementwise},
     {"dropout", MemoryOp::dropout},
     {"activation", MemoryOp::activation},
     {"layer_norm", MemoryOp::layer_norm},
     {"rms_norm", MemoryOp::rms_norm},
     {"batch_norm", MemoryOp::batch_norm},
     {"softmax", MemoryOp::softmax},
     {"rope", MemoryOp::rope},
     {"pooling", MemoryOp::pooling},
     {"embedding", MemoryOp::embedding},
     {"embedding_bag", MemoryOp::embedding_bag},
     {"permutation", MemoryOp::permutation},
     {"cross_entropy", MemoryOp::cross_entropy}}};

// The word of an operation, and the keys that a row of it may and must have, separated by spaces.
struct OpRow {
  std::string_view word;
  TableOp op;
  std::string_view keys, required;
};
constexpr std::array<OpRow, 49> kOpRows = {{
    {"conv", TableOp::conv, "out kernel stride padding dilation groups bias tied", "out kernel"},
    {"depthwise_conv", TableOp::depthwise_conv, "out kernel stride padding dilation bias tied",
     "kernel"},
    {"conv_transpose", TableOp::conv_transpose,
     "out kernel stride padding dilation output_padding groups bias tied", "out kernel"},
    {"linear", TableOp::linear, "in out bias tied", "in out"},
    {"gemm", TableOp::gemm, "m n k bias tied", "m n k"},
    {"matmul", TableOp::matmul, "count m n k", "m n k"},
    {"attention", TableOp::attention, "heads kv_heads query key head causal",
     "heads query key head"},
    {"batch_norm", TableOp::batch_norm, "affine", ""},
    {"group_norm", TableOp::group_norm, "affine", ""},
    {"layer_norm", TableOp::layer_norm, "width affine bias", "width"},
    {"relu", TableOp::relu, "in_place", ""},
    {"sigmoid", TableOp::sigmoid, "in_place", ""},
    {"tanh", TableOp::tanh, "in_place", ""},
    {"leaky_relu", TableOp::leaky_relu, "in_place", ""},
    {"elu", TableOp::elu, "in_place", ""},
    {"gelu", TableOp::gelu, "in_place", ""},
    {"silu", TableOp::silu, "in_place", ""},
    {"relu6", TableOp::relu6, "in_place", ""},
    {"hardswish", TableOp::hardswish, "in_place", ""},
    {"hardsigmoid", TableOp::hardsigmoid, "in_place", ""},
    {"mish", TableOp::mish, "in_place", ""},
    {"softplus", TableOp::softplus, "in_place", ""},
    {"max_pool", TableOp::max_pool, "kernel stride padding dilation ceil to", ""},
    {"avg_pool", TableOp::avg_pool, "kernel stride padding dilation ceil to", ""},
    {"resize", TableOp::resize, "by to", ""},
    {"softmax", TableOp::softmax, "", ""},
    {"dropout", TableOp::dropout, "", ""},
    {"stochastic_depth", TableOp::stochastic_depth, "", ""},
    {"function", TableOp::function, "", ""},
    {"scale", TableOp::scale, "", ""},
    {"shift", TableOp::shift, "", ""},
    {"loss", TableOp::loss, "", ""},
    {"add", TableOp::add, "shape", ""},
    {"mul", TableOp::mul, "shape", ""},
    {"elementwise", TableOp::elementwise, "shape", ""},
    {"concat", TableOp::concat, "axis shape", ""},
    {"copy", TableOp::copy, "shape", ""},
    {"pad", TableOp::pad, "shape", "shape"},
    {"reduce", TableOp::reduce, "shape", "shape"},
    {"slice", TableOp::slice, "shape", "shape"},
    {"part", TableOp::part, "shape", "shape"},
    {"gather", TableOp::gather, "shape", "shape"},
    {"view", TableOp::view, "shape", "shape"},
    {"parameter", TableOp::parameter, "shape", "shape"},
    {"buffer", TableOp::buffer, "shape", "shape"},
    {"constant", TableOp::constant, "shape fixed", "shape"},
    {"embedding", TableOp::embedding, "rows width tied", "rows width"},
    {"memory", TableOp::memory, "as forward backward keeps parameters shape", "forward"},
    {"time", TableOp::time, "forward backward micro_batch keeps parameters shape",
     "forward micro_batch"},
}};

constexpr std::array<json::Choice<TableOp>, kOpRows.size()> kOps = [] {
  std::array<json::Choice<TableOp>, kOpRows.size()> list{};
  for (std::size_t i = 0; i < list.size(); ++i)
    list[i] = {kOpRows[i].word, kOpRows[i].op};
  return list;
}();

// Rows stand in the order of TableOp.
const OpRow& row_of(TableOp op) {
  return kOpRows[static_cast<std::size_t>(op)];
}

bool has_word(std::string_view words, std::string_view word) {
  for (std::size_t at = words.find(word); at != std::string_view::npos;
       at = words.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || words[at - 1] == ' ') && (end == words.size() || words[end] == ' '))
      return true;
  }
  return false;
}

std::string listed(std::string_view words) {
  std::string text(words);
  for (std::size_t at = text.find(' '); at != std::string::npos; at = text.find(' ', at + 2))
    text.replace(at, 1, ", ");
  return text;
}

void visit_after(json::Fields& f, std::optional<std::vector<std::string>>& after,
                 std::string_view about) {
  std::vector<std::string> names = after.value_or(std::vector<std::string>{});
  if (f.list("after", names, optional, anything, about)) after = std::move(names);
}

// The keys of one row: which it has is compared with what its operation may and must have.
class RowKeys {
 public:
  RowKeys(json::Fields& f, TableRow& row, bool known) : f_(f), row_(row), known_(known) {}

  void traffic(std::string_view key, std::optional<TableTraffic>& moved) {
    constexpr const char* kAbout = "What memory moves, {read, write}; of op time, a time.";
    // A row that nobody read, as the schema's, may be of any operation.
    if (!row_.name.empty() && need(key) == optional)
      return note(key, f_.section(key, moved, kAbout));
    TableTraffic given = moved.value_or(TableTraffic{});
    if (f_.section_or_name(key, given, need(key), kAbout)) moved = given;
  }
  json::Need need(std::string_view key) const {
    return known_ && has_word(row_of(row_.op).required, key) ? required : optional;
  }
  template <class T>
  void field(std::string_view key, std::optional<T>& value, json::Bounds bounds,
             std::string_view about) {
    if (need(key) == optional) return note(key, f_.field(key, value, bounds, about));
    T given = value.value_or(T{});
    if (f_.field(key, given, required, bounds, about)) value = given;
  }
  void pair(std::string_view key, std::vector<std::int64_t>& value, double least,
            std::string_view about) {
    note(key, f_.list(key, value, need(key), between(least, kMostPixels), about, true));
    if (value.size() > 2) f_.problem(key, "expected one number, or height and width");
  }
  void note(std::string_view key, bool given) {
    const OpRow& row = row_of(row_.op);
    if (!known_ || !given || has_word(row.keys, key)) return;
    f_.problem(key, fmt::format("{} has no {}", row.word, key),
               row.keys.empty() ? "it has no keys of its own" : "it has " + listed(row.keys));
  }
  void finish() {
    const bool resizes = row_.op == TableOp::resize;
    const bool sized = row_.op == TableOp::max_pool || row_.op == TableOp::avg_pool || resizes;
    const bool window = resizes ? !row_.by.empty() : !row_.kernel.empty();
    if (known_ && sized && window != row_.to.empty())
      f_.problem("to", fmt::format("{} has either \"{}\" or \"to\"", row_of(row_.op).word,
                                   resizes ? "by" : "kernel"));
  }

 private:
  json::Fields& f_;
  TableRow& row_;
  bool known_;
};

}  // namespace

void visit_fields(json::Fields& f, TableTraffic& s) {
  f.field("read", s.read, optional, between(0, kMostOfOne), "Elements that it reads.");
  f.field("write", s.written, optional, between(0, kMostOfOne), "Elements that it writes.");
}

namespace {

void visit_windows(RowKeys& keys, TableRow& s) {
  keys.pair("kernel", s.kernel, 1, "Window: one number, or height and width.");
  keys.pair("stride", s.stride, 1, "Default: 1; of pools the window.");
  keys.pair("padding", s.padding, 0, "Default: 0.");
  keys.pair("dilation", s.dilation, 1, "Default: 1.");
  keys.pair("output_padding", s.output_padding, 0, "Default: 0.");
  keys.pair("to", s.to, 1, "Height and width that it hands on.");
  keys.pair("by", s.by, 1, "Factor of height and width.");
  keys.field("ceil", s.ceil, anything, "Sizes are rounded up.");
}

void visit_sizes(RowKeys& keys, TableRow& s) {
  const json::Bounds size = between(1, scenario::kMostWidth);
  keys.field("in", s.in, size, "Inputs.");
  keys.field("out", s.out, size, "Outputs: channels, or columns of a product.");
  keys.field("groups", s.groups, size, "Of channels. Default: 1.");
  keys.field("m", s.m, size, "Rows of a product for a sample.");
  keys.field("n", s.n, size, "Columns of a product.");
  keys.field("k", s.k, size, "Length of what a product sums.");
  keys.field("count", s.count, size, "Products for a sample. Default: 1.");
  keys.field("heads", s.heads, size, "Of attention.");
  keys.field("kv_heads", s.kv_heads, size, "Heads of keys and values. Default: heads.");
  keys.field("query", s.query, size, "Queries of a sample.");
  keys.field("key", s.key, size, "Keys of a sample.");
  keys.field("head", s.head, size, "Width of a head.");
  keys.field("width", s.width, size, "Elements that a norm sees together; of an embedding.");
  keys.field("rows", s.rows, between(1, 1e12), "Of an embedding.");
  keys.field("axis", s.axis, between(0, 15), "Along which tensors are joined. Default: 0.");
  keys.field("bias", s.bias, anything, "There is one.");
  keys.field("tied", s.tied, anything, "The weights are those of an operation before it.");
  keys.field("affine", s.affine, anything, "A norm has parameters. Default: true.");
  keys.field("causal", s.causal, anything, "Attention sees nothing behind a query.");
  keys.field("in_place", s.in_place, anything, "The output replaces the input.");
  keys.field("fixed", s.fixed, anything, "It does not grow with the micro-batch.");
}

void visit_costs(json::Fields& f, RowKeys& keys, TableRow& s) {
  keys.note("as", f.choice("as", s.as, kMemoryOps, "Kind of a memory-bound kernel."));
  if (s.op == TableOp::time) {
    keys.field("forward", s.forward_time, json::not_negative, "Time with `micro_batch` samples.");
    keys.field("backward", s.backward_time, json::not_negative, "The same of the backward pass.");
  } else {
    keys.traffic("forward", s.forward);
    keys.traffic("backward", s.backward);
  }
  keys.field("micro_batch", s.micro_batch, between(1, scenario::kMostBatch),
             "Samples with which times were taken.");
  keys.field("keeps", s.keeps, between(0, kMostOfOne), "Elements kept for the backward pass.");
  keys.field("parameters", s.parameters, between(0, kMostOfOne), "Trained numbers.");
}

}  // namespace

void visit_fields(json::Fields& f, TableRow& s) {
  const bool known = f.choice("op", s.op, kOps, required, "What it does.");
  RowKeys keys(f, s, known);
  if (known && s.name.empty()) s.name = row_of(s.op).word;
  f.field("name", s.name, optional, "Default: op.");
  visit_after(f, s.after,
              "What it reads: operations before it in its layer, input, input 2, inputs. Default: "
              "the operation before it.");
  visit_windows(keys, s);
  visit_sizes(keys, s);
  visit_costs(f, keys, s);
  keys.note("shape", f.list("shape", s.shape, keys.need("shape"), between(1, kMostOfOne),
                            "Sizes that it hands on, of one sample."));
  keys.finish();
}

void visit_fields(json::Fields& f, TableLayer& s) {
  f.field("name", s.name, required, "Unique; a pipeline cuts between layers.");
  f.field("block", s.block, anything, "A name of blocks.");
  const bool ops = f.sections("ops", s.ops, optional, "Its own operations.");
  if (s.block.has_value() == ops) f.problem("ops", "a layer has either \"block\" or \"ops\"");
  visit_after(f, s.after,
              "What it reads: LAYER, LAYER:OPERATION or input. Default: the layer before it.");
}

void visit_named(json::Fields& f, std::string_view name, TableBlock& s) {
  f.sections(name, s.ops, required, "");
}

}  // namespace trainyard::models

namespace trainyard::scenario {
namespace {

enum class LayerCut : std::uint8_t { layers, branches };
constexpr std::array<json::Choice<LayerCut>, 2> kLayerCuts = {
    {{"layers", LayerCut::layers}, {"branches", LayerCut::branches}}};

struct TableInput {
  std::vector<std::int64_t> image_size, shape;
};

void visit_fields(json::Fields& f, TableInput& s) {
  const bool image = f.list("image_size", s.image_size, json::optional, json::between(1, 65536),
                            "Channels, height, width.");
  const bool shape = f.list("shape", s.shape, json::optional, json::between(1, 1e12),
                            "Sizes of a sample that is no image.");
  if (image == shape) f.problem("image_size", "expected either image_size or shape");
  if (!s.image_size.empty() && s.image_size.size() != 3)
    f.problem("image_size", "expected three numbers: channels, height, width");
}

class LayersFamily final : public ModelFamily {
 public:
  void visit(json::Fields& f) override {
    f.section("input", input_, json::required, "One sample.");
    f.field("parameters", parameters_, json::between(0, 1e18),
            "Of all layers; a file that adds up to something else is refused.");
    f.field("multiply_adds", multiply_adds_, json::between(0, 1e18),
            "Of a sample at the file's own input; the same.");
    f.choice("cut", cut_, kLayerCuts, json::optional,
             "What a stage is made of: layers as they are, or cut at the branches inside them.");
    f.named("blocks", table_.blocks, "Lists of operations that several layers share.");
    f.sections("layers", table_.layers, json::required, "In the order of the forward pass.");
  }

  models::Network assemble(const json::Value& model, Findings& findings) const override {
    models::LayerTable table = table_;
    table.input = input_.image_size.empty() ? input_.shape : input_.image_size;
    std::vector<models::TableProblem> problems;
    models::LayerNetwork network = resolve(table, problems);
    for (const models::TableProblem& problem : problems)
      findings.error("/model" + problem.pointer, problem.message, problem.hint);
    if (!problems.empty()) return network;
    compare("/model/parameters", "parameters", parameters_, network.parameters, findings);
    if (!has_input_of_its_own(model))
      compare("/model/multiply_adds", "multiply-adds", multiply_adds_, network.multiply_adds,
              findings);
    return cut_ == LayerCut::branches ? cut_at_branches(std::move(network)) : network;
  }

 private:
  static void compare(const char* pointer, const char* what,
                      const std::optional<std::int64_t>& stated, std::int64_t found,
                      Findings& findings) {
    if (!stated || *stated == found) return;
    findings.error(pointer, fmt::format("the layers have {} {}, not {}", found, what, *stated));
  }

  // The scenario's own image, where the total stands in a preset.
  static bool has_input_of_its_own(const json::Value& model) {
    const json::Value* input = json::find(model, "/input/image_size");
    const json::Value* total = model.find("multiply_adds");
    return input != nullptr && total != nullptr &&
           input->at.position().file != total->at.position().file;
  }

  models::LayerTable table_;
  LayerCut cut_ = LayerCut::layers;
  TableInput input_;
  std::optional<std::int64_t> parameters_, multiply_adds_;
};

}  // namespace

std::unique_ptr<ModelFamily> layers_family() {
  return std::make_unique<LayersFamily>();
}

}  // namespace trainyard::scenario
