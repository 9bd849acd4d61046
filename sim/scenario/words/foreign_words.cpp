#include "sim/scenario/words/foreign_words.h"

#include <array>

namespace trainyard::scenario {

namespace {

struct Word {
  std::string_view theirs, cure;
};

// Sources: Megatron-LM, megatron/training/arguments.py; DeepSpeed, docs/_pages/config-json.md;
// torchtitan, torchtitan/config/job_config.py; transformers, TrainingArguments and the configs of
// its networks; vLLM's engine arguments; what docs/software.md says of others.
constexpr std::array<Word, 207> kKeys = {{
    {"activation_checkpoint", "/training/recompute"},
    {"activation_checkpoint_mode", "/training/recompute"},
    {"activation_checkpointing", "/training/recompute"},
    {"activation_checkpointing_mode", "/training/recompute"},
    {"activation_func_clamp_value", "/training/expert_clamps"},
    {"activation_recomputation", "/training/recompute"},
    {"adamweightdecayoptimizer", "\"adamw\" at /training/optimizer/type"},
    {"adaptivedataparallel", "\"adaptdl\" at /software"},
    {"allgather_bucket_size", "/parallelism/data_parallel/allgather_bucket_size"},
    {"apply_rotary_emb", "/training/rotary"},
    {"attention_heads", "/model/heads"},
    {"attn_implementation", "/training/fused_attention"},
    {"autocast", "\"fp32\" at /training/precision/parameters, and the products' type at compute"},
    {"balance", "/parallelism/pipeline/layer_split"},
    {"batch_size", "/training/micro_batch (of one GPU) or /training/global_batch (of all)"},
    {"bf16", "/training/precision/compute"},
    {"bf16_mixed", "\"bf16\" at /training/precision/compute and \"fp32\" at parameters"},
    {"bf16_optimizer", "\"converted\" at /training/gradient_accumulation"},
    {"bucket_cap_mb", "/parallelism/data_parallel/bucket_size with its unit, e.g. \"25MiB\""},
    {"checkpoint", "/training/recompute"},
    {"checkpoint_activations", "/training/recompute"},
    {"checkpointimpl_no_reentrant", "true at /training/recompute_stops_early"},
    {"columnparallellinear", "true at /parallelism/tensor_parallel/gather_per_projection"},
    {"compile", "/training/execution"},
    {"compile_enable", "\"compiled\" at /training/execution"},
    {"context_parallel_degree", "/parallelism/cp"},
    {"context_parallel_size", "/parallelism/cp"},
    {"cp_comm_type", "/parallelism/context_parallel/method"},
    {"cp_size", "/parallelism/cp"},
    {"cpu_offload", "/training/offload"},
    {"cross_entropy_fusion_impl", "\"in_place\" (te) or \"compiled\" at /training/loss"},
    {"cross_entropy_loss_fusion", "\"compiled\" at /training/loss"},
    {"d_ff", "/model/ffn_hidden"},
    {"d_model", "/model/hidden"},
    {"data_parallel_degree", "/parallelism/dp"},
    {"data_parallel_replicate_degree",
     "/parallelism/dp (replicate x shard degree) and shard_size (the shard degree) under "
     "/parallelism/data_parallel"},
    {"data_parallel_shard_degree",
     "/parallelism/dp (replicate x shard degree) and shard_size (the shard degree) under "
     "/parallelism/data_parallel"},
    {"data_parallel_size", "/parallelism/dp"},
    {"ddp_bucket_size",
     "/parallelism/data_parallel/bucket_size in bytes: 4 for each element, 2 of bf16 gradients"},
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
    {"flash_attn", "/training/fused_attention"},
    {"float8linear", "\"fp8\" at /training/precision/compute"},
    {"fp16", "/training/precision/compute"},
    {"fp8", "/training/precision/compute"},
    {"fp8_param_gather", "\"fp8\" at /training/precision/parameters"},
    {"fp8_recipe", "/training/precision/fp8_recipe"},
    {"fsdp", "/parallelism/data_parallel/kind"},
    {"fsdp_reshard_after_forward", "/parallelism/data_parallel/reshard_after_forward"},
    {"fuse_bn_act_ops", "\"fused\" at /training/batch_norm"},
    {"fuse_bn_add_act_ops", "\"fused\" at /training/batch_norm"},
    {"fuse_bn_add_relu", "\"fused\" at /training/batch_norm"},
    {"fuse_bn_relu", "\"fused\" at /training/batch_norm"},
    {"fuse_grad_size_in_mb",
     "/parallelism/data_parallel/bucket_size with its unit, e.g. \"16MiB\""},
    {"fusedlamb", "\"lamb\" at /training/optimizer/type"},
    {"gate_proj", "\"separate\" at /training/gate_projection"},
    {"global_batch_size", "/training/global_batch"},
    {"gpus_per_node", "/cluster/node/gpus"},
    {"gpus_per_server", "/cluster/node/gpus"},
    {"grad_reduce_in_bf16", "\"bf16\" at /training/precision/gradients"},
    {"gradient_accumulation_steps", "remove it: it is global_batch / (micro_batch x dp)"},
    {"gradient_checkpointing", "/training/recompute"},
    {"hidden_act", "/model/ffn"},
    {"hidden_dim", "/model/hidden"},
    {"hidden_dropout", "/model/dropout"},
    {"hidden_size", "/model/hidden"},
    {"horovod_cache_capacity", "/parallelism/data_parallel/response_cache"},
    {"horovod_cycle_time", "/parallelism/data_parallel/cycle_time"},
    {"horovod_fusion_threshold", "/parallelism/data_parallel/bucket_size"},
    {"intermediate_size", "/model/ffn_hidden"},
    {"jax_checkpoint", "/training/recompute, and true at /training/recompute_stops_early"},
    {"k_proj", "\"separate\" at /training/projections"},
    {"kv_channels", "/model/head_dim"},
    {"lamboptimizer", "\"lamb\" at /training/optimizer/type"},
    {"learning_rate", "remove it: it changes no step's time"},
    {"libnccl_net_so", "/cluster/node/nic/transport"},
    {"llamarmsnorm", "\"operators\" at /training/norm"},
    {"local_batch_size", "/training/micro_batch"},
    {"lora_alpha", "/training/finetune/alpha"},
    {"lora_dropout", "remove it: no time of a step depends on it"},
    {"lora_r", "/training/finetune/rank"},
    {"lora_rank", "/training/finetune/rank"},
    {"lora_target_modules", "/training/finetune/targets"},
    {"lr", "remove it: it changes no step's time"},
    {"max_position_embeddings", "/model/max_positions"},
    {"max_seq_len", "/training/sequence_length"},
    {"max_steps", "/training/samples, the steps times global_batch"},
    {"memory_format", "\"nhwc\" at /training/image_layout"},
    {"micro_batch_size", "/training/micro_batch"},
    {"microbatch_size", "/training/micro_batch"},
    {"mixed_precision", "/training/precision/compute"},
    {"mixed_precision_param", "/training/precision/compute"},
    {"mixed_precision_reduce", "/parallelism/data_parallel/reduce_dtype"},
    {"mixedprecision",
     "/training/precision/compute, and reduce_dtype under /parallelism/data_parallel"},
    {"moe_ffn_hidden_size", "/model/moe/expert_ffn_hidden"},
    {"moe_grouped_gemm", "/training/expert_products"},
    {"moe_intermediate_size", "/model/moe/expert_ffn_hidden"},
    {"moe_router_topk", "/model/moe/top_k"},
    {"n_embd", "/model/hidden"},
    {"n_head", "/model/heads"},
    {"n_heads", "/model/heads"},
    {"n_kv_heads", "/model/kv_heads"},
    {"n_layer", "/model/layers"},
    {"n_layers", "/model/layers"},
    {"n_positions", "/model/max_positions"},
    {"nccl_net", "/cluster/node/nic/transport"},
    {"newgeluactivation", "\"operators\" at /training/activation"},
    {"nn_dataparallel", "\"nn_data_parallel\" at /parallelism/data_parallel/kind"},
    {"nn_linear", "/training/bias"},
    {"nnodes", "/cluster/nodes"},
    {"no_gradient_accumulation_fusion", "\"kernel\" at /training/gradient_accumulation"},
    {"no_rope_fusion", "\"operators\" at /training/rotary"},
    {"nproc_per_node", "/cluster/node/gpus"},
    {"num_attention_heads", "/model/heads"},
    {"num_experts", "/model/moe/experts"},
    {"num_experts_per_tok", "/model/moe/top_k"},
    {"num_gpus", "/cluster/node/gpus"},
    {"num_heads", "/model/heads"},
    {"num_hidden_layers", "/model/layers"},
    {"num_key_value_heads", "/model/kv_heads"},
    {"num_layers", "/model/layers"},
    {"num_layers_per_virtual_pipeline_stage", "/parallelism/pipeline/chunks_per_stage"},
    {"num_local_experts", "/model/moe/experts"},
    {"num_nodes", "/cluster/nodes"},
    {"num_query_groups", "/model/kv_heads"},
    {"num_servers", "/cluster/nodes"},
    {"num_stages", "/parallelism/pp"},
    {"num_train_epochs", "/training/epochs"},
    {"num_workers", "/training/input_pipeline/workers"},
    {"offload_optimizer", "/training/offload/optimizer"},
    {"offload_param", "/training/offload/parameters"},
    {"optim_sgd", "\"sgd\" at /training/optimizer/type, with accesses and launches"},
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
    {"q_proj", "\"separate\" at /training/projections"},
    {"recipe_name", "/training/precision/fp8_recipe"},
    {"recompute_activations", "/training/recompute"},
    {"recompute_granularity", "/training/recompute"},
    {"recompute_method", "/training/recompute"},
    {"recompute_num_layers", "/training/recompute"},
    {"reduce_bucket_size", "/parallelism/data_parallel/bucket_size"},
    {"repeat_kv", "\"repeated\" at /training/key_value_heads"},
    {"scaled_dot_product_attention", "true at /training/fused_attention"},
    {"scatter_gather_tensors_in_pipeline", "/parallelism/pipeline/scatter_gather"},
    {"seq_len", "/training/sequence_length"},
    {"seq_length", "/training/sequence_length"},
    {"sequence", "/training/sequence_length"},
    {"servers", "/cluster/nodes"},
    {"sharded_cross_entropy", "\"parallel\" at /training/loss"},
    {"sharding_strategy", "/parallelism/data_parallel/kind"},
    {"sp", "/parallelism/sequence_parallel"},
    {"stages", "/parallelism/pp"},
    {"steps", "/training/samples, the steps times global_batch"},
    {"store_param_remainders", "\"remainder\" at /training/precision/master_weights"},
    {"target_modules", "/training/finetune/targets"},
    {"tensor_model_parallel_size", "/parallelism/tp"},
    {"tensor_parallel_degree", "/parallelism/tp"},
    {"tensor_parallel_size", "/parallelism/tp"},
    {"tie_word_embeddings", "/model/tied_embeddings"},
    {"torch_dtype", "/training/precision/compute"},
    {"tp_comm_overlap", "\"chunked\" at /parallelism/tensor_parallel/overlap"},
    {"tp_size", "/parallelism/tp"},
    {"train_batch_size", "/training/global_batch"},
    {"train_iters", "/training/samples, the steps times global_batch"},
    {"train_micro_batch_size_per_gpu", "/training/micro_batch"},
    {"training_steps", "/training/samples, the steps times global_batch"},
    {"up_proj", "\"separate\" at /training/gate_projection"},
    {"use_distributed_optimizer", "/parallelism/data_parallel/kind"},
    {"use_flash_attn", "/training/fused_attention"},
    {"use_reentrant", "true at /training/recompute_stops_early, where it is false"},
    {"use_xla", "\"kernel\" at /training/norm, activation and dropout, \"product\" at bias"},
    {"v_proj", "\"separate\" at /training/projections"},
    {"variable_update", "/parallelism/data_parallel/kind"},
    {"virtual_pipeline_model_parallel_size", "/parallelism/pipeline/chunks_per_stage"},
    {"vocab_size", "/model/vocab"},
    {"vocabulary", "/model/vocab"},
    {"vocabulary_size", "/model/vocab"},
    {"vp", "/parallelism/pipeline/chunks_per_stage"},
    {"vpp", "/parallelism/pipeline/chunks_per_stage"},
    {"w1", "\"separate\" at /training/gate_projection"},
    {"w3", "\"separate\" at /training/gate_projection"},
    {"wk", "\"separate\" at /training/projections"},
    {"world_size", "write /cluster/nodes, and /cluster/node/gpus of each"},
    {"wq", "\"separate\" at /training/projections"},
    {"wv", "\"separate\" at /training/projections"},
    {"zero", "/parallelism/data_parallel/kind"},
    {"zero_optimization", "/parallelism/data_parallel/kind"},
    {"zero_optimization_stage", "/parallelism/data_parallel/kind"},
    {"zero_stage", "/parallelism/data_parallel/kind"},
}};

// Values of choices.
constexpr std::array<Word, 68> kValues = {{
    {"1f1b_interleaved", "interleaved_1f1b"},
    {"adam_w", "adamw"},
    {"adamw_torch", "adamw"},
    {"adamw_torch_fused", "adamw"},
    {"always", "\"all\" at /training/recompute_micro_batches"},
    {"bfloat16", "bf16"},
    {"cpu_adam", "adam"},
    {"cpuadam", "adam"},
    {"ddp", "allreduce"},
    {"deepspeed_zero2", "zero2"},
    {"deepspeed_zero3", "zero3"},
    {"diloco", "local_sgd"},
    {"dist_optimizer", "distributed_optimizer"},
    {"distributed_data_parallel", "allreduce"},
    {"distributed_replicated", "parameter_server"},
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
    {"fullyshardeddataparallel", "fsdp"},
    {"fused_adam", "adam"},
    {"fused_lamb", "lamb"},
    {"fusedadam", "adam"},
    {"fusedlamb", "lamb"},
    {"gelu_new", "gelu"},
    {"gelu_pytorch_tanh", "gelu"},
    {"half", "fp16"},
    {"horovod", "allreduce"},
    {"hybrid_shard", "hsdp"},
    {"interleaved", "interleaved_1f1b"},
    {"interleaved1f1b", "interleaved_1f1b"},
    {"layernorm", "layer_norm"},
    {"megatron_distributed_optimizer", "distributed_optimizer"},
    {"no_shard", "allreduce"},
    {"ps", "parameter_server"},
    {"replicated", "allreduce"},
    {"rmsnorm", "rms_norm"},
    {"rotary", "rope"},
    {"shard_grad_op", "\"fsdp\", and false at reshard_after_forward"},
    {"shardingstrategy_full_shard", "fsdp"},
    {"shardingstrategy_hybrid_shard", "hsdp"},
    {"shardingstrategy_no_shard", "allreduce"},
    {"shardingstrategy_shard_grad_op", "\"fsdp\", and false at reshard_after_forward"},
    {"silu", "swiglu"},
    {"single", "fp32"},
    {"stage1", "zero1"},
    {"stage2", "zero2"},
    {"stage3", "zero3"},
    {"tensorfloat32", "tf32"},
    {"tensorwise", "current"},
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
}};

// Degrees by the names of sections.
constexpr std::array<Word, 6> kDegrees = {{{"context_parallel", "/parallelism/cp"},
                                           {"data_parallel", "/parallelism/dp"},
                                           {"expert_parallel", "/parallelism/ep"},
                                           {"pipeline", "/parallelism/pp"},
                                           {"pipeline_parallel", "/parallelism/pp"},
                                           {"tensor_parallel", "/parallelism/tp"}}};

// Line rates by the names of network cards.
constexpr std::array<Word, 8> kNetworks = {{{"sdr", "10Gbps"},
                                            {"qdr", "40Gbps"},
                                            {"fdr", "56Gbps"},
                                            {"edr", "100Gbps"},
                                            {"hdr100", "100Gbps"},
                                            {"hdr", "200Gbps"},
                                            {"ndr", "400Gbps"},
                                            {"xdr", "800Gbps"}}};

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
std::optional<std::string_view> foreign_degree(std::string_view word) {
  return find(kDegrees, word);
}
std::optional<std::string_view> foreign_value(std::string_view word) {
  return find(kValues, word);
}
std::vector<std::string_view> foreign_key_cures() {
  std::vector<std::string_view> cures;
  for (const Word& word : kKeys)
    cures.push_back(word.cure);
  return cures;
}
std::optional<std::string_view> line_rate(std::string_view word) {
  return find(kNetworks, word);
}

}  // namespace trainyard::scenario
