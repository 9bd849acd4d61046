// Networks and sums that the tests of models share.
#pragma once

#include <string>
#include <vector>

#include "models/network.h"

namespace trainyard {

// A GPT as Megatron-LM trains it: learned positions, biases, dropout, tied embeddings.
inline Transformer gpt(std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                       std::int64_t vocabulary) {
  Transformer network;
  network.layers = layers;
  network.hidden = hidden;
  network.heads = network.kv_heads = heads;
  network.head_size = hidden / heads;
  network.ffn_hidden = 4 * hidden;
  network.vocabulary = vocabulary;
  return network;
}

inline Transformer llama(std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                         std::int64_t kv_heads, std::int64_t ffn_hidden, std::int64_t vocabulary) {
  Transformer network = gpt(layers, hidden, heads, vocabulary);
  network.kv_heads = kv_heads;
  network.ffn_hidden = ffn_hidden;
  network.feed_forward = FeedForward::swiglu;
  network.positional = Positional::rope;
  network.norm = Norm::rms_norm;
  network.biases = network.dropout = network.tied_embeddings = false;
  return network;
}

inline Execution execution(std::int64_t micro_batch, std::int64_t sequence_length, int tensor = 1,
                           bool sequence_parallel = false, Recompute recompute = Recompute::none) {
  Execution how;
  how.micro_batch = micro_batch;
  how.sequence_length = sequence_length;
  how.tensor = tensor;
  how.sequence_parallel = sequence_parallel;
  how.recompute = recompute;
  how.compute = Dtype::fp16;
  return how;
}

inline const LayerWork& layer(const NetworkWork& work) {
  return work.kinds[1];
}

inline Flops sum_of_flops(const std::vector<WorkItem>& items) {
  Flops sum;
  for (const WorkItem& item : items) {
    if (const auto* kernel = std::get_if<NamedKernel>(&item)) sum = sum + flops(kernel->kernel);
  }
  return sum;
}

// The collectives in the order in which they start.
inline std::vector<GroupCollective> collectives(const std::vector<WorkItem>& items) {
  std::vector<GroupCollective> found;
  for (const WorkItem& item : items) {
    if (const auto* start = std::get_if<GroupCollective>(&item)) found.push_back(*start);
  }
  return found;
}

// Bytes that memory-bound kernels of one kind move.
inline std::int64_t bytes_of(const std::vector<WorkItem>& items, MemoryOp op) {
  std::int64_t sum = 0;
  for (const WorkItem& item : items) {
    const auto* kernel = std::get_if<NamedKernel>(&item);
    const auto* memory = kernel ? std::get_if<MemoryBound>(&kernel->kernel) : nullptr;
    if (memory && memory->op == op) sum += memory_traffic(*memory).count();
  }
  return sum;
}

// One line per item: the kernel's name, "start <name>" or "wait".
inline std::vector<std::string> script(const std::vector<WorkItem>& items) {
  std::vector<std::string> lines;
  for (const WorkItem& item : items) {
    if (const auto* kernel = std::get_if<NamedKernel>(&item)) {
      lines.push_back(kernel->name);
    } else if (const auto* start = std::get_if<GroupCollective>(&item)) {
      lines.push_back("start " + start->name);
    } else {
      lines.emplace_back("wait");
    }
  }
  return lines;
}

}  // namespace trainyard
