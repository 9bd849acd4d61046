#include "tests/fuzz/plan.h"

#include <string>

#include "sim/collective/algorithm.h"
#include "tests/fuzz/sketch.h"

namespace trainyard::fuzz {

using json::Value;

namespace {

void draw_collectives(Sketch& s) {
  if (!s.draw.chance(25)) return;
  constexpr std::pair<const char*, CollectiveKind> kKinds[] = {
      {"allreduce", CollectiveKind::all_reduce},
      {"allgather", CollectiveKind::all_gather},
      {"reduce_scatter", CollectiveKind::reduce_scatter},
      {"broadcast", CollectiveKind::broadcast},
      {"alltoall", CollectiveKind::all_to_all}};
  for (const auto& [key, kind] : kKinds) {
    if (!s.draw.chance(40)) continue;
    const std::vector<std::string_view> names = collective::algorithm_names(kind);
    s.set("/collectives/" + std::string(key) + "/algorithm",
          s.draw.chance(20) ? std::string_view("auto") : s.draw.element(names));
  }
}

// NCCL's protocols, where it carries out a collective by its own rings and trees.
void draw_protocols(Sketch& s) {
  if (!s.draw.chance(15)) return;
  for (const char* key : {"allreduce", "allgather", "reduce_scatter", "broadcast"}) {
    const std::string at = "/collectives/" + std::string(key);
    const Value* algorithm = json::find(s.plan.scenario, at + "/algorithm");
    const bool own = algorithm == nullptr || algorithm->text == "auto" ||
                     algorithm->text == "ring" || algorithm->text == "tree";
    if (own && s.draw.chance(50))
      s.set(at + "/protocol", s.draw.word({"auto", "ll", "ll128", "simple"}));
  }
}

void draw_stragglers(Sketch& s) {
  if (s.draw.chance(10)) s.set("/perturbations/compute_jitter/cv", 0.015);
  if (s.draw.chance(5)) s.set("/perturbations/compute_jitter/distribution", "normal");
  if (!s.draw.chance(20)) return;
  Value list = Value::array();
  Value straggler = Value::object();
  Value select = Value::object();
  if (s.draw.chance(70))
    select.set("rank", Value::of(s.draw.between(0, s.world() - 1)));
  else
    select.set("node", Value::of(s.draw.between(0, s.servers - 1)));
  straggler.set("select", std::move(select));
  straggler.set("compute_slowdown", Value::of(s.draw.pick({1.5, 1.1, 3.0, 0.5})));
  list.append(std::move(straggler));
  s.set("/perturbations/stragglers", list);
}

// As many servers more, on which the same job, or one that differs a little, trains beside this
// one.
void draw_other_jobs(Sketch& s) {
  const Value* fidelity = json::find(s.plan.scenario, "/simulation/fidelity");
  if (fidelity == nullptr || fidelity->text != "flow") return;
  if (json::find(s.plan.scenario, "/cluster/other_nodes") != nullptr || !s.draw.chance(20)) return;
  const Value* used = json::find(s.plan.scenario, "/cluster/gpus_used");
  Value first = Value::array(), second = Value::array();
  for (int server = 0; server < 2 * s.servers; ++server) {
    const bool is_first = server < s.servers;
    const auto at = static_cast<std::size_t>(is_first ? server : server - s.servers);
    if (used != nullptr && used->is(json::Kind::array) && used->items.size() <= at) return;
    const Value gpus = used == nullptr               ? Value::of(s.gpus)
                       : used->is(json::Kind::array) ? used->items[at]
                                                     : *used;
    first.append(is_first ? gpus : Value::of(0));
    second.append(is_first ? Value::of(0) : gpus);
  }
  s.set("/cluster/nodes", 2 * s.servers);
  s.set("/cluster/gpus_used", first);
  Value job = Value::object();
  job.set("name", Value::of("beside"));
  job.set("gpus_used", std::move(second));
  if (s.draw.chance(50)) {
    Value with = Value::object();
    json::set(with, "/training/launch_time", Value::of("5us"));
    job.set("with", std::move(with));
  }
  Value list = Value::array();
  list.append(std::move(job));
  s.set("/other_jobs", list);
}

Value variant(const char* name, Value with) {
  Value one = Value::object();
  one.set("name", Value::of(name));
  one.set("with", std::move(with));
  return one;
}

// The first variant changes nothing.
void draw_variants(Sketch& s) {
  if (!s.draw.chance(15)) return;
  Value list = Value::array();
  list.append(variant("same", Value::object()));
  Value with = Value::object();
  if (s.draw.chance(50))
    json::set(with, "/training/launch_time", Value::of("3us"));
  else
    json::set(with, "/simulation/fidelity", Value::of(s.draw.word({"flow", "closed_form"})));
  list.append(variant("other", std::move(with)));
  s.set("/variants", list);
  if (s.draw.chance(50)) s.set("/baseline", "other");
}

void draw_references(Sketch& s) {
  if (!s.draw.chance(5)) return;
  Value reference = Value::object();
  reference.set("label", Value::of("nowhere"));
  reference.set("metric", Value::of(s.draw.word({"step_time", "mfu", "model_tflops_per_gpu"})));
  reference.set("value", Value::of(0.5));
  Value list = Value::array();
  list.append(std::move(reference));
  s.set("/references", list);
}

// The machine and the network in a file of their own, which the scenario extends.
void divide(Sketch& s) {
  if (!s.draw.chance(5)) return;
  Value base = Value::object();
  for (const char* key : {"cluster", "model"}) {
    base.set(key, *s.plan.scenario.find(key));
    s.plan.scenario.erase(key);
  }
  s.plan.files.push_back({"base.json", json::to_text(base) + "\n"});
  s.set("/extends", "base.json");
}

// Ranks that do not wait for all are simulated with flows alone.
bool needs_flows(const Sketch& s) {
  return json::find(s.plan.scenario, "/parallelism/data_parallel/updates") != nullptr ||
         json::find(s.plan.scenario, "/parallelism/data_parallel/backup_workers") != nullptr;
}

}  // namespace

// What a search would vary: a run has no use for it, and is none the worse.
void draw_search(Sketch& s) {
  Value axes = Value::object(), fixed = Value::object(), objective = Value::array();
  Value sizes = Value::array();
  sizes.append(Value::of(1));
  sizes.append(Value::of(2));
  axes.set("training.micro_batch", sizes);
  fixed.set("parallelism.cp", Value::of(1));
  objective.append(Value::of("step_time"));
  s.set("/search/axes", axes);
  s.set("/search/objective", objective);
  s.set("/search/best", s.draw.between(1, 5));
  s.set("/search/constraints/fixed", fixed);
  s.set("/search/constraints/memory", "60GiB");
  s.set("/search/constraints/step_time", "10s");
  s.set("/search/constraints/batch/at_least", 1);
  s.set("/search/constraints/batch/at_most", 1 << 20);
}

void draw_rest(Sketch& s) {
  draw_collectives(s);
  if (needs_flows(s))
    s.set("/simulation/fidelity", "flow");
  else if (s.draw.chance(40))
    s.set("/simulation/fidelity", s.draw.word({"flow", "flow", "closed_form"}));
  if (s.draw.chance(10)) s.set("/simulation/seed", s.draw.between(0, 1000));
  if (s.draw.chance(5)) s.set("/simulation/exploit_symmetry", s.draw.chance(50));
  if (s.draw.chance(3)) s.set("/simulation/exploit_periodicity", s.draw.chance(50));
  draw_stragglers(s);
  draw_other_jobs(s);
  draw_variants(s);
  draw_references(s);
  // What the plan leaves open; much of it is said.
  if (s.stack() && s.draw.chance(10))
    s.set("/software",
          s.draw.word({"pytorch-ddp", "pytorch-ddp-2020", "hf-trainer", "torchtitan",
                       "megatron-core", "nemo", "deepspeed", "nanotron", "internevo"}));
  draw_protocols(s);
  if (s.draw.chance(3)) draw_search(s);
}

Plan draw_plan(std::uint64_t seed, int attempt) {
  Plan plan;
  plan.scenario = Value::object();
  Draw draw(seed * 1000 + static_cast<std::uint64_t>(attempt));
  Sketch sketch(draw, plan);
  sketch.set("/version", 1);
  sketch.set("/name", "fuzz");
  sketch_degrees(sketch);
  draw_machine(sketch);
  choose_strategy(sketch);
  draw_network(sketch);
  draw_training(sketch);
  draw_parallelism(sketch);
  draw_rest(sketch);
  divide(sketch);
  return plan;
}

}  // namespace trainyard::fuzz
