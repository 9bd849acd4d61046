// How the work is divided: the tables of /parallelism.
#include "sim/json/schema.h"
#include "sim/scenario/topics/sections.h"

namespace trainyard::scenario {

using recipe::Axis;

namespace {

using json::between;
using json::Choice;
using json::optional;

using Order = std::array<Axis, recipe::kAxes>;
constexpr Axis kT = Axis::tensor, kC = Axis::context, kD = Axis::data, kP = Axis::pipeline;
// Without cp it follows tp.
constexpr std::array<Choice<Order>, 30> kRankOrders = {
    {{"tp-dp-pp", {kT, kC, kD, kP}},    {"tp-pp-dp", {kT, kC, kP, kD}},
     {"dp-tp-pp", {kD, kT, kC, kP}},    {"dp-pp-tp", {kD, kP, kT, kC}},
     {"pp-tp-dp", {kP, kT, kC, kD}},    {"pp-dp-tp", {kP, kD, kT, kC}},
     {"tp-cp-dp-pp", {kT, kC, kD, kP}}, {"tp-cp-pp-dp", {kT, kC, kP, kD}},
     {"tp-dp-cp-pp", {kT, kD, kC, kP}}, {"tp-dp-pp-cp", {kT, kD, kP, kC}},
     {"tp-pp-cp-dp", {kT, kP, kC, kD}}, {"tp-pp-dp-cp", {kT, kP, kD, kC}},
     {"cp-tp-dp-pp", {kC, kT, kD, kP}}, {"cp-tp-pp-dp", {kC, kT, kP, kD}},
     {"cp-dp-tp-pp", {kC, kD, kT, kP}}, {"cp-dp-pp-tp", {kC, kD, kP, kT}},
     {"cp-pp-tp-dp", {kC, kP, kT, kD}}, {"cp-pp-dp-tp", {kC, kP, kD, kT}},
     {"dp-tp-cp-pp", {kD, kT, kC, kP}}, {"dp-tp-pp-cp", {kD, kT, kP, kC}},
     {"dp-cp-tp-pp", {kD, kC, kT, kP}}, {"dp-cp-pp-tp", {kD, kC, kP, kT}},
     {"dp-pp-tp-cp", {kD, kP, kT, kC}}, {"dp-pp-cp-tp", {kD, kP, kC, kT}},
     {"pp-tp-cp-dp", {kP, kT, kC, kD}}, {"pp-tp-dp-cp", {kP, kT, kD, kC}},
     {"pp-cp-tp-dp", {kP, kC, kT, kD}}, {"pp-cp-dp-tp", {kP, kC, kD, kT}},
     {"pp-dp-tp-cp", {kP, kD, kT, kC}}, {"pp-dp-cp-tp", {kP, kD, kC, kT}}}};

}  // namespace

void visit_fields(json::Fields& f, ParallelismSection& s) {
  f.field("tp", s.tp, optional, between(1, 1 << 20), "Tensor-parallel degree.");
  f.field("pp", s.pp, optional, between(1, 1 << 20), "Pipeline-parallel degree.");
  f.field("dp", s.dp, between(1, 1 << 20),
          "Data-parallel degree. Default: the GPUs that tp, cp and pp leave.");
  f.field("cp", s.cp, optional, between(1, 1 << 20),
          "Context-parallel degree: parts into which every sequence is divided.");
  f.field(
      "ep", s.expert_parallel.experts.ranks, optional, between(1, 1 << 20),
      "Expert-parallel degree: ranks, of those of tp, cp and dp, that share a layer's experts.");
  f.field("etp", s.expert_parallel.experts.tensor, between(1, 1 << 20),
          "Expert-tensor-parallel degree: ranks that divide each expert. Default: tp.");
  f.choice("rank_order", s.rank_order, kRankOrders, optional,
           "Axes of a rank's place, fastest first: neighbours differ in the first.");
  f.field("sequence_parallel", s.tensor_parallel.sequence, optional,
          "Norms and dropout are split along the sequence in the tensor-parallel group.");
  f.section("pipeline", s.pipeline, optional, "Pipeline parallelism.");
  f.section("tensor_parallel", s.tensor_parallel, optional, "Tensor parallelism.");
  f.section("context_parallel", s.context_parallel, optional, "Context parallelism.");
  f.section("expert_parallel", s.expert_parallel, optional, "Expert parallelism.");
  f.section("embedding_parallel", s.embedding_parallel,
            "How the tables of a recommender are divided among all ranks.");
  f.section("data_parallel", s.data_parallel, optional, "Data parallelism.");
}

}  // namespace trainyard::scenario
