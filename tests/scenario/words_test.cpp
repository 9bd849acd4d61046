// Words of other frameworks, words that nobody knows, and words that mean nothing where they stand:
// none is ignored, and each error says what to write.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "tests/scenario/temporary.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

using Sets = std::vector<std::string>;

std::string said(const Sets& sets) {
  test::Folder folder("words");
  return test::problems(folder.write("s.json", test::kSmall), sets);
}

std::string warned(const Sets& sets) {
  test::Folder folder("words");
  return test::warnings(load_scenario(folder.write("s.json", test::kSmall), sets).base);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("keys of other frameworks are errors that name ours, wherever they stand") {
  for (const auto& [theirs, ours] : std::vector<std::pair<std::string, std::string>>{
           {"tensor_parallel_size", "/parallelism/tp"},
           {"tensor_model_parallel_size", "/parallelism/tp"},
           {"tensor-model-parallel-size", "/parallelism/tp"},
           {"pipeline_parallel_degree", "/parallelism/pp"},
           {"train_micro_batch_size_per_gpu", "/training/micro_batch"},
           {"per_device_train_batch_size", "/training/micro_batch"},
           {"seq_length", "/training/sequence_length"},
           {"torch_dtype", "/training/precision/compute"},
           {"zero_optimization", "/parallelism/data_parallel/kind"},
           {"num_hidden_layers", "/model/layers"},
           {"num_key_value_heads", "/model/kv_heads"},
           {"attention_heads", "/model/heads"},
           {"vocabulary_size", "/model/vocab"},
           {"servers", "/cluster/nodes"},
           {"num_local_experts", "/model/moe/experts"}}) {
    CAPTURE(theirs);
    for (const std::string section : {"", "model.", "training.", "parallelism.pipeline."})
      CHECK(contains(said({section + theirs + "=1"}), "unknown key; write " + ours));
  }
  CHECK(contains(said({"training.gradient_accumulation_steps=8"}),
                 "unknown key; remove it: it is global_batch / (micro_batch x dp)"));
}

TEST_CASE("values of other frameworks are errors that name ours") {
  for (const auto& [set, cure] : std::vector<std::pair<std::string, std::string>>{
           {"parallelism.data_parallel.kind=ddp", "write \"allreduce\""},
           {"parallelism.data_parallel.kind=FULL_SHARD", "write \"fsdp\""},
           {"training.precision.compute=bfloat16", "write \"bf16\""},
           {"training.precision.compute=torch.bfloat16", "write \"bf16\""},
           {"training.optimizer.type=adamw_torch", "write \"adamw\""},
           {"parallelism.pipeline.schedule=Interleaved1F1B", "write \"interleaved_1f1b\""},
           {"training.sequence_length=8k", "write 8192, or 8000"},
           {"parallelism.tp=\"2\"", "write 2 without quotes"},
           {"training.tokens=15T", "write 15e12"},
           {"cluster.node.nic.bandwidth=10GbE", "write \"10Gbps\""},
           {"cluster.node.nic.bandwidth=HDR", "write \"200Gbps\""}}) {
    CAPTURE(set);
    CHECK(contains(said({set}), "; " + cure));
  }
}

TEST_CASE("a bare number is given the unit that it must have had") {
  CHECK(contains(said({"parallelism.data_parallel.bucket_size=25000000"}),
                 "25000000 has no unit; write \"25MB\""));
  CHECK(contains(said({"parallelism.data_parallel.bucket_size=26214400"}), "write \"25MiB\""));
  CHECK(
      contains(said({"parallelism.data_parallel.bucket_size=25"}), "write \"25MiB\" or \"25GB\""));
  CHECK(contains(said({"cluster.node.nic.bandwidth=25000000000"}),
                 "write \"25GB/s\" (bytes) or \"25Gbps\" (bits)"));
}

TEST_CASE("what cannot be heard where it stands is refused") {
  CHECK(contains(said({"extends=base.json"}), "/extends: bases are read before --set"));
  CHECK(contains(said({"cluster.node.intra.mesh=[]"}),
                 "/cluster/node/intra/mesh: no pair of GPUs is linked"));
  CHECK(contains(said({R"(references=[{"label": "x", "metric": "speed"}])"}),
                 "/references/0/metric: unknown metric \"speed\""));
  CHECK(contains(said({R"(variants=[{"name": "a", "with": {"outputs": {"directory": "x"}}}])"}),
                 "a variant cannot change \"outputs\""));
}

TEST_CASE("a word where an object stands is put under its key") {
  for (const auto& [set, cure] : std::vector<std::pair<std::string, std::string>>{
           {"model=llama3-8b", R"(write {"preset": "llama3-8b"})"},
           {"cluster=dgx-h100-superpod", R"(write {"preset": "dgx-h100-superpod"})"},
           {"cluster=dgx-h100", R"(write {"node": "dgx-h100"})"},
           {"training.precision=fp16", R"(write {"compute": "fp16"})"},
           {"training.optimizer=adam", R"(write {"type": "adam"})"},
           {"parallelism.pipeline=gpipe", R"(write {"schedule": "gpipe"})"},
           {"parallelism.data_parallel=fsdp", R"(write {"kind": "fsdp"})"}}) {
    CAPTURE(set);
    CHECK(contains(said({set}),
                   "expected an object, got \"" + set.substr(set.find('=') + 1) + "\"; " + cure));
  }
  CHECK(said({"model=foo"}).ends_with("expected an object, got \"foo\""));
}

TEST_CASE("words where a list stands are put into one") {
  const std::string key = "training.recompute={\"modules\": \"";
  CHECK(contains(said({key + "[mlp]\"}"}), R"(got "[mlp]"; write ["mlp"], for a shell between ')"));
  CHECK(contains(said({key + "mlp, layer_norm\"}"}), R"(; write ["mlp", "layer_norm"])"));
}

TEST_CASE("what a variant or another job changes stands under with") {
  for (const std::string list : {"variants", "other_jobs"})
    CHECK(contains(said({list + R"(=[{"name": "a", "training": {"micro_batch": 2}}])"}),
                   "/0/training: unknown key; write it under \"with\""));
}

TEST_CASE("what means nothing to its kind or degree is a warning") {
  const std::string kind = "parallelism.data_parallel.kind=";
  const Sets wide = {"parallelism.tp=1", "parallelism.pp=1"};
  const auto with = [&](const std::string& name, const std::string& option) {
    Sets sets = wide;
    sets.push_back(kind + name);
    sets.push_back("parallelism.data_parallel." + option);
    return warned(sets);
  };
  CHECK(contains(with("fsdp", "bucket_size=25MB"), "means nothing to fsdp"));
  CHECK(contains(with("fsdp", "bucket_size=1B"), "means nothing to fsdp"));
  CHECK(contains(with("local_sgd", "bucket_size=25MB"), "means nothing to local_sgd"));
  CHECK(with("zero2", "bucket_size=25MB") == "");
  CHECK(contains(with("local_sgd", "overlap_backward=false"), "means nothing to local_sgd"));
  CHECK(with("fsdp", "overlap_backward=false") == "");
  CHECK(contains(warned({"parallelism.context_parallel.method=ulysses"}),
                 "/parallelism/context_parallel/method: means nothing: cp is 1"));
}

TEST_CASE("a key that says what an object is has the name that the object has for it") {
  CHECK(contains(said({"model.type=1"}), "did you mean \"kind\" or \"preset\"?"));
  CHECK(contains(said({"parallelism.pipeline.type=1"}), "did you mean \"schedule\"?"));
  CHECK(contains(said({"cluster.node.nic.type=1"}), "unknown key; known: "));
}

TEST_CASE("a word of another part is offered where it can mean nothing else") {
  CHECK(contains(said({"training.tp=2"}), "it belongs under /parallelism"));
  CHECK(contains(said({"training.bucket_size=2"}), "belongs under /parallelism/data_parallel"));
  CHECK_FALSE(contains(said({"training.steps=1"}), "/cluster/node/nic"));
}

TEST_CASE("a key that holds one of ours, and a value as near to several, are told so") {
  CHECK(contains(said({"training.optimizer.optimizer_type=1"}), "did you mean \"type\"?"));
  CHECK(contains(said({"training.fused_attention=fa4"}),
                 "did you mean \"fa1\", \"fa2\" or \"fa3\"?"));
}

TEST_CASE("units that are layers are counted as layers") {
  const std::string found =
      said({"parallelism.tp=1", "parallelism.pp=1", "parallelism.data_parallel.kind=fsdp",
            "model.layers=20000", "training.global_batch=8"});
  CHECK(contains(found,
                 "/model/layers: fsdp gathers each of 20002 layers, embedding and head among"));
  CHECK_FALSE(contains(found, "bucket"));
}

TEST_CASE("keys that are only known to be refused are not offered") {
  const std::string found = said({"training.datset=1"});
  CHECK(contains(found, "/training/datset: unknown key; known: "));
  for (const char* refused : {"dataset", "checkpoint"})
    CHECK_FALSE(contains(found + ",", fmt::format(" {},", refused)));
  CHECK(contains(said({"training.dataset=1"}), "a data set is not supported yet"));
}

TEST_CASE("mistakes are told at the key that makes them") {
  CHECK(contains(said({"parallelism.pipeline.layer_split=[1, 2, 3, -1]"}),
                 "/parallelism/pipeline/layer_split/3: expected at least"));
  CHECK(contains(said({"parallelism.pipeline.chunks_per_stage=2"}),
                 "/parallelism/pipeline/chunks_per_stage: this schedule has 1 chunk per stage, got "
                 "2; set it to 1, or "));
}

TEST_CASE("a name without its end is completed") {
  const std::string found = said({"cluster.node.preset=dgx-a100"});
  CHECK(contains(found, "dgx-a100-80gb"));
  CHECK_FALSE(contains(found, "dgx-h100"));
}
