// A table of layers put together: names looked up, every operation in its place.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "models/layers/layer_table.h"

namespace trainyard::models {
namespace {

class Resolver {
 public:
  Resolver(const LayerTable& table, std::vector<TableProblem>& problems)
      : table_(table), problems_(problems) {}

  LayerNetwork run() {
    LayerTensor last;
    last.shape = table_.input;
    try {
      last.count = count_of(last.shape);
    } catch (const RowRefused& refused) {
      problem("/input", refused.message);
      return {};
    }
    by_name_["input"] = last;
    for (std::size_t i = 0; i < table_.layers.size() && problems_.empty(); ++i)
      last = place(i, last);
    sum_up();
    return std::move(network_);
  }

 private:
  void problem(std::string pointer, std::string message, std::string hint = {}) {
    problems_.push_back({std::move(pointer), std::move(message), std::move(hint)});
  }

  const LayerTensor* find_outside(std::size_t layer, std::size_t index);
  const TableLayer* find_layer(std::string_view name) const;
  std::string unknown_layer(std::size_t layer, const std::string& name) const;
  bool reads(std::size_t layer, std::string_view other, std::vector<bool>& seen) const;
  LayerTensor place(std::size_t index, const LayerTensor& before);
  std::vector<LayerTensor> inputs_of(const TableRow& row, const LayerTensor& before,
                                     const std::vector<LayerTensor>& given,
                                     const std::map<std::string, LayerTensor>& own);
  LayerTensor append(const TableRow& row, std::string name, std::vector<LayerTensor> inputs);
  void sum_up();

  const LayerTable& table_;
  std::vector<TableProblem>& problems_;
  LayerNetwork network_;
  std::map<std::string, LayerTensor> by_name_;  // LAYER and LAYER:OPERATION
};

// As a token of a JSON pointer, RFC 6901.
std::string escaped(const std::string& name) {
  std::string token;
  for (const char c : name)
    token += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return token;
}

std::string layer_part(const std::string& reference) {
  return reference.substr(0, reference.find(':'));
}

// Whether the layer's inputs lead back to the layer called `other`.
bool Resolver::reads(std::size_t layer, std::string_view other, std::vector<bool>& seen) const {
  if (seen[layer]) return false;
  seen[layer] = true;
  const TableLayer& here = table_.layers[layer];
  const auto leads = [&](std::size_t to) {
    return table_.layers[to].name == other || reads(to, other, seen);
  };
  if (!here.after) return layer > 0 && leads(layer - 1);
  for (const std::string& name : *here.after) {
    for (std::size_t to = 0; to < table_.layers.size(); ++to)
      if (table_.layers[to].name == layer_part(name) && leads(to)) return true;
  }
  return false;
}

std::string Resolver::unknown_layer(std::size_t layer, const std::string& name) const {
  for (std::size_t to = layer; to < table_.layers.size(); ++to) {
    const std::string& own = table_.layers[layer].name;
    if (table_.layers[to].name != layer_part(name)) continue;
    std::vector<bool> seen(table_.layers.size(), false);
    if (to == layer || reads(to, own, seen))
      return fmt::format("a cycle: \"{}\" reads \"{}\", which reads it", own, name);
    return fmt::format("\"{}\" stands after it; a layer reads what stands before it", name);
  }
  return fmt::format("no layer or operation before it is called \"{}\"", name);
}

LayerTensor Resolver::place(std::size_t index, const LayerTensor& before) {
  const TableLayer& layer = table_.layers[index];
  const std::string at = fmt::format("/layers/{}", index);
  if (by_name_.count(layer.name) > 0) {
    problem(at + "/name", layer.name == "input"
                              ? "\"input\" is the network's input"
                              : fmt::format("two layers are called \"{}\"", layer.name));
    return before;
  }
  std::vector<LayerTensor> given;
  if (layer.after) {
    for (std::size_t i = 0; i < layer.after->size(); ++i) {
      const auto found = by_name_.find((*layer.after)[i]);
      if (found != by_name_.end())
        given.push_back(found->second);
      else
        problem(fmt::format("{}/after/{}", at, i), unknown_layer(index, (*layer.after)[i]));
    }
    if (given.empty() && problems_.empty()) problem(at + "/after", "a layer reads something");
  } else {
    given.push_back(before);
  }
  const std::vector<TableRow>* rows = &layer.ops;
  std::string rows_at = at + "/ops";
  if (layer.block) {
    const auto block = std::find_if(table_.blocks.begin(), table_.blocks.end(),
                                    [&](const TableBlock& b) { return b.name == *layer.block; });
    if (block == table_.blocks.end()) {
      problem(at + "/block", fmt::format("no block is called \"{}\"", *layer.block));
      return before;
    }
    rows = &block->ops;
    rows_at = "/blocks/" + escaped(block->name);
  }
  if (!problems_.empty()) return before;
  if (rows->empty()) {
    problem(layer.block ? rows_at : at, "a layer has at least one operation");
    return before;
  }
  network_.layers.push_back(layer.name);
  std::map<std::string, LayerTensor> own;
  LayerTensor last = given.front();
  for (std::size_t i = 0; i < rows->size(); ++i) {
    const TableRow& row = (*rows)[i];
    std::string name = row.name;
    for (int number = 2; own.count(name) > 0; ++number)
      name = fmt::format("{} {}", row.name, number);
    try {
      last = append(row, fmt::format("{} {}", layer.name, name), inputs_of(row, last, given, own));
    } catch (const RowRefused& refused) {
      const std::string key = refused.key.empty() ? "" : "/" + refused.key;
      problem(fmt::format("{}/{}{}", rows_at, i, key),
              fmt::format("{} {}: {}", layer.name, name, refused.message), refused.hint);
      return last;
    }
    own[name] = last;
    by_name_[fmt::format("{}:{}", layer.name, name)] = last;
  }
  by_name_[layer.name] = last;
  return last;
}

std::vector<LayerTensor> Resolver::inputs_of(const TableRow& row, const LayerTensor& before,
                                             const std::vector<LayerTensor>& given,
                                             const std::map<std::string, LayerTensor>& own) {
  const bool source =
      row.op == TableOp::parameter || row.op == TableOp::buffer || row.op == TableOp::constant;
  if (!row.after) return source ? std::vector<LayerTensor>{} : std::vector<LayerTensor>{before};
  std::vector<LayerTensor> inputs;
  for (std::size_t i = 0; i < row.after->size(); ++i) {
    const std::string& name = (*row.after)[i];
    if (name == "inputs") {
      inputs.insert(inputs.end(), given.begin(), given.end());
      continue;
    }
    if (const auto found = own.find(name); found != own.end()) {
      inputs.push_back(found->second);
      continue;
    }
    std::size_t number = 0;
    while (number < given.size() &&
           name != (number == 0 ? "input" : fmt::format("input {}", number + 1)))
      ++number;
    if (number == given.size())
      throw RowRefused{fmt::format("after/{}", i),
                       fmt::format("nothing before it in the layer is called \"{}\"", name),
                       given.size() == 1 ? "the layer reads one tensor, \"input\""
                                         : fmt::format("the layer reads {} tensors, \"input\" to "
                                                       "\"input {}\"",
                                                       given.size(), given.size())};
    inputs.push_back(given[number]);
  }
  if (source != inputs.empty())
    throw RowRefused{"after", source ? "it reads nothing" : "it reads at least one tensor", ""};
  return inputs;
}

LayerTensor Resolver::append(const TableRow& row, std::string name,
                             std::vector<LayerTensor> inputs) {
  LayerOperation operation;
  operation.row = row;
  operation.name = std::move(name);
  operation.layer = static_cast<int>(network_.layers.size()) - 1;
  operation.inputs = std::move(inputs);
  measure(operation);
  LayerTensor& out = operation.output;
  if (row.op == TableOp::view) {
    LayerTensor seen = operation.inputs.front();
    seen.shape = out.shape;
    return seen;
  }
  const auto all = [&](auto&& has) {
    return !operation.inputs.empty() &&
           std::all_of(operation.inputs.begin(), operation.inputs.end(), has);
  };
  out.fixed = row.op == TableOp::parameter || row.op == TableOp::buffer ||
              row.fixed.value_or(false) || all([](const LayerTensor& t) { return t.fixed; });
  out.gradient = operation.parameters > 0 || row.tied.value_or(false) ||
                 std::any_of(operation.inputs.begin(), operation.inputs.end(),
                             [](const LayerTensor& t) { return t.gradient; });
  out.maker = static_cast<int>(network_.operations.size());
  network_.operations.push_back(std::move(operation));
  return network_.operations.back().output;
}

void Resolver::sum_up() {
  double parameters = 0, multiply_adds = 0;
  for (const LayerOperation& operation : network_.operations) {
    parameters += static_cast<double>(operation.parameters);
    multiply_adds += static_cast<double>(operation.multiply_adds);
  }
  constexpr double kMost = 0x1p60;
  if (parameters >= kMost || multiply_adds >= kMost) {
    problem("/layers", "parameters or multiply-adds add up to more than 2^60");
    return;
  }
  for (const LayerOperation& operation : network_.operations) {
    network_.parameters += operation.parameters;
    network_.multiply_adds += operation.multiply_adds;
  }
}

ChainLength chain_of(const LayerNetwork& network) {
  const auto layers = static_cast<std::int64_t>(network.layers.size());
  return {layers, layers > 2 ? layers - 2 : layers};
}

void check(Problems& problems, const LayerNetwork& network, const Execution& e) {
  if (e.tensor > 1)
    problems.push_back({"tensor",
                        "the rows of a table are whole layers, which tensor parallelism cannot "
                        "divide"});
  if (e.context > 1) problems.push_back({"context", "a table of layers has no sequence to divide"});
  if (e.tensor_parallel.sequence)
    problems.push_back({"sequence_parallel", "a table of layers has no sequence to divide"});
  if (e.experts.ranks > 1) problems.push_back({"expert", "the network has no experts to deal"});
  if (e.recompute.form != Recompute::none && e.recompute.form != Recompute::full)
    problems.push_back({"recompute",
                        "that recomputation is of a transformer's modules; a table of layers has "
                        "\"none\", \"full\", and methods of whole layers"});
  std::int64_t most = 1;
  for (const LayerOperation& o : network.operations) {
    const bool counted =
        o.row.op == TableOp::gemm || o.row.op == TableOp::matmul || o.row.op == TableOp::attention;
    most = std::max({most, o.output.count, counted ? o.multiply_adds : 0, o.row.keeps.value_or(0)});
    for (const std::optional<TableTraffic>& moved : {o.row.forward, o.row.backward})
      if (moved) most = std::max({most, moved->read, moved->written});
  }
  if (64 * static_cast<double>(e.micro_batch.size) * static_cast<double>(most) >= 0x1p62)
    problems.push_back({"micro_batch",
                        "the sizes of the layers and of the micro-batch multiply to more than "
                        "2^62 bytes"});
}

}  // namespace

LayerNetwork resolve(const LayerTable& table, std::vector<TableProblem>& problems) {
  return Resolver(table, problems).run();
}

const Family<LayerNetwork>& row_of(const LayerNetwork*) {
  static const Family<LayerNetwork> row = {
      .name = "layers",
      .words = "a table of layers",
      .sample = Sample::numbers,
      .check = check,
      .work = expand,
      .parameters = [](const LayerNetwork& n, std::int64_t) { return n.parameters; },
      .chain = chain_of};
  return row;
}

}  // namespace trainyard::models
