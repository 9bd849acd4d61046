// A recommender and how its tables are dealt out and updated. Every field that would change
// nothing is an error.
#include <fmt/format.h>

#include <algorithm>

#include "models/recommender/table_plan.h"
#include "sim/base/text.h"
#include "sim/plan/replicas/data_parallel.h"
#include "sim/scenario/topics/assemble.h"
#include "sim/scenario/topics/model/model_family.h"

namespace trainyard::scenario {

using models::Recommender;
using models::TableGroup;
using models::TableSharding;

namespace {

constexpr const char* kSharding = "/parallelism/embedding_parallel";

std::optional<TableSharding> sharding_of(std::string_view name) {
  for (const auto& [known, value] : kTableShardings)
    if (known == name) return value;
  return std::nullopt;
}

std::string known_shardings() {
  std::string text;
  for (const auto& choice : kTableShardings)
    text += fmt::format("{}{}", text.empty() ? "known: " : ", ", choice.name);
  return text;
}

void refuse_without_tables(const ScenarioSections& sections, Findings& findings) {
  constexpr const char* kWhy = "the network has no embedding tables to deal";
  if (sections.parallelism.embedding_parallel) findings.error(kSharding, kWhy, "remove it");
  if (sections.training.embedding_optimizer)
    findings.error("/training/embedding_optimizer", kWhy, "remove it");
}

// Ways of dividing work that a recommender does not have; the network itself refuses tp and cp.
void refuse_other_ways(const ScenarioSections& sections, Findings& findings) {
  if (sections.parallelism.plan.degrees.pipeline > 1)
    findings.error("/parallelism/pp",
                   "a recommender has no pipeline: all ranks hold tables and see samples",
                   "remove it; dp is all GPUs");
  const plan::StrategyEntry* strategy =
      plan::find_strategy(sections.parallelism.plan.data_parallel.kind);
  if (strategy != nullptr && !strategy->only_exchanges)
    findings.error("/parallelism/data_parallel/kind",
                   fmt::format("{} divides the dense layers, which in a recommender are replicas; "
                               "tables are divided anyway",
                               strategy->name),
                   "allreduce does");
  if (sections.training.recipe.gradient_clipping)
    findings.error("/training/gradient_clipping",
                   "tables are updated in the backward pass, before the norm of all gradients is "
                   "known",
                   "remove it");
}

void choose_groups(Recommender& network, const EmbeddingParallelSection& how, Findings& findings) {
  const std::string pointer = fmt::format("{}/groups", kSharding);
  if (!how.groups.empty() && how.groups.size() != network.tables.size()) {
    findings.error(pointer, fmt::format("{} names for {} groups of tables", how.groups.size(),
                                        network.tables.size()));
    return;
  }
  if (!how.groups.empty() && how.sharding != TableSharding::automatic)
    findings.error(fmt::format("{}/sharding", kSharding), "each group has its own",
                   "keep one of sharding and groups");
  for (std::size_t g = 0; g < network.tables.size(); ++g) {
    network.tables[g].sharding = how.sharding;
    if (how.groups.empty()) continue;
    const std::optional<TableSharding> own = sharding_of(how.groups[g]);
    if (own)
      network.tables[g].sharding = *own;
    else
      findings.error(fmt::format("{}/{}", pointer, g),
                     fmt::format("unknown sharding \"{}\"", how.groups[g]), known_shardings());
  }
}

void divide_columns(Recommender& network, const EmbeddingParallelSection& how, int ranks,
                    Findings& findings) {
  if (!how.column_shards) return;
  const std::string pointer = fmt::format("{}/column_shards", kSharding);
  bool used = false;
  for (TableGroup& group : network.tables) {
    if (group.sharding != TableSharding::column_wise) continue;
    used = true;
    const std::int64_t columns = network.dimension_of(group);
    if (*how.column_shards > ranks || columns % *how.column_shards != 0) {
      findings.error(pointer,
                     fmt::format("{} columns on {} ranks cannot be {} parts", columns, ranks,
                                 *how.column_shards),
                     fmt::format("the most is {}", models::most_column_shards(columns, ranks)));
      return;
    }
    group.column_shards = *how.column_shards;
  }
  if (!used)
    findings.error(pointer, "no table is divided by columns",
                   "remove it, or choose column_wise for a group");
}

void refuse_on_one_rank(const Recommender& network, const EmbeddingParallelSection& how, int ranks,
                        Findings& findings) {
  if (ranks > 1) return;
  const bool divides =
      std::any_of(network.tables.begin(), network.tables.end(), [](const TableGroup& group) {
        return group.sharding == TableSharding::column_wise ||
               group.sharding == TableSharding::row_wise;
      });
  if (divides)
    findings.error(kSharding, "one GPU holds all tables whole", "auto or table_wise says so");
  if (how.index_exchange != models::IndexExchange::pipelined)
    findings.error(fmt::format("{}/index_exchange", kSharding),
                   "on one GPU indices are where they are needed", "remove it");
}

// Replicas are parameters like those of the dense layers.
void refuse_for_replicas(const Recommender& network, const ScenarioSections& sections,
                         const EmbeddingParallelSection& how, Findings& findings) {
  const bool all = std::all_of(
      network.tables.begin(), network.tables.end(),
      [](const TableGroup& group) { return group.sharding == TableSharding::replicated; });
  if (!all) return;
  if (sections.training.embedding_optimizer)
    findings.error("/training/embedding_optimizer",
                   "all tables are replicas, which /training/optimizer updates", "remove it");
  if (how.index_exchange != models::IndexExchange::pipelined)
    findings.error(fmt::format("{}/index_exchange", kSharding),
                   "all tables are replicas: indices are where they are needed", "remove it");
}

models::Network assemble_recommender(const RecommenderSection& section, Findings& findings) {
  Recommender network;
  network.dense_features = section.dense_features;
  network.dimension = section.dimension;
  network.bottom_mlp = section.bottom_mlp;
  network.top_mlp = section.top_mlp;
  network.interaction = section.interaction;
  network.table_dtype = section.table_dtype;
  network.cross_layers = section.cross_layers.value_or(0);
  network.cross_rank = section.cross_rank.value_or(0);
  for (const TableSection& table : section.tables)
    network.tables.push_back({.rows = table.rows,
                              .count = table.count,
                              .lookups = table.lookups,
                              .dimension = table.dimension.value_or(0)});
  for (const auto& [key, given] : {std::pair{"cross_layers", section.cross_layers.has_value()},
                                   std::pair{"cross_rank", section.cross_rank.has_value()}}) {
    const std::string pointer = fmt::format("/model/{}", key);
    if (section.interaction == models::Interaction::dcn && !given)
      findings.error(pointer, "is required and missing for interaction dcn");
    if (section.interaction != models::Interaction::dcn && given)
      findings.error(pointer, "only interaction dcn has cross layers", "remove it");
  }
  return network;
}

class RecommenderFamily final : public ModelFamily {
 public:
  void visit(json::Fields& f) override {
    ImageInput none;
    if (visit_image_input(f, none))
      f.problem("input", "only networks of images have an input size");
    visit_fields(f, section_);
  }
  models::Network assemble(const json::Value&, Findings& findings) const override {
    return assemble_recommender(section_, findings);
  }

 private:
  RecommenderSection section_;
};

}  // namespace

std::unique_ptr<ModelFamily> recommender_family() {
  return std::make_unique<RecommenderFamily>();
}

void assemble_tables(Scenario& scenario, const ScenarioSections& sections, Findings& findings) {
  if (!scenario.network.is<Recommender>()) return refuse_without_tables(sections, findings);
  auto& network = scenario.network.change<Recommender>();
  refuse_other_ways(sections, findings);
  const EmbeddingParallelSection how =
      sections.parallelism.embedding_parallel.value_or(EmbeddingParallelSection{});
  const int ranks = scenario.plan.degrees.data;
  network.optimizer =
      sections.training.embedding_optimizer.value_or(models::TableOptimizer::row_wise_adagrad);
  network.index_exchange = how.index_exchange;
  choose_groups(network, how, findings);
  divide_columns(network, how, ranks, findings);
  refuse_on_one_rank(network, how, ranks, findings);
  refuse_for_replicas(network, sections, how, findings);
}

}  // namespace trainyard::scenario
