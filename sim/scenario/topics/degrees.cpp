// /parallelism: its table, and degrees against the GPUs that there are.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "sim/base/divide.h"
#include "sim/recipe/rank_map.h"
#include "sim/scenario/topics/assemble.h"

namespace trainyard::scenario {

using recipe::ParallelDegrees;

namespace {

using json::between;
using json::Choice;
using json::optional;

// All permutations, those without cp first.
std::vector<std::string> rank_order_names() {
  std::vector<std::string> names;
  for (std::vector<std::string_view> words :
       {std::vector<std::string_view>{"tp", "dp", "pp"}, {"tp", "cp", "dp", "pp"}}) {
    std::vector<std::size_t> order(words.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    do {
      std::string& name = names.emplace_back();
      for (const std::size_t at : order)
        name.append(name.empty() ? "" : "-").append(words[at]);
    } while (std::next_permutation(order.begin(), order.end()));
  }
  return names;
}

using RankOrders = std::array<Choice<recipe::RankOrder>, 30>;

const RankOrders& rank_orders() {
  static const std::vector<std::string> names = rank_order_names();
  static const RankOrders all = [] {
    RankOrders orders;
    for (std::size_t i = 0; i < orders.size(); ++i)
      orders[i] = {names[i], *recipe::parse_rank_order(names[i])};
    return orders;
  }();
  return all;
}

}  // namespace

void visit_fields(json::Fields& f, ParallelismSection& s) {
  f.field("tp", s.plan.degrees.tensor, optional, between(1, 1 << 20), "Tensor-parallel degree.");
  f.field("pp", s.plan.degrees.pipeline, optional, between(1, 1 << 20),
          "Pipeline-parallel degree.");
  f.field("dp", s.dp, between(1, 1 << 20),
          "Data-parallel degree. Default: the GPUs that tp, cp and pp leave.");
  f.field("cp", s.plan.degrees.context, optional, between(1, 1 << 20),
          "Context-parallel degree: parts into which every sequence is divided.");
  f.field(
      "ep", s.expert_parallel.experts.ranks, optional, between(1, 1 << 20),
      "Expert-parallel degree: ranks, of those of tp, cp and dp, that share a layer's experts.");
  f.field("etp", s.expert_parallel.experts.tensor, between(1, 1 << 20),
          "Expert-tensor-parallel degree: ranks that divide each expert. Default: tp.");
  f.choice("rank_order", s.plan.rank_order, rank_orders(), optional,
           "Axes of a rank's place, fastest first: neighbours differ in the first.");
  f.field("sequence_parallel", s.plan.tensor_parallel.sequence, optional,
          "Norms and dropout are split along the sequence in the tensor-parallel group.");
  f.section("pipeline", s.plan.pipeline, optional, "Pipeline parallelism.");
  f.section("tensor_parallel", s.plan.tensor_parallel, optional, "Tensor parallelism.");
  f.section("context_parallel", s.plan.context_parallel, optional, "Context parallelism.");
  f.section("expert_parallel", s.expert_parallel, optional, "Expert parallelism.");
  f.section("embedding_parallel", s.embedding_parallel,
            "How the tables of a recommender are divided among all ranks.");
  f.section("data_parallel", s.plan.data_parallel, optional, "Data parallelism.");
}

namespace {

std::vector<int> degrees_of(int ranks) {
  const std::vector<std::int64_t> found = divisors(ranks);
  return {found.begin(), found.end()};
}

double apart(int a, int b) {
  return static_cast<double>(std::max(a, b)) / static_cast<double>(std::min(a, b));
}

// The nearest valid ways to divide `gpus` GPUs, as text: "tp 8 x pp 8 x dp 16, ...". Empty: there
// is none.
std::string nearest_factorisations(const Scenario& scenario, int gpus) {
  const ParallelDegrees& wanted = scenario.plan.degrees;
  const std::int64_t parts_most = divisible_layers(scenario.network);
  struct Candidate {
    double distance;
    ParallelDegrees degrees;
  };
  std::vector<Candidate> candidates;
  if (gpus % wanted.context != 0) return {};
  const int divided = gpus / wanted.context;  // cp stays as it is
  for (const int tensor : degrees_of(divided)) {
    models::Execution execution;
    execution.micro_batch.size = scenario.recipe.micro_batch.size;
    execution.micro_batch.predictions = 0;  // another finding
    execution.tensor = tensor;
    execution.context = wanted.context;
    execution.context_parallel = scenario.plan.context_parallel;
    execution.kernels.attention = scenario.recipe.kernels.attention;
    execution.experts.tensor = 1;
    execution.tensor_parallel.sequence = scenario.plan.tensor_parallel.sequence && tensor > 1;
    if (!check_execution(scenario.network, execution).empty()) continue;
    for (const int pipeline : degrees_of(divided / tensor)) {
      const int data = divided / tensor / pipeline;
      const std::int64_t parts = std::int64_t{pipeline} * scenario.plan.pipeline.chunks;
      if (!scenario.network.pipeline() && pipeline > 1) continue;
      if (parts > parts_most || parts_most % parts != 0 ||
          scenario.recipe.global_batch % (scenario.recipe.micro_batch.size * data) != 0)
        continue;
      // Moving the data-parallel degree is the least change to a plan.
      const double distance = apart(tensor, wanted.tensor) * apart(tensor, wanted.tensor) *
                              apart(pipeline, wanted.pipeline) * apart(pipeline, wanted.pipeline) *
                              apart(data, wanted.data);
      candidates.push_back({distance, {tensor, wanted.context, data, pipeline}});
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.distance < b.distance; });
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, candidates.size()); ++i) {
    const ParallelDegrees& d = candidates[i].degrees;
    const std::string context = d.context > 1 ? fmt::format(" x cp {}", d.context) : "";
    text += fmt::format("{}tp {}{} x pp {} x dp {}", i == 0 ? "" : ", ", d.tensor, context,
                        d.pipeline, d.data);
  }
  return text;
}

// The cure where the batch or the network refuses all of them: what the product may be.
std::string possible_products(const ParallelDegrees& wanted, int gpus) {
  constexpr std::size_t kMostListed = 12;
  const std::vector<std::int64_t> products = divisors(gpus);
  std::string listed;
  for (std::size_t i = 0; i < products.size() && products.size() <= kMostListed; ++i)
    listed += fmt::format("{}{}",
                          i == 0                     ? ": "
                          : i + 1 == products.size() ? " or "
                                                     : ", ",
                          products[i]);
  return fmt::format("tp{} x pp must divide {}{}", wanted.context > 1 ? " x cp" : "", gpus, listed);
}

}  // namespace

void assemble_degrees(Scenario& scenario, const ParallelismSection& section, Findings& findings) {
  const std::int64_t gpus = scenario.cluster.gpus_in_use();
  constexpr std::int64_t kMostGpus = std::int64_t{1} << 20;
  if (gpus > kMostGpus) {
    findings.error("/cluster/nodes",
                   fmt::format("{} servers of {} GPUs are more than {} GPUs",
                               scenario.cluster.servers, scenario.cluster.gpu_slots(), kMostGpus));
    return;
  }
  ParallelDegrees& degrees = scenario.plan.degrees;
  const std::int64_t model = std::int64_t{degrees.tensor} * degrees.context * degrees.pipeline;
  if (section.dp) degrees.data = *section.dp;
  if (!section.dp && gpus % model == 0) {
    degrees.data = static_cast<int>(gpus / model);
    return;
  }
  if (section.dp && model * *section.dp == gpus) return;
  const std::string context = degrees.context > 1 ? fmt::format(" x cp {}", degrees.context) : "";
  const std::string given =
      section.dp ? fmt::format("tp {}{} x pp {} x dp {} = {} GPUs", degrees.tensor, context,
                               degrees.pipeline, degrees.data, model * degrees.data)
                 : fmt::format("tp {}{} x pp {} = {} GPUs per replica", degrees.tensor, context,
                               degrees.pipeline, model);
  const std::string near = nearest_factorisations(scenario, static_cast<int>(gpus));
  const topologies::ClusterSpec& cluster = scenario.cluster;
  const std::string there =
      !cluster.gpus_used.empty() ? fmt::format("/cluster/gpus_used leaves {}", gpus)
      : cluster.kinds() > 1
          ? fmt::format("the cluster has {}", gpus)
          : fmt::format("the cluster has {} x {} = {}", cluster.servers, cluster.server.gpus, gpus);
  findings.error(
      section.dp ? "/parallelism/dp" : "/parallelism", fmt::format("{}, {}", given, there),
      near.empty() ? possible_products(degrees, static_cast<int>(gpus)) : "nearest: " + near);
}

}  // namespace trainyard::scenario
