// Networks as tables of layers: shapes and counts, kernels, what is kept and what crosses a cut.
#include <doctest/doctest.h>

#include <ctime>
#include <string>

#include "models/layers/layer_table.h"
#include "tests/models/work_support.h"
#include "tests/support/about.h"

using namespace trainyard;

namespace {

using Op = TableOp;
using Names = std::vector<std::string>;

TableRow row(Op op, std::string name) {
  TableRow result;
  result.op = op;
  result.name = std::move(name);
  return result;
}

TableRow timed(std::string name, Duration forward, Duration backward,
               std::int64_t micro_batch = 1) {
  TableRow result = row(Op::time, std::move(name));
  result.forward_time = forward;
  result.backward_time = backward;
  result.micro_batch = micro_batch;
  result.parameters = 10;
  return result;
}

// Hands on `elements` and keeps none.
TableRow moved(std::string name, std::int64_t elements) {
  TableRow result = row(Op::memory, std::move(name));
  result.forward = TableTraffic{1, elements};
  result.parameters = 1;
  result.shape = {elements};
  return result;
}

TableRow conv(std::int64_t out, std::int64_t kernel, std::int64_t stride = 1,
              std::int64_t padding = 0) {
  TableRow result = row(Op::conv, "conv");
  result.out = out;
  result.kernel = {kernel};
  result.stride = {stride};
  result.padding = {padding};
  return result;
}

TableLayer layer(std::string name, std::vector<TableRow> ops) {
  return {std::move(name), std::nullopt, std::move(ops), std::nullopt};
}

TableLayer layer(std::string name, std::vector<TableRow> ops, Names after) {
  return {std::move(name), std::nullopt, std::move(ops), std::move(after)};
}

LayerNetwork resolved(const LayerTable& table) {
  std::vector<TableProblem> problems;
  LayerNetwork network = resolve(table, problems);
  for (const TableProblem& problem : problems)
    MESSAGE(problem.pointer << ": " << problem.message);
  REQUIRE(problems.empty());
  return network;
}

std::string problem_of(const LayerTable& table) {
  std::vector<TableProblem> problems;
  resolve(table, problems);
  REQUIRE(problems.size() == 1);
  return problems[0].pointer + ": " + problems[0].message;
}

// One operation behind an input of this shape.
LayerOperation only(TableRow operation, std::vector<std::int64_t> input) {
  const LayerNetwork network =
      resolved({std::move(input), {}, {layer("one", {std::move(operation)})}});
  REQUIRE(network.operations.size() == 1);
  return network.operations.front();
}

Execution samples(std::int64_t micro_batch, Recompute recompute = Recompute::none) {
  return execution(micro_batch, 1, 1, false, recompute);
}

NetworkWork work_of(const LayerTable& table, const Execution& how) {
  return network_work(resolved(table), how);
}

Seconds given_time(const std::vector<WorkItem>& items) {
  Seconds sum{};
  for (const WorkItem& item : items)
    sum += std::get<Timed>(std::get<NamedKernel>(item).kernel).time;
  return sum;
}

// a -> b -> c -> d, and d reads what a made too.
LayerTable with_skip() {
  TableRow last = row(Op::concat, "join");
  last.after = Names{"inputs"};
  return {{4},
          {},
          {layer("a", {moved("a", 100)}), layer("b", {moved("b", 20)}), layer("c", {moved("c", 3)}),
           layer("d", {last}, {"c", "a"})}};
}

}  // namespace

TEST_CASE("a table of given times takes exactly their sum") {
  using std::chrono::microseconds;
  const LayerTable table = {{8},
                            {},
                            {layer("a", {timed("x", microseconds(120), microseconds(250)),
                                         timed("y", microseconds(7), microseconds(11))}),
                             layer("b", {timed("z", microseconds(3), microseconds(5))})}};
  const NetworkWork one = work_of(table, samples(1));
  CHECK(given_time(one.kinds[0].forward).count() == about(127e-6));
  CHECK(given_time(one.kinds[0].backward).count() == about(261e-6));
  CHECK(given_time(one.kinds[1].forward) == Seconds(microseconds(3)));
  CHECK(parameter_count(resolved(table), 1) == 30);
  // Times were taken with a number of samples and grow with the micro-batch.
  const LayerTable taken = {{8}, {}, {layer("a", {timed("x", microseconds(80), {}, 16)})}};
  CHECK(given_time(work_of(taken, samples(4)).kinds[0].forward).count() == about(20e-6));
}

TEST_CASE("a cut carries every tensor that is made before it and read behind it") {
  const NetworkWork work = work_of(with_skip(), samples(1));
  REQUIRE(work.chain.size() == 4);
  const std::int64_t half = 2;  // bytes
  CHECK(work.kinds[0].output == Bytes(100 * half));
  CHECK(work.kinds[1].output == Bytes((100 + 20) * half));
  CHECK(work.kinds[2].output == Bytes((100 + 3) * half));
  CHECK(work.kinds[3].output == Bytes(0));
  // b has read it already, and the stage behind holds it once more.
  CHECK(work.kinds[0].passed_on == Bytes(0));
  CHECK(work.kinds[1].passed_on == Bytes(100 * half));
  CHECK(work.kinds[2].passed_on == Bytes(100 * half));
}

TEST_CASE("a chain with its edges written is the chain without") {
  LayerTable plain = {{3, 32, 32},
                      {},
                      {layer("a", {conv(8, 3, 1, 1), row(Op::relu, "relu")}),
                       layer("b", {conv(16, 3, 2, 1), row(Op::batch_norm, "norm")}),
                       layer("c", {row(Op::avg_pool, "pool"), row(Op::loss, "loss")})}};
  plain.layers[2].ops[0].to = {1};
  LayerTable written = plain;
  written.layers[0].after = Names{"input"};
  written.layers[1].after = Names{"a"};
  written.layers[2].after = Names{"b:norm"};
  written.layers[2].ops[1].after = Names{"pool"};
  const NetworkWork one = work_of(plain, samples(4)), other = work_of(written, samples(4));
  REQUIRE(one.kinds.size() == other.kinds.size());
  for (std::size_t i = 0; i < one.kinds.size(); ++i) {
    CHECK(one.kinds[i].output == other.kinds[i].output);
    CHECK(one.kinds[i].kept.total() == other.kinds[i].kept.total());
    REQUIRE(one.kinds[i].backward.size() == other.kinds[i].backward.size());
    for (std::size_t k = 0; k < one.kinds[i].backward.size(); ++k)
      CHECK(std::get<NamedKernel>(one.kinds[i].backward[k]).kernel ==
            std::get<NamedKernel>(other.kinds[i].backward[k]).kernel);
  }
}

TEST_CASE("a block stands for its rows wherever it is named") {
  const std::vector<TableRow> ops = {conv(8, 3, 1, 1), row(Op::relu, "relu")};
  const LayerTable blocks = {{8, 16, 16},
                             {{"block", ops}},
                             {{"a", "block", {}, std::nullopt}, {"b", "block", {}, std::nullopt}}};
  const LayerTable whole = {{8, 16, 16}, {}, {layer("a", ops), layer("b", ops)}};
  CHECK(resolved(blocks).parameters == resolved(whole).parameters);
  CHECK(resolved(blocks).parameters == 2 * 8 * 8 * 9);
  CHECK(resolved(blocks).multiply_adds == 2 * 16 * 16 * 8 * 8 * 9);
}

TEST_CASE("windows are strided, padded, dilated, grouped and transposed by their formulas") {
  CHECK(only(conv(64, 7, 2, 3), {3, 224, 224}).output.shape ==
        std::vector<std::int64_t>{64, 112, 112});
  TableRow dilated = conv(32, 3, 1, 2);
  dilated.dilation = {2};
  dilated.groups = 4;
  const LayerOperation in_groups = only(dilated, {16, 40, 30});
  CHECK(in_groups.output.shape == std::vector<std::int64_t>{32, 40, 30});
  CHECK(in_groups.parameters == 16 / 4 * 32 * 9);
  CHECK(in_groups.multiply_adds == 40 * 30 * (16 / 4) * 32 * 9);
  TableRow depthwise = row(Op::depthwise_conv, "depthwise");
  depthwise.kernel = {5, 3};
  CHECK(only(depthwise, {16, 40, 30}).parameters == 16 * 15);
  CHECK(only(depthwise, {16, 40, 30}).output.shape == std::vector<std::int64_t>{16, 36, 28});
  TableRow up = conv(8, 4, 2, 1);
  up.op = Op::conv_transpose;
  CHECK(only(up, {16, 20, 20}).output.shape == std::vector<std::int64_t>{8, 40, 40});
  CHECK(only(up, {16, 20, 20}).multiply_adds == 20 * 20 * 16 * 8 * 16);
  TableRow pool = row(Op::max_pool, "pool");
  pool.kernel = {3};
  pool.stride = {2};
  CHECK(only(pool, {4, 56, 56}).output.shape == std::vector<std::int64_t>{4, 27, 27});
  pool.ceil = true;
  CHECK(only(pool, {4, 56, 56}).output.shape == std::vector<std::int64_t>{4, 28, 28});
}

TEST_CASE("passes of a convolution and of a product cost the same work") {
  TableRow first = conv(8, 3, 1, 1), second = conv(8, 3, 1, 1), linear = row(Op::linear, "linear");
  linear.in = 8 * 16 * 16;
  linear.out = 10;
  const NetworkWork work = work_of(
      {{8, 16, 16},
       {},
       {layer("a", {first}), layer("b", {second}), layer("c", {linear, row(Op::loss, "loss")})}},
      samples(4));
  for (std::size_t i = 1; i < 3; ++i) {
    const Flops forward = sum_of_flops(work.kinds[i].forward);
    CHECK(forward == work.kinds[i].forward_model_flops);
    CHECK(sum_of_flops(work.kinds[i].backward) == 2 * forward);
  }
  // The gradient of the images is nobody's input.
  CHECK(sum_of_flops(work.kinds[0].backward) == sum_of_flops(work.kinds[0].forward));
}

TEST_CASE("full recomputation keeps what a layer reads and runs all but the last again") {
  const LayerTable table = {
      {3, 32, 32},
      {},
      {layer("a", {conv(8, 3, 1, 1), row(Op::relu, "relu")}),
       layer("b", {conv(8, 3, 1, 1), row(Op::batch_norm, "norm"), row(Op::relu, "relu")}),
       layer("c", {conv(8, 3, 1, 1), row(Op::loss, "loss")})}};
  const NetworkWork none = work_of(table, samples(2));
  const NetworkWork full = work_of(table, samples(2, Recompute::full));
  const std::int64_t tensor = 2 * 8 * 32 * 32 * 2;  // bytes
  CHECK(none.kinds[1].kept.of(Module::layer_input) == Bytes(tensor));
  CHECK(none.kinds[1].kept.of(Module::features) == Bytes(tensor));  // the convolution's output
  CHECK(full.kinds[1].kept.total() == Bytes(tensor));
  CHECK(full.kinds[1].restored == Bytes(tensor));
  CHECK(full.kinds[1].recompute.size() == 3);
  CHECK(full.kinds[2].recompute.empty());
  CHECK(full.kinds[2].kept.total() == none.kinds[2].kept.total());
}

namespace {

// A residual block: two convolutions with norms, of which the second is added to the input; and
// what stands between the addition and the ReLU, if anything does.
LayerTable residual_block(std::vector<TableRow> between = {}) {
  TableRow sum = row(Op::add, "sum");
  sum.after = Names{"norm 2", "input"};
  TableRow first = conv(8, 3, 1, 1), second = conv(8, 3, 1, 1);
  second.name = "conv 2";
  std::vector<TableRow> ops = {first,  row(Op::batch_norm, "norm 1"), row(Op::relu, "relu 1"),
                               second, row(Op::batch_norm, "norm 2"), sum};
  ops.insert(ops.end(), between.begin(), between.end());
  ops.push_back(row(Op::relu, "relu 2"));
  return {{3, 32, 32},
          {},
          {layer("a", {conv(8, 3, 1, 1)}), layer("b", ops),
           layer("c", {conv(8, 3, 1, 1), row(Op::loss, "loss")})}};
}

Names kernels_of(const std::vector<WorkItem>& items) {
  Names names;
  for (const WorkItem& item : items)
    names.push_back(std::get<NamedKernel>(item).name);
  return names;
}

std::int64_t traffic(const std::vector<WorkItem>& items) {
  return bytes_of(items, MemoryOp::batch_norm) + bytes_of(items, MemoryOp::activation) +
         bytes_of(items, MemoryOp::elementwise);
}

}  // namespace

// Apart: norms 2 x 3, ReLUs 2 x 2, the sum 3 passes over a tensor; fused 2 x 3 and the addend.
// Backward: norms 2 x 5 and ReLUs 2 x 3; fused 2 x 5 and the gradient of the addend. Signs: a bit
// of each number, written forward and read twice backward.
TEST_CASE("a fused batch norm takes in the addition and the ReLU behind it") {
  Execution how = samples(2);
  const LayerWork apart = work_of(residual_block(), how).kinds[1];
  how.kernels.fused_batch_norms = true;
  const LayerWork fused = work_of(residual_block(), how).kinds[1];
  CHECK(kernels_of(fused.forward) == Names{"b conv", "b norm 1", "b conv 2", "b norm 2"});
  CHECK(kernels_of(apart.forward).size() == 7);
  const std::int64_t tensor = 2 * 8 * 32 * 32 * 2, signs = tensor / 16;
  CHECK(traffic(apart.forward) == (6 + 4 + 3) * tensor);
  CHECK(traffic(fused.forward) == (6 + 1) * tensor + 2 * signs);
  CHECK(traffic(apart.backward) - traffic(fused.backward) == (6 - 1) * tensor - 4 * signs);
  CHECK(sum_of_flops(apart.backward) == sum_of_flops(fused.backward));
  CHECK(fused.parameters == apart.parameters);
  CHECK(fused.kept.total() - apart.kept.total() == Bytes(2 * signs));
}

TEST_CASE("what others read, and what another operation parts, stays a kernel of its own") {
  Execution how = samples(2);
  how.kernels.fused_batch_norms = true;
  const auto kernels = [&](const LayerTable& table) {
    return kernels_of(work_of(table, how).kinds[1].forward);
  };
  CHECK(kernels(residual_block({row(Op::dropout, "dropout")})) ==
        Names{"b conv", "b norm 1", "b conv 2", "b norm 2", "b sum", "b dropout", "b relu 2"});
  LayerTable read_twice = residual_block();
  read_twice.layers[1].ops[5].after = Names{"norm 2", "norm 1"};
  CHECK(kernels(read_twice) == Names{"b conv", "b norm 1", "b relu 1", "b conv 2", "b norm 2"});
  LayerTable sigmoid = residual_block();
  sigmoid.layers[1].ops[6].op = Op::sigmoid;
  CHECK(kernels(sigmoid).size() == 6);
}

TEST_CASE("a table of layers is not divided inside its layers") {
  const LayerNetwork network = resolved(with_skip());
  Execution divided = samples(1);
  divided.tensor = 2;
  divided.context = 2;
  divided.tensor_parallel.sequence = true;
  divided.recompute.form = Recompute::selective;
  std::vector<std::string> members;
  for (const ExecutionProblem& problem : check_execution(network, divided))
    members.push_back(problem.member);
  CHECK(members == Names{"tensor", "context", "sequence_parallel", "recompute"});
  CHECK(check_execution(network, samples(1)).empty());
  CHECK(check_execution(network, samples(std::int64_t{1} << 52)).front().member == "micro_batch");
}

TEST_CASE("a layer split counts all but the two ends") {
  CHECK(divisible_layers(resolved(with_skip())) == 2);
  CHECK(chain_length(resolved(with_skip())) == 4);
}

TEST_CASE("twenty thousand layers are worked out in proportion to their number") {
  const auto seconds = [](int layers) {
    TableRow linear = row(Op::linear, "linear");
    linear.in = linear.out = 64;
    LayerTable table{{64}, {}, {}};
    for (int i = 0; i < layers; ++i)
      table.layers.push_back(layer("l" + std::to_string(i), {linear}));
    const LayerNetwork network = resolved(table);
    const std::clock_t begin = std::clock();
    const NetworkWork work = network_work(network, samples(1));
    CHECK(work.kinds.size() == static_cast<std::size_t>(layers));
    CHECK(work.kinds[1].output == Bytes(2 * 64));
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  // In proportion it is 10 times as much, by its square 100 times.
  CHECK(seconds(20'000) < 40 * seconds(2'000) + 0.5);
}

TEST_CASE("a wrong table is refused where it is wrong") {
  LayerTable table = with_skip();
  table.layers[3].after = Names{"c", "e"};
  CHECK(problem_of(table) == "/layers/3/after/1: no layer or operation before it is called \"e\"");
  table.layers[3].after = Names{"c", "d"};
  CHECK(problem_of(table) == "/layers/3/after/1: a cycle: \"d\" reads \"d\", which reads it");
  table = with_skip();
  table.layers[1].after = Names{"d"};
  CHECK(problem_of(table) == "/layers/1/after/0: a cycle: \"b\" reads \"d\", which reads it");
  table = with_skip();
  table.layers[1].after = Names{"c:c"};
  table.layers[2].after = Names{"a"};
  CHECK(problem_of(table) ==
        "/layers/1/after/0: \"c:c\" stands after it; a layer reads what stands before it");
  table = with_skip();
  table.layers[2].name = "a";
  CHECK(problem_of(table) == "/layers/2/name: two layers are called \"a\"");
  table = with_skip();
  table.layers[3].ops[0].after = Names{"input 3"};
  CHECK(problem_of(table) ==
        "/layers/3/ops/0/after/0: d join: nothing before it in the layer is called \"input 3\"");
  table = with_skip();
  table.layers[0].ops = {conv(8, 3)};
  CHECK(problem_of(table) == "/layers/0/ops/0: a conv: needs channels, height and width, got [4]");
  table.input = {3, 2, 2};
  CHECK(problem_of(table) ==
        "/layers/0/ops/0/kernel: a conv: a window of 3 does not fit into 2 pixels");
  table = with_skip();
  table.layers[1].ops = {row(Op::view, "view")};
  table.layers[1].ops[0].shape = {99};
  CHECK(problem_of(table) == "/layers/1/ops/0: b view: 100 elements where 99 are needed");
  table.layers[1] = {"b", "none", {}, std::nullopt};
  CHECK(problem_of(table) == "/layers/1/block: no block is called \"none\"");
  table = with_skip();
  table.input = {1 << 30, 1 << 30};
  CHECK(problem_of(table) == "/input: sizes multiply to more than 2^44");
}
