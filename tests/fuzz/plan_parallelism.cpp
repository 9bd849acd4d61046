// /parallelism: degrees, the schedule, and the strategy of data parallelism with its options.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <string_view>

#include "sim/plan/replicas/data_parallel.h"
#include "sim/schedule/custom_schedule.h"
#include "tests/fuzz/sketch.h"

namespace trainyard::fuzz {

using json::Value;

namespace {

std::string of_data_parallel(std::string_view key) {
  return fmt::format("/parallelism/data_parallel/{}", key);
}

void draw_degrees(Sketch& s) {
  Draw& draw = s.draw;
  if (s.tensor > 1 || draw.chance(20)) s.set("/parallelism/tp", s.tensor);
  if (s.pipeline > 1 || draw.chance(20)) s.set("/parallelism/pp", s.pipeline);
  if (s.context > 1) s.set("/parallelism/cp", s.context);
  if (draw.chance(30)) s.set("/parallelism/dp", s.data);
  if (s.expert_ranks > 1) s.set("/parallelism/ep", s.expert_ranks);
  if (s.experts && (s.expert_tensor != s.tensor || draw.chance(20)))
    s.set("/parallelism/etp", s.expert_tensor);
  if (s.sequence_parallel || draw.chance(5))
    s.set("/parallelism/sequence_parallel", s.sequence_parallel);
  if (draw.chance(20))
    s.set("/parallelism/rank_order",
          s.experts || draw.chance(50)
              ? draw.word({"tp-dp-pp", "dp-tp-pp", "tp-cp-dp-pp", "cp-tp-dp-pp"})
              : draw.word({"pp-dp-tp", "tp-pp-dp", "dp-pp-tp", "cp-pp-tp-dp", "pp-tp-dp"}));
  if (s.tensor > 1 && s.chunked) {
    s.set("/parallelism/tensor_parallel/overlap", "chunked");
    if (draw.chance(30)) s.set("/parallelism/tensor_parallel/chunks", draw.pick({2, 4}));
  } else if (s.tensor > 1 && draw.chance(30)) {
    s.set("/parallelism/tensor_parallel/overlap", draw.word({"none", "weight_gradient"}));
  }
  if (s.sequence_parallel && !s.chunked && !s.experts && draw.chance(20))
    s.set("/parallelism/tensor_parallel/keep_gathered_inputs", true);
  if (s.tensor > 1 && s.kind == Kind::decoder && draw.chance(15))
    s.set("/parallelism/tensor_parallel/gather_logits", true);
  const json::Value* projections = json::find(s.plan.scenario, "/training/projections");
  if (s.tensor > 1 && projections != nullptr && projections->text == "separate" && draw.chance(50))
    s.set("/parallelism/tensor_parallel/gather_per_projection", true);
  if (s.context > 1 && (s.ulysses || draw.chance(50)))
    s.set("/parallelism/context_parallel/method",
          s.ulysses ? "ulysses" : draw.word({"ring", "all_gather"}));
}

void draw_experts(Sketch& s) {
  Draw& draw = s.draw;
  if (!s.experts) return;
  constexpr const char* kSection = "/parallelism/expert_parallel";
  const int choice = draw.between(0, 5);
  if (choice == 0)
    s.set(fmt::format("{}/{}", kSection, "capacity_factor"), draw.pick({1.0, 1.25, 0.5}));
  if (choice == 1) s.set(fmt::format("{}/{}", kSection, "imbalance"), draw.pick({0.1, 0.3, 0.57}));
  if (choice == 2 && s.preset.empty()) {
    Value load = Value::array();
    const Value* experts = json::find(s.plan.scenario, "/model/moe/experts");
    const auto count = experts != nullptr ? json::find_integer(*experts).value_or(0) : 0;
    for (std::int64_t i = 0; i < count; ++i)
      load.append(Value::of(draw.between(i == 0 ? 1 : 0, 4)));
    s.set(fmt::format("{}/{}", kSection, "load"), load);
  }
  if (s.expert_ranks > 1 && choice != 0 && draw.chance(30))
    s.set(fmt::format("{}/{}", kSection, "dispatch"), draw.word({"all_to_all", "hierarchical"}));
  if (s.expert_ranks > 1 && s.compute_fp8 && draw.chance(50))
    s.set(fmt::format("{}/{}", kSection, "dispatch_dtype"), draw.word({"bf16", "fp8"}));
}

// Every stage does what GPipe does.
void write_slots(Sketch& s) {
  std::string all;
  for (const char pass : {'F', 'B'})
    for (int i = 0; i < s.microbatches; ++i)
      all += std::string(all.empty() ? "" : " ") + pass + std::to_string(i);
  Value slots = Value::array();
  for (int stage = 0; stage < s.pipeline; ++stage)
    slots.append(Value::of(all));
  s.set("/parallelism/pipeline/slots", slots);
}

void draw_split(Sketch& s) {
  Draw& draw = s.draw;
  if (draw.chance(10)) {
    s.set("/parallelism/pipeline/layer_split",
          draw.word({"balanced_with_embeddings", "by_time", "by_memory", "uniform"}));
    return;
  }
  const int parts = s.pipeline * s.chunks;
  if (!s.preset.empty() || parts < 2 || !draw.chance(15)) return;
  std::vector<int> split(static_cast<std::size_t>(parts), 1);
  for (int left = s.layers - parts; left > 0; --left)
    ++split[draw.below(split.size())];
  Value list = Value::array();
  for (const int layers : split)
    list.append(Value::of(layers));
  s.set("/parallelism/pipeline/layer_split", list);
}

// Layers of a table on the stages in any way.
void draw_branches(Sketch& s) {
  Draw& draw = s.draw;
  const bool in_one_order =
      s.schedule == nullptr || s.schedule->name == "gpipe" || s.schedule->name == "sequential";
  if (s.kind != Kind::layers || !in_one_order || s.chunks > 1 || !draw.chance(60)) return;
  if (json::find(s.plan.scenario, "/parallelism/pipeline/layer_split") != nullptr) return;
  const std::string pointer = "/parallelism/pipeline/branches";
  // Pieces of layers have names of their own.
  const bool cut = json::find(s.plan.scenario, "/model/cut") != nullptr;
  const std::string placed =
      cut ? draw.word({"by_time", "by_memory"}) : draw.word({"by_time", "by_memory", "given"});
  s.set(pointer + "/placed", placed);
  if (placed != "given") return;
  // One layer or more each, the others anywhere.
  std::vector<Value> lists(static_cast<std::size_t>(s.pipeline), Value::array());
  for (int layer = 0; layer < s.layers; ++layer) {
    const auto stage =
        layer < s.pipeline ? static_cast<std::size_t>(layer) : draw.below(lists.size());
    lists[stage].append(Value::of("layer" + std::to_string(layer)));
  }
  Value stages = Value::array();
  for (Value& list : lists) {
    Value stage = Value::object();
    stage.set("layers", std::move(list));
    stages.append(std::move(stage));
  }
  s.set(pointer + "/stages", stages);
}

void draw_pipeline(Sketch& s) {
  Draw& draw = s.draw;
  constexpr const char* kSection = "/parallelism/pipeline";
  if (s.overlap_passes) s.set(fmt::format("{}/{}", kSection, "overlap_passes"), true);
  if (s.pipeline == 1) return;
  if (s.schedule == nullptr) {
    s.set(fmt::format("{}/{}", kSection, "schedule"), schedule::kCustomSchedule);
    write_slots(s);
    if (draw.chance(30)) s.set(fmt::format("{}/{}", kSection, "placement"), "looped");
  } else {
    s.set(fmt::format("{}/{}", kSection, "schedule"), s.schedule->name);
    if (s.chunks != s.schedule->chunks || draw.chance(20))
      s.set(fmt::format("{}/{}", kSection, "chunks_per_stage"), s.chunks);
    if (s.schedule->grouped && draw.chance(20))
      s.set(fmt::format("{}/{}", kSection, "group_size"), s.pipeline);
  }
  draw_split(s);
  draw_branches(s);
  const auto key = [kSection](const char* name) { return fmt::format("{}/{}", kSection, name); };
  if (draw.chance(30)) s.set(key("overlap_p2p"), draw.chance(40));
  if (s.tensor > 1 && !s.sequence_parallel && draw.chance(40))
    s.set(key("scatter_gather"), draw.chance(70));
}

struct Option {
  std::string_view key;
  std::function<void(Sketch&, const std::string&)> draw;
};

void draw_flag(Sketch& s, const std::string& pointer) {
  s.set(pointer, s.draw.chance(50));
}

void draw_compression(Sketch& s, const std::string& pointer) {
  if (s.offloads) return;
  const std::string kind =
      s.draw.word({"fp16", "bf16", "int8", "fp8", "one_bit", "top_k", "power_sgd"});
  s.set(pointer + "/kind", kind);
  if (kind == "power_sgd" && s.draw.chance(50)) s.set(pointer + "/rank", s.draw.between(1, 4));
  if (kind == "top_k" && s.draw.chance(50)) s.set(pointer + "/density", 0.01);
}

void draw_cycle(Sketch& s, const std::string& pointer) {
  const auto said = [&](const char* key) {
    return json::find(s.plan.scenario, of_data_parallel(key)) != nullptr;
  };
  if (s.offloads || s.pipeline > 1 || s.experts) return;
  if (said("compression") || said("batch_split")) return;
  s.set(pointer, s.draw.word({"1us", "1ms", "1s"}));
  if (s.draw.chance(30)) s.set(of_data_parallel("response_cache"), false);
}

void draw_summed_ranks(Sketch& s, const std::string& pointer) {
  if (s.context > 1) return;
  for (const int ranks : {4, 3, 2})
    if (s.data % ranks == 0) return s.set(pointer, ranks);
}

void draw_updates(Sketch& s, const std::string& pointer) {
  const bool sums = json::find(s.plan.scenario, of_data_parallel("summed_ranks")) != nullptr;
  if (s.data != s.world() || sums) return;
  const std::string updates = s.draw.word({"asynchronous", "stale"});
  s.set(pointer, updates);
  if (updates == "stale") s.set(of_data_parallel("staleness"), s.draw.pick({0, 1, 5}));
}

const std::vector<Option>& options() {
  static const std::vector<Option> all = {
      {"reduce_every_microbatch", draw_flag},
      {"limit_all_gathers", draw_flag},
      {"reshard_after_forward", draw_flag},
      {"gradient_as_bucket_view", draw_flag},
      {"overlap_param_gather", draw_flag},
      {"allgather_bucket_size",
       [](Sketch& s, const std::string& at) {
         s.set(of_data_parallel("overlap_param_gather"), false);
         s.set(at, s.draw.word({"1MB", "1GB"}));
       }},
      {"all_reduce_gradients", draw_flag},
      {"compression", draw_compression},
      {"cycle_time", draw_cycle},
      {"first_bucket_size", [](Sketch& s, const std::string& at) { s.set(at, "1MB"); }},
      {"prefetch_layers",
       [](Sketch& s, const std::string& at) { s.set(at, s.draw.between(0, 2)); }},
      {"reduce_dtype",
       [](Sketch& s, const std::string& at) {
         s.set(at, s.draw.word({"fp32", "bf16"}));
       }},
      {"loss_in_model",
       [](Sketch& s, const std::string& at) {
         if (s.kind != Kind::encoder) draw_flag(s, at);
       }},
      {"lock_share",
       [](Sketch& s, const std::string& at) {
         s.set(at, s.draw.pick({0.0, 0.3, 1.0}));
       }},
      {"steps_between",
       [](Sketch& s, const std::string& at) {
         s.set(at, s.draw.pick({1, 50}));
       }},
      {"server",
       [](Sketch& s, const std::string& at) { s.set(at, s.draw.between(0, s.servers - 1)); }},
      {"shards",
       [](Sketch& s, const std::string& at) {
         s.set(at, s.draw.pick({1, 2, 3, 9}));
       }},
      {"sharding",
       [](Sketch& s, const std::string& at) {
         s.set(at, s.draw.word({"even", "size", "round_robin", "hash"}));
       }},
      {"push_by_layer",
       [](Sketch& s, const std::string& at) {
         if (s.pipeline == 1) draw_flag(s, at);
       }},
      {"summed_ranks", draw_summed_ranks},
      {"updates", draw_updates},
      {"backup_workers",
       [](Sketch& s, const std::string& at) {
         const bool waits = json::find(s.plan.scenario, of_data_parallel("updates")) == nullptr;
         const bool sums = json::find(s.plan.scenario, of_data_parallel("summed_ranks")) != nullptr;
         if (waits && !sums && s.data == s.world() && s.data > 1) s.set(at, 1);
       }},
  };
  return all;
}

void draw_shard_size(Sketch& s) {
  const int replicas = s.data * s.context;
  std::vector<int> sizes;
  for (int size = 2; size < replicas; ++size)
    if (replicas % size == 0) sizes.push_back(size);
  s.set(of_data_parallel("shard_size"), sizes.empty() ? 2 : s.draw.element(sizes));
}

// Whether the plan can have the strategy, as far as is plain.
bool takes(Sketch& s, const plan::StrategyEntry& entry) {
  const int replicas = s.data * s.context;
  if (s.kind == Kind::recommender) return entry.name == "allreduce";
  const schedule::ScheduleEntry* order = s.pipeline > 1 ? s.schedule : nullptr;
  const bool plain = order == nullptr || (order->updates == schedule::Updates::after_all &&
                                          order->placement != schedule::Placement::bidirectional &&
                                          order->name != "dualpipe_v");
  constexpr std::array<std::string_view, 3> kPlain = {"allreduce", "zero1",
                                                      "distributed_optimizer"};
  if (s.overlap_passes) return std::count(kPlain.begin(), kPlain.end(), entry.name) > 0;
  if (!plain && entry.name != "allreduce") return entry.name == "zero1" && s.draw.chance(50);
  if (entry.name == "hsdp") return replicas % 2 == 0 && replicas > 2;
  if (entry.name == "parameter_server") return s.has_host && !s.experts;
  if (entry.name == "nn_data_parallel") {
    if (s.data != s.world() || s.servers > 1 || s.experts || s.latent) return false;
    s.execution = "eager";
  }
  return true;
}

// A micro-batch of its own for each replica, with the mean of all.
void draw_batch_split(Sketch& s) {
  const bool alike = s.strategy == "nn_data_parallel" || s.strategy == "parameter_server" ||
                     s.expert_ranks > 1 || s.kind == Kind::recommender;
  if (alike || !s.draw.chance(12)) return;
  if (s.draw.chance(60)) {
    s.set(of_data_parallel("batch_split"), s.draw.word({"by_speed", "by_speed", "equal"}));
    return;
  }
  std::vector<int> sizes(static_cast<std::size_t>(s.data), s.micro_batch);
  for (int& size : sizes) {
    int& other = sizes[static_cast<std::size_t>(s.draw.below(sizes.size()))];
    const int moved = s.draw.between(0, other - 1);
    other -= moved;
    size += moved;
  }
  Value list = Value::array();
  for (const int size : sizes)
    list.append(Value::of(size));
  s.set(of_data_parallel("batch_split"), list);
}

void draw_data_parallel(Sketch& s) {
  Draw& draw = s.draw;
  draw_batch_split(s);
  const plan::StrategyEntry* entry = plan::find_strategy(s.strategy);
  if (s.strategy != "allreduce" || draw.chance(20)) s.set(of_data_parallel("kind"), s.strategy);
  if (entry->name == "hsdp") draw_shard_size(s);
  // Two losses.
  if (entry->name == "nn_data_parallel" && s.kind == Kind::encoder)
    s.set(of_data_parallel("loss_in_model"), true);
  const bool on_gpus =
      entry->name == "parameter_server" && s.data * s.context <= 64 && draw.chance(30);
  if (on_gpus) s.set(of_data_parallel("device"), "gpu");
  for (const Option& option : options()) {
    if (on_gpus && option.key != "push_by_layer") continue;
    const bool accepted =
        std::find(entry->accepts.begin(), entry->accepts.end(), option.key) != entry->accepts.end();
    if (accepted && draw.chance(25)) option.draw(s, of_data_parallel(option.key));
  }
  const bool buckets = entry->name != "fsdp" && entry->name != "hsdp" &&
                       entry->name != "local_sgd" && entry->name != "nn_data_parallel";
  if (!buckets) return;
  if (draw.chance(40))
    s.set(of_data_parallel("bucket_size"), draw.word({"1MiB", "25MB", "4MB", "160MiB"}));
  const bool cycles = json::find(s.plan.scenario, of_data_parallel("cycle_time")) != nullptr;
  if (draw.chance(30)) s.set(of_data_parallel("overlap_backward"), cycles || draw.chance(50));
}

void draw_tables(Sketch& s) {
  Draw& draw = s.draw;
  if (s.kind != Kind::recommender || s.world() == 1 || draw.chance(30)) return;
  constexpr const char* kSection = "/parallelism/embedding_parallel";
  const Value* tables = json::find(s.plan.scenario, "/model/tables");
  if (tables != nullptr && draw.chance(20)) {
    Value groups = Value::array();
    for (std::size_t i = 0; i < tables->items.size(); ++i)
      groups.append(Value::of(draw.word({"auto", "table_wise", "column_wise", "row_wise"})));
    s.set(fmt::format("{}/{}", kSection, "groups"), groups);
    return;
  }
  const char* how = draw.word({"auto", "table_wise", "column_wise", "row_wise", "data_parallel"});
  s.set(fmt::format("{}/{}", kSection, "sharding"), how);
  if (how == std::string("column_wise") && draw.chance(40))
    s.set(fmt::format("{}/{}", kSection, "column_shards"), 2);
  if (how != std::string("data_parallel") && draw.chance(40))
    s.set(fmt::format("{}/{}", kSection, "index_exchange"),
          draw.word({"pipelined", "exposed", "none"}));
}

}  // namespace

void choose_strategy(Sketch& s) {
  for (;;) {
    const plan::StrategyEntry& entry = s.draw.element(plan::data_parallel_strategies());
    if (!takes(s, entry)) continue;
    s.strategy = entry.name;
    break;
  }
  s.offloads = s.has_host && s.strategy != "parameter_server" && s.strategy != "nn_data_parallel" &&
               s.kind != Kind::recommender && s.draw.chance(15);
}

void draw_parallelism(Sketch& s) {
  draw_degrees(s);
  draw_experts(s);
  draw_pipeline(s);
  draw_data_parallel(s);
  draw_tables(s);
}

}  // namespace trainyard::fuzz
