#include "sim/scenario/foreign_words.h"

#include <array>

namespace trainyard::scenario {

namespace {

struct Word {
  std::string_view theirs, cure;
};

// Sources: Megatron-LM, megatron/training/arguments.py; DeepSpeed, docs/_pages/config-json.md;
// torchtitan, torchtitan/config/job_config.py; transformers, TrainingArguments and the configs of
// its networks; vLLM's engine arguments.
constexpr auto kKeys = std::to_array<Word>({
    {"activation_checkpoint", "/training/recompute"},
    {"activation_checkpointing", "/training/recompute"},
    {"activation_recomputation", "/training/recompute"},
    {"allgather_bucket_size", "/parallelism/data_parallel/allgather_bucket_size"},
    {"attention_heads", "/model/heads"},
    {"attn_implementation", "/training/fused_attention"},
    {"batch_size", "/training/global_batch"},
    {"bf16", "/training/precision/compute"},
    {"compile", "/training/execution"},
    {"context_parallel_degree", "/parallelism/cp"},
    {"context_parallel_size", "/parallelism/cp"},
    {"cp_comm_type", "/parallelism/context_parallel/method"},
    {"cp_size", "/parallelism/cp"},
    {"cpu_offload", "/training/offload"},
    {"d_ff", "/model/ffn_hidden"},
    {"d_model", "/model/hidden"},
    {"data_parallel_degree", "/parallelism/dp"},
    {"data_parallel_replicate_degree", "/parallelism/data_parallel/shard_size"},
    {"data_parallel_shard_degree", "/parallelism/data_parallel/shard_size"},
    {"data_parallel_size", "/parallelism/dp"},
    {"dp_size", "/parallelism/dp"},
    {"dtype", "/training/precision/compute"},
    {"embed_dim", "/model/hidden"},
    {"ep_size", "/parallelism/ep"},
    {"expert_model_parallel_size", "/parallelism/ep"},
    {"expert_parallel_degree", "/parallelism/ep"},
    {"expert_parallel_size", "/parallelism/ep"},
    {"expert_tensor_parallel_degree", "/parallelism/etp"},
    {"expert_tensor_parallel_size", "/parallelism/etp"},
    {"ffn_hidden_size", "/model/ffn_hidden"},
    {"flash_attention", "/training/fused_attention"},
    {"fp16", "/training/precision/compute"},
    {"fp8", "/training/precision/compute"},
    {"fsdp", "/parallelism/data_parallel/kind"},
    {"fsdp_reshard_after_forward", "/parallelism/data_parallel/reshard_after_forward"},
    {"global_batch_size", "/training/global_batch"},
    {"gpus_per_node", "/cluster/node/gpus"},
    {"gpus_per_server", "/cluster/node/gpus"},
    {"grad_reduce_in_bf16", "/parallelism/data_parallel/reduce_dtype"},
    {"gradient_accumulation_steps", "remove it: it is global_batch / (micro_batch x dp)"},
    {"gradient_checkpointing", "/training/recompute"},
    {"hidden_act", "/model/ffn"},
    {"hidden_dim", "/model/hidden"},
    {"hidden_dropout", "/model/dropout"},
    {"hidden_size", "/model/hidden"},
    {"intermediate_size", "/model/ffn_hidden"},
    {"kv_channels", "/model/head_dim"},
    {"learning_rate", "remove it: it changes no step's time"},
    {"local_batch_size", "/training/micro_batch"},
    {"lr", "remove it: it changes no step's time"},
    {"max_position_embeddings", "/model/max_positions"},
    {"max_seq_len", "/training/sequence_length"},
    {"micro_batch_size", "/training/micro_batch"},
    {"microbatch_size", "/training/micro_batch"},
    {"mixed_precision", "/training/precision/compute"},
    {"mixed_precision_param", "/training/precision/compute"},
    {"mixed_precision_reduce", "/parallelism/data_parallel/reduce_dtype"},
    {"moe_ffn_hidden_size", "/model/moe/expert_ffn_hidden"},
    {"moe_intermediate_size", "/model/moe/expert_ffn_hidden"},
    {"moe_router_topk", "/model/moe/top_k"},
    {"n_embd", "/model/hidden"},
    {"n_head", "/model/heads"},
    {"n_heads", "/model/heads"},
    {"n_kv_heads", "/model/kv_heads"},
    {"n_layer", "/model/layers"},
    {"n_layers", "/model/layers"},
    {"n_positions", "/model/max_positions"},
    {"nnodes", "/cluster/nodes"},
    {"nproc_per_node", "/cluster/node/gpus"},
    {"num_attention_heads", "/model/heads"},
    {"num_experts", "/model/moe/experts"},
    {"num_experts_per_tok", "/model/moe/top_k"},
    {"num_gpus", "/cluster/node/gpus"},
    {"num_hidden_layers", "/model/layers"},
    {"num_key_value_heads", "/model/kv_heads"},
    {"num_layers", "/model/layers"},
    {"num_layers_per_virtual_pipeline_stage", "/parallelism/pipeline/chunks_per_stage"},
    {"num_local_experts", "/model/moe/experts"},
    {"num_nodes", "/cluster/nodes"},
    {"num_query_groups", "/model/kv_heads"},
    {"num_servers", "/cluster/nodes"},
    {"num_workers", "/training/input_pipeline/workers"},
    {"offload_optimizer", "/training/offload/optimizer"},
    {"offload_param", "/training/offload/parameters"},
    {"optimizer_offload", "/training/offload/optimizer"},
    {"overlap_comm", "/parallelism/data_parallel/overlap_backward"},
    {"overlap_grad_reduce", "/parallelism/data_parallel/overlap_backward"},
    {"per_device_train_batch_size", "/training/micro_batch"},
    {"pipeline_model_parallel_size", "/parallelism/pp"},
    {"pipeline_parallel_degree", "/parallelism/pp"},
    {"pipeline_parallel_microbatch_size", "/training/micro_batch"},
    {"pipeline_parallel_schedule", "/parallelism/pipeline/schedule"},
    {"pipeline_parallel_size", "/parallelism/pp"},
    {"pp_size", "/parallelism/pp"},
    {"prefetch_factor", "/training/input_pipeline/prefetch_batches"},
    {"recompute_activations", "/training/recompute"},
    {"recompute_granularity", "/training/recompute"},
    {"reduce_bucket_size", "/parallelism/data_parallel/bucket_size"},
    {"seq_len", "/training/sequence_length"},
    {"seq_length", "/training/sequence_length"},
    {"sequence", "/training/sequence_length"},
    {"servers", "/cluster/nodes"},
    {"tensor_model_parallel_size", "/parallelism/tp"},
    {"tensor_parallel_degree", "/parallelism/tp"},
    {"tensor_parallel_size", "/parallelism/tp"},
    {"tie_word_embeddings", "/model/tied_embeddings"},
    {"torch_dtype", "/training/precision/compute"},
    {"tp_size", "/parallelism/tp"},
    {"train_batch_size", "/training/global_batch"},
    {"train_micro_batch_size_per_gpu", "/training/micro_batch"},
    {"use_distributed_optimizer", "/parallelism/data_parallel/kind"},
    {"use_flash_attn", "/training/fused_attention"},
    {"virtual_pipeline_model_parallel_size", "/parallelism/pipeline/chunks_per_stage"},
    {"vocab_size", "/model/vocab"},
    {"vocabulary", "/model/vocab"},
    {"vocabulary_size", "/model/vocab"},
    {"world_size", "write /cluster/nodes, and /cluster/node/gpus of each"},
    {"zero", "/parallelism/data_parallel/kind"},
    {"zero_optimization", "/parallelism/data_parallel/kind"},
    {"zero_stage", "/parallelism/data_parallel/kind"},
});

// Values of choices.
constexpr auto kValues = std::to_array<Word>({
    {"1f1b_interleaved", "interleaved_1f1b"},
    {"adam_w", "adamw"},
    {"adamw_torch", "adamw"},
    {"adamw_torch_fused", "adamw"},
    {"bfloat16", "bf16"},
    {"cpuadam", "adam"},
    {"cpu_adam", "adam"},
    {"ddp", "allreduce"},
    {"deepspeed_zero2", "zero2"},
    {"deepspeed_zero3", "zero3"},
    {"diloco", "local_sgd"},
    {"distributed_data_parallel", "allreduce"},
    {"dist_optimizer", "distributed_optimizer"},
    {"e4m3", "fp8"},
    {"e5m2", "fp8"},
    {"float", "fp32"},
    {"float16", "fp16"},
    {"float32", "fp32"},
    {"float8", "fp8"},
    {"float8_e4m3fn", "fp8"},
    {"fp8_e4m3", "fp8"},
    {"fsdp1", "fsdp"},
    {"fsdp2", "fsdp"},
    {"full_shard", "fsdp"},
    {"fully_sharded_data_parallel", "fsdp"},
    {"fused_adam", "adam"},
    {"fusedadam", "adam"},
    {"gelu_new", "gelu"},
    {"gelu_pytorch_tanh", "gelu"},
    {"half", "fp16"},
    {"hybrid_shard", "hsdp"},
    {"interleaved", "interleaved_1f1b"},
    {"interleaved1f1b", "interleaved_1f1b"},
    {"layernorm", "layer_norm"},
    {"megatron_distributed_optimizer", "distributed_optimizer"},
    {"no_shard", "allreduce"},
    {"ps", "parameter_server"},
    {"rmsnorm", "rms_norm"},
    {"rotary", "rope"},
    {"silu", "swiglu"},
    {"single", "fp32"},
    {"stage1", "zero1"},
    {"stage2", "zero2"},
    {"stage3", "zero3"},
    {"tensorfloat32", "tf32"},
    {"torch_compile", "compiled"},
    {"unfused", "eager"},
    {"zbv", "zb_v"},
    {"zbvzerobubble", "zb_v"},
    {"zero_1", "zero1"},
    {"zero_2", "zero2"},
    {"zero_3", "zero3"},
    {"zero_bubble", "zb_h1"},
    {"zero_infinity", "zero3"},
    {"zero_offload", "zero2"},
});

// Line rates by the names of network cards.
constexpr auto kNetworks = std::to_array<Word>({{"sdr", "10Gbps"},
                                                {"qdr", "40Gbps"},
                                                {"fdr", "56Gbps"},
                                                {"edr", "100Gbps"},
                                                {"hdr100", "100Gbps"},
                                                {"hdr", "200Gbps"},
                                                {"ndr", "400Gbps"},
                                                {"xdr", "800Gbps"}});

template <class Table>
std::optional<std::string_view> find(const Table& table, std::string_view word) {
  const std::string theirs = plain_word(word);
  for (const Word& entry : table)
    if (entry.theirs == theirs) return entry.cure;
  return std::nullopt;
}

}  // namespace

std::string plain_word(std::string_view word) {
  std::string out;
  for (const char c : word)
    out += c >= 'A' && c <= 'Z'               ? static_cast<char>(c - 'A' + 'a')
           : c == '-' || c == '.' || c == ' ' ? '_'
                                              : c;
  constexpr std::string_view kTorch = "torch_";  // torch.bfloat16
  if (out.starts_with(kTorch) && out != "torch_dtype" && out != "torch_compile")
    out.erase(0, kTorch.size());
  return out;
}

std::optional<std::string_view> foreign_key(std::string_view word) {
  return find(kKeys, word);
}
std::optional<std::string_view> foreign_value(std::string_view word) {
  return find(kValues, word);
}
std::optional<std::string_view> line_rate(std::string_view word) {
  return find(kNetworks, word);
}

}  // namespace trainyard::scenario
