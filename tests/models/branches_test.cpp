// Layers cut at their branches, and the tensors that layers read of each other.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "models/layers/layer_table.h"
#include "tests/models/work_support.h"

using namespace trainyard;

namespace {

using Names = std::vector<std::string>;
using Places = std::vector<int>;

TableRow row(TableOp op, std::string name, Names after = {}) {
  TableRow result;
  result.op = op;
  result.name = std::move(name);
  if (!after.empty()) result.after = std::move(after);
  return result;
}

TableRow conv(std::string name, Names after = {}) {
  TableRow result = row(TableOp::conv, std::move(name), std::move(after));
  result.out = 4;
  result.kernel = {1};
  return result;
}

TableLayer layer(std::string name, std::vector<TableRow> ops, Names after = {}) {
  TableLayer result;
  result.name = std::move(name);
  result.ops = std::move(ops);
  if (!after.empty()) result.after = std::move(after);
  return result;
}

LayerNetwork resolved(std::vector<TableLayer> layers) {
  std::vector<TableProblem> problems;
  LayerNetwork network = resolve({{4, 8, 8}, {}, std::move(layers)}, problems);
  REQUIRE(problems.empty());
  return network;
}

Places layers_of(const LayerNetwork& network) {
  Places places;
  for (const LayerOperation& operation : network.operations)
    places.push_back(operation.layer);
  return places;
}

// As Inception's modules: branches from one input, one of which parts again, and a join.
std::vector<TableLayer> module() {
  return {layer("stem", {conv("conv")}),
          layer("mixed", {conv("one"), conv("two", {"input"}), row(TableOp::relu, "relu"),
                          conv("left", {"relu"}), conv("right", {"relu"}),
                          row(TableOp::concat, "join", {"one", "left", "right"})}),
          layer("head", {conv("conv"), row(TableOp::relu, "relu")})};
}

}  // namespace

TEST_CASE("a layer is cut where it parts and where its branches join") {
  const LayerNetwork whole = resolved(module());
  const LayerNetwork cut = cut_at_branches(whole);
  CHECK(cut.layers == Names{"stem", "mixed/1", "mixed/2", "mixed/3", "mixed/4", "mixed/5", "head"});
  CHECK(layers_of(cut) == Places{0, 1, 2, 2, 3, 4, 5, 6, 6});
  CHECK(cut.parameters == whole.parameters);
  CHECK(layers_of(cut_at_branches(cut)) == layers_of(cut));
}

TEST_CASE("a chain, and a skip around it, is one piece") {
  TableRow bias = row(TableOp::parameter, "bias");
  bias.shape = {4, 8, 8};
  const LayerNetwork cut = cut_at_branches(
      resolved({layer("first", {conv("conv")}),
                layer("residual", {conv("a"), row(TableOp::relu, "relu"), bias,
                                   row(TableOp::add, "shift", {"relu", "bias"}), conv("b"),
                                   row(TableOp::add, "sum", {"b", "input"})})}));
  CHECK(cut.layers == Names{"first", "residual"});
}

TEST_CASE("all pieces together do and keep what the layers do") {
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    const Execution how = execution(3, 1, 1, false, recompute);
    const LayerNetwork whole = resolved(module());
    Bytes kept[2];
    std::size_t kernels[2] = {0, 0};
    for (const bool cut : {false, true}) {
      const NetworkWork work = network_work(cut ? cut_at_branches(whole) : whole, how);
      for (const LayerWork& kind : work.kinds) {
        kept[cut] = kept[cut] + kind.activations();
        kernels[cut] += kind.forward.size() + kind.backward.size();
      }
    }
    CHECK(kernels[0] == kernels[1]);
    // Pieces that run again keep what they read, and that is more of it.
    if (recompute == Recompute::none) CHECK(kept[0] == kept[1]);
    if (recompute == Recompute::full) CHECK(kept[0] < kept[1]);
  }
}

TEST_CASE("tensors that layers read of each other: who makes, reads and keeps them") {
  const NetworkWork work =
      network_work(cut_at_branches(resolved(module())), execution(2, 1, 1, false, Recompute::none));
  REQUIRE(work.tensors.size() == 7);
  const auto check = [&](std::size_t at, int maker, const Places& readers, const Places& keepers,
                         std::int64_t elements, bool gradient) {
    const SharedTensor& tensor = work.tensors[at];
    CHECK(tensor.maker == maker);
    CHECK(tensor.readers == readers);
    CHECK(tensor.keepers == keepers);
    CHECK(tensor.bytes == 2 * elements * size_of(Dtype::bf16));
    CHECK(tensor.gradient == gradient);
  };
  check(0, -1, {0}, {0}, 4 * 64, false);
  check(1, 0, {1, 2}, {1, 2}, 4 * 64, true);
  check(2, 1, {5}, {}, 4 * 64, true);
  // A ReLU keeps its output, and so do the convolutions that read it.
  check(3, 2, {3, 4}, {2, 3, 4}, 4 * 64, true);
  check(6, 5, {6}, {6}, 12 * 64, true);
}

TEST_CASE("weights go with the piece that reads them, and no piece is called as a layer") {
  TableRow weight = row(TableOp::parameter, "weight");
  weight.shape = {4, 8, 8};
  const LayerNetwork cut = cut_at_branches(resolved(
      {layer("mixed", {conv("left"), weight, row(TableOp::mul, "right", {"input", "weight"}),
                       row(TableOp::add, "join", {"left", "right"})}),
       layer("mixed/1", {conv("conv")})}));
  CHECK(cut.layers == Names{"mixed//1", "mixed//2", "mixed//3", "mixed/1"});
  CHECK(layers_of(cut) == Places{0, 1, 1, 2, 3});
}
