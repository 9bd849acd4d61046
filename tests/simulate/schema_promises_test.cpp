// What the schema promises of each field, asked of the program: leaving a key out is writing its
// default, and its least and greatest numbers are those that the reader takes.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sim/json/parse.h"
#include "sim/scenario/reference.h"
#include "sim/simulate/report/summary.h"
#include "sim/simulate/simulate.h"
#include "tests/scenario/temporary.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

using json::Kind;
using json::Value;
using Sets = std::vector<std::string>;

// Everything in place, nothing by its preset's name.
constexpr const char* kWhole = R"({
  "version": 1,
  "name": "whole",
  "model": { "layers": 4, "hidden": 512, "heads": 8, "vocab": 5120 },
  "cluster": {
    "nodes": 2,
    "node": {
      "gpu": {
        "memory": "80GiB", "memory_bandwidth": "2TB/s",
        "peak": {
          "fp32": "20TFLOP/s", "fp16": "312TFLOP/s", "bf16": "312TFLOP/s", "fp8": "600TFLOP/s"
        },
        "multiprocessors": 108
      },
      "gpus": 4,
      "intra": { "kind": "nvswitch", "bandwidth_per_gpu": "300GB/s" },
      "nics": 4,
      "nic": { "bandwidth": "200Gbps" },
      "host": {
        "pcie_bandwidth": "25GB/s", "memory_bandwidth": "200GB/s", "memory": "1TiB",
        "nvme_capacity": "10TB", "nvme_read_bandwidth": "10GB/s", "nvme_write_bandwidth": "5GB/s"
      }
    },
    "fabric": { "kind": "single_switch" }
  },
  "training": {
    "global_batch": 16, "micro_batch": 1, "sequence_length": 128,
    "precision": { "compute": "fp16" }, "optimizer": { "type": "adam" }
  }
})";

// A table of layers that begins with this operation.
Sets layers(const std::string& first) {
  return {
      R"(model={"kind":"layers","input":{"image_size":[3,16,16]},"layers":[{"name":"one","ops":[)" +
          first + R"(,{"op":"conv","out":8,"kernel":3},{"op":"loss"}]}]})",
      "training.sequence_length=null", "training.optimizer.type=sgd"};
}

// Jobs of which each says something that others cannot.
std::vector<Sets> jobs() {
  const std::string node = "cluster.node.";
  const std::string share = "parallelism.data_parallel=";
  return {
      {},
      {"parallelism.tp=2", "parallelism.sequence_parallel=true", "training.tokens=1e9",
       "training.precision={\"compute\":\"bf16\",\"gradients\":\"fp32\"}",
       share + R"({"kind":"hsdp","shard_size":2,"reduce_dtype":"bf16"})"},
      {"training.precision.compute=bf16", share + R"({"kind":"fsdp"})"},
      {"parallelism.pp=2", R"(parallelism.pipeline={"schedule":"interleaved_1f1b",
        "chunks_per_stage":2,"group_size":4})",
       R"(cluster.fabric={"kind":"fat_tree","oversubscription":[1]})"},
      {"training.precision.compute=fp8", "parallelism.ep=4", "model.biases=false",
       R"(model.moe={"experts":8,"top_k":2,"shared_experts":1,"top_groups":1})",
       R"(cluster.fabric={"kind":"clos","levels":[{"name":"rack","gpus":8}]})"},
      {"model.biases=false", "training.fused_attention=true",
       R"(model.latent_attention={"kv_rank":64,"nope_head_dim":32,
        "rope_head_dim":32,"v_head_dim":32})",
       R"(perturbations={"stragglers":[{"select":{"rank":1},"compute_slowdown":1.5}]})"},
      {"model.layers=2", "model.layer_pattern=M*", R"(model.mamba={"heads":8})"},
      {"model.kind=encoder", "training.predictions_per_sequence=16", share + R"({"kind":"zero1"})"},
      {"model.kind=encoder_decoder", "training.decoder_sequence_length=64",
       "model.positional=relative", "model.decoder={\"layers\":2}",
       share + R"({"kind":"distributed_optimizer"})"},
      {R"(model={"kind":"vision_transformer","layers":2,"hidden":256,"heads":4,
        "input":{"image_size":[3,64,64]}})",
       "training.sequence_length=null", share + R"({"kind":"local_sgd"})"},
      {R"(model={"kind":"recommender","dense_features":4,"embedding_dim":16,
        "tables":[{"rows":1000},{"rows":50,"dim":16}],"bottom_mlp":[32,16],"top_mlp":[32,1]})",
       "training.sequence_length=null", "training.execution=eager",
       R"(parallelism.embedding_parallel={"sharding":"column_wise"})"},
      {R"(model={"kind":"recommender","dense_features":4,"embedding_dim":16,"interaction":"dcn",
        "cross_layers":2,"cross_rank":8,
        "tables":[{"rows":1000}],"bottom_mlp":[32,16],"top_mlp":[32,1]})",
       "training.sequence_length=null", "training.optimizer.type=sgd",
       R"(parallelism.embedding_parallel={"sharding":"row_wise"})"},
      {"training.precision.gradients=fp32", share + R"({"compression":{"kind":"power_sgd"}})"},
      {share + R"({"compression":{"kind":"top_k"}})"},
      {share + R"({"cycle_time":"1ms"})"},
      {share + R"({"kind":"parameter_server"})"},
      {share + R"({"kind":"parameter_server","summed_ranks":2})"},
      {"cluster.nodes=1", "training.execution=eager", share + R"({"kind":"nn_data_parallel"})"},
      {share + R"({"kind":"parameter_server","server":[0]})"},
      {R"(training.offload={"optimizer":"cpu","activations":"cpu"})",
       share + R"({"kind":"zero2"})"},
      {node + R"(intra={"kind":"nvlink_mesh","bandwidth_per_gpu":"25GB/s",
        "mesh":[{"a":0,"b":1},{"a":1,"b":2},{"a":2,"b":3},{"a":3,"b":0}]})",
       "collectives={}", "cluster.gpus_used=[4]",
       R"(training.recompute={"method":"block","layers":2})"},
      {"parallelism.cp=2", "parallelism.tp=2", "parallelism.sequence_parallel=true",
       "training.fused_attention=true", R"(parallelism.tensor_parallel={"overlap":"chunked"})",
       "simulation.fidelity=flow"},
      {"parallelism.pp=2", R"(parallelism.pipeline={"layer_split":[2,2]})"},
      {R"(cluster.fabric={"kind":"dragonfly","nics_per_router":8,"routers_per_group":8,
        "global_links":8})"},
      {R"(model={"kind":"layers","input":{"shape":[64]},"layers":[
        {"name":"one","ops":[{"op":"linear","in":64,"out":64}]},
        {"name":"two","ops":[{"op":"linear","in":64,"out":8},{"op":"loss"}]}]})",
       "training.sequence_length=null", "training.optimizer.type=sgd", "parallelism.pp=2",
       R"(parallelism.pipeline={"schedule":"gpipe","branches":{}})"},
      {"cluster.nodes=null", node + "nics=null", node + "nic=null"},
      {"model.biases=false", R"(model.moe={"experts":2,"top_k":1})",
       R"(parallelism.expert_parallel={"load":[1,2]})"},
      {"training.precision.compute=bf16", node + R"(gpu.peak={"bf16":"312TFLOP/s"})",
       node + "gpu.multiprocessors=null"},
      {node + R"(gpu.peak={"fp16":"312TFLOP/s"})"},
      {R"(model={"kind":"recommender","dense_features":4,"embedding_dim":16,
        "tables":[{"rows":1000}],"bottom_mlp":[32,16],"top_mlp":[32,1]})",
       "training.sequence_length=null", "training.optimizer.type=sgd",
       R"(parallelism.embedding_parallel={"index_exchange":"exposed"})"},
      layers(R"({"op":"memory","forward":{"read":768},"backward":{"write":768}})"),
      layers(R"({"op":"memory","forward":{"write":768},"backward":{"read":768}})"),
      layers(R"({"op":"conv_transpose","out":8,"kernel":[3,3],"stride":[2,2],"padding":[1,1],
        "dilation":[1,1],"output_padding":[1,1]})"),
      layers(R"({"op":"avg_pool","to":[4,4]})"),
      {R"(model={"kind":"layers","input":{"shape":[16,64]},"layers":[{"name":"one","ops":[
        {"op":"memory","forward":{"read":1024,"write":1024},"shape":[16,64]},
        {"op":"linear","in":64,"out":8},{"op":"loss"}]}]})",
       "training.sequence_length=null", "training.optimizer.type=sgd"},
      {"training.fused_attention=true", "model.positional=rope", "model.window={\"size\":64}"},
      layers(R"({"op":"resize","by":[2,2]})"),
      {"training.precision.compute=bf16", R"(training.finetune={"kind":"qlora"})"},
      {node + R"(gpu.power={"idle":"50W","busy":"300W"})",
       node + R"(gpu.cooling={"inlet":27,"busy":66,"time_constant":"30s","limit":85})",
       R"(cost={"gpu_hour":2.5,"own":{"server":300000,"years":4,"utilisation":0.7,
        "kilowatt_hour":0.12}})"},
      {R"(training.input_pipeline={"workers":2,"sample_cpu_time":"1ms",
        "prepared_sample":"1KB"})"},
      {R"(training.input_pipeline={"workers":2,"sample_cpu_time":"1ms","prepared_sample":"1KB",
        "stored_sample":"10KB","storage_bandwidth":"1GB/s"})"},
      {node + R"(other_gpus=[{"at":[1],"gpu":"a100-sxm4-80gb"}])"},
      {R"(cluster.other_nodes=[{"node":"dgx-a100-80gb"}])"},
      {"cluster.gpus_used=[4,0]", "simulation.fidelity=flow",
       R"(other_jobs=[{"name":"one","gpus_used":[0,4]}])"},
      {R"(parallelism.data_parallel.batch_split=[1,1,1,1,1,1,1,1])"},
      {node + R"(intra={"kind":"torus","bandwidth_per_gpu":"25GB/s","dimensions":[2,2]})"},
  };
}

// The default and the bounds of one key, as the schema says them.
struct Promise {
  std::string pointer;  // items of arrays by "0", members of a name's choice by "*"
  const Value* schema;
};

void collect(const Value& schema, const std::string& pointer, std::vector<Promise>& found) {
  for (const char* word : {"anyOf", "oneOf"})
    if (const Value* branches = schema.find(word))
      for (const Value& branch : branches->items)
        collect(branch, pointer, found);
  if (const Value* properties = schema.find("properties")) {
    for (const json::Member& member : properties->members) {
      const std::string at = pointer + "/" + member.key;
      found.push_back({at, &member.value});
      collect(member.value, at, found);
    }
  }
  if (const Value* items = schema.find("items")) {
    found.push_back({pointer + "/0", items});
    collect(*items, pointer + "/0", found);
  }
}

const Value& schema() {
  static const Value value = [] {
    std::vector<Diagnostic> none;
    return json::parse_text(schema_json(), "schema", none);
  }();
  return value;
}

// But for tables that stand a second time, for further kinds of servers and GPUs.
std::vector<Promise> promises() {
  std::vector<Promise> found;
  collect(schema(), "", found);
  std::erase_if(found, [](const Promise& promise) {
    return promise.pointer.starts_with("/cluster/node/other_gpus/0/gpu/") ||
           promise.pointer.starts_with("/cluster/other_nodes/0/node/");
  });
  return found;
}

std::string set_of(const std::string& pointer, const std::string& text) {
  return pointer + "=" + text;
}

// Everything that is said of the job, but for where it was written.
struct Told {
  std::string json;
  std::map<std::string, std::string> values;
};

Told told(const Scenario& scenario) {
  Scenario plain = scenario;
  plain.warnings.clear();
  plain.assumed.clear();
  Told out{to_json(simulate::simulate(plain, {.timeline = false}).report), {}};
  for (const json::Explained& line : explain(scenario))
    out.values[line.pointer] = line.value;
  return out;
}

class Jobs {
 public:
  Jobs() : folder_("promises"), path_(folder_.write("whole.json", kWhole)), jobs_(jobs()) {
    for (const Sets& job : jobs_) {
      CAPTURE(job.empty() ? "" : job.front());
      REQUIRE(problems(job) == "");
      const Scenario scenario = load_scenario(path_, job).base;
      documents_.push_back(scenario.document);
      without_.push_back(told(scenario));
    }
  }

  std::size_t size() const { return jobs_.size(); }
  const Told& without(std::size_t job) const { return without_[job]; }
  const Value& document(std::size_t job) const { return documents_[job]; }
  Sets with(std::size_t job, const std::string& set) const {
    Sets sets = jobs_[job];
    sets.push_back(set);
    return sets;
  }
  // Empty where it is refused.
  std::optional<Scenario> load(const Sets& sets) const {
    try {
      return load_scenario(path_, sets).base;
    } catch (const ScenarioError&) {
      return std::nullopt;
    }
  }
  std::string problems(const Sets& sets) const { return test::problems(path_, sets); }

  // Whether the reader finds what it expects at this pointer, and below it.
  bool is_taken(std::size_t job, const std::string& pointer, const std::string& text) const {
    try {
      load_scenario(path_, with(job, set_of(pointer, text)));
    } catch (const ScenarioError& error) {
      for (const Diagnostic& diagnostic : error.diagnostics())
        for (const char* word : {"expected", "unknown", "there is nothing"})
          if (diagnostic.pointer.starts_with(pointer) && diagnostic.message.starts_with(word))
            return false;
    }
    return true;
  }

  // What is said of this pointer itself being out of range.
  bool is_out_of_range(std::size_t job, const std::string& pointer, const std::string& text) const {
    try {
      load_scenario(path_, with(job, set_of(pointer, text)));
    } catch (const ScenarioError& error) {
      for (const Diagnostic& diagnostic : error.diagnostics())
        if (diagnostic.pointer == pointer && (diagnostic.message.starts_with("expected") ||
                                              diagnostic.message.ends_with("is too large")))
          return true;
    }
    return false;
  }

 private:
  test::Folder folder_;
  std::string path_;
  std::vector<Sets> jobs_;
  std::vector<Value> documents_;
  std::vector<Told> without_;
};

// A number further than the bound, where doubles tell the two apart.
std::string beyond(const Value& bound, double step) {
  constexpr std::int64_t kLarge = 1'000'000'000'000'000;
  const auto whole = json::find_integer(bound);
  if (!whole) return fmt::format("{}", *json::find_number(bound) * (1 + 0.1 * step) + step);
  const std::int64_t far = *whole > kLarge ? *whole / 10 : 1;
  return std::to_string(step > 0 ? *whole + far : *whole - far);
}

}  // namespace

TEST_CASE("leaving a key out is writing the default that the schema states") {
  const Jobs jobs;
  std::set<std::string> seen;
  for (const Promise& promise : promises()) {
    const Value* otherwise = promise.schema->find("default");
    if (otherwise == nullptr) continue;
    const std::string text = json::to_text(*otherwise, -1);
    if (!seen.insert(promise.pointer + text).second) continue;
    CAPTURE(promise.pointer);
    CAPTURE(text);
    bool is_accepted = false;
    for (std::size_t job = 0; job < jobs.size(); ++job) {
      if (json::find(jobs.document(job), promise.pointer) != nullptr) continue;  // the job says it
      const std::optional<Scenario> scenario =
          jobs.load(jobs.with(job, set_of(promise.pointer, text)));
      if (!scenario) continue;
      is_accepted = true;
      CAPTURE(job);
      const Told with = told(*scenario);
      CHECK(with.json == jobs.without(job).json);
      const auto line = jobs.without(job).values.find(promise.pointer);
      if (line != jobs.without(job).values.end()) CHECK(line->second == text);
    }
    CHECK(is_accepted);
  }
  CHECK(seen.size() > 80);
}

TEST_CASE("the least and the greatest number of the schema are those that the reader takes") {
  const Jobs jobs;
  std::set<std::string> seen;
  for (const Promise& promise : promises()) {
    struct Bound {
      const char* key;
      bool is_taken;
      double step;
    };
    for (const Bound& bound : {Bound{"minimum", true, -1}, Bound{"maximum", true, 1},
                               Bound{"exclusiveMinimum", false, 0}}) {
      const Value* value = promise.schema->find(bound.key);
      if (value == nullptr) continue;
      const std::string at = json::to_text(*value, -1);
      if (!seen.insert(promise.pointer + bound.key + at).second) continue;
      CAPTURE(promise.pointer);
      CAPTURE(std::string(bound.key));
      CAPTURE(at);
      bool is_reached = false;
      for (std::size_t job = 0; job < jobs.size() && !is_reached; ++job) {
        const std::string outside = bound.is_taken ? beyond(*value, bound.step) : at;
        // A bound may be narrower in some jobs: GPUs of a server are fewer unless it is a torus.
        is_reached = jobs.is_out_of_range(job, promise.pointer, outside) &&
                     !(bound.is_taken && jobs.is_out_of_range(job, promise.pointer, at));
      }
      CHECK(is_reached);
    }
  }
  CHECK(seen.size() > 100);
}

TEST_CASE("the reader takes every example where it stands") {
  const Jobs jobs;
  for (const json::FieldRow& row : reference_rows()) {
    const std::string pointer = row.pointer();
    // Files that are not there, names of blocks, and what says the format.
    const bool is_of_others = pointer.find("NAME") != std::string::npos || row.example.empty() ||
                              pointer == "/extends" || pointer == "/model/hf_config" ||
                              pointer.starts_with("/model/layers/0/ops");
    if (is_of_others) continue;
    CAPTURE(pointer);
    CAPTURE(row.example);
    bool is_taken = false;
    for (std::size_t job = 0; job < jobs.size() && !is_taken; ++job)
      is_taken = jobs.is_taken(job, pointer, row.example);
    CHECK(is_taken);
  }
}
