// Fused attention of one rank. c ranks of a context-parallel group hold s/c tokens of each sequence
// each; rank i holds chunks i and 2c-1-i of 2c, so that all do the same part of a causal triangle.
//
//   ring        step 0 is causal on the rank's own tokens, each further one sees half of a foreign
//               part: s^2/2 / c of the scores in all. Forward, keys and values make c-1 hops;
//               backward, they make them again and their gradients make c, home included.
//   all-gather  all keys and values before attention; their gradients are reduce-scattered.
//   ulysses     all-to-all to 1/c of the heads and all tokens, and back; gradients the same way.
//
//   Volumes per rank, K = bytes of one rank's keys and values: ring (c-1) K forward and (2c-1) K
//   backward; all-gather (c-1) K forward and 2 (c-1) K backward; ulysses (c-1)/c of the fused
//   query, key and value once and of the output once, each way. Domain: c-1 hops hide behind c
//   steps of attention only if a step is longer than a hop; the simulation decides. Source: see
//   ContextMethod.
#include "models/transformer/attention/attention_script.h"

#include <algorithm>

#include "sim/base/divide.h"

namespace trainyard::models {
Attention whole_attention(const TransformerSlice& s, bool backward) {
  return {.batch = s.micro_batch,
          .heads = s.heads,
          .kv_heads = s.attended_heads(),
          .query_length = s.sequence_length,
          .key_length = s.sequence_length,
          .head_size = s.head_size,
          .causal = s.causal,
          .backward = backward,
          .dtype = s.stored,
          .window = s.window,
          .chunked = s.chunked,
          .kernel = s.kernels.attention,
          .dropout = s.score_dropout};
}

namespace {

std::int64_t local_length(const TransformerSlice& s) {
  return s.sequence_length / s.context;
}

Bytes query_bytes(const TransformerSlice& s) {
  return s.tokens * s.attention_width * s.element();
}

// Keys and values of the rank's own tokens.
Bytes key_value_bytes(const TransformerSlice& s) {
  return 2 * s.tokens * s.attended_heads() * s.head_size * s.element();
}

void shift(WorkList& list, const TransformerSlice& s, std::string name, Bytes own) {
  list.start(std::move(name), CollectiveKind::shift, s.context * own, LayerGroup::context);
}

// Step 0 sees the rank's own keys, any other one half of a foreign part: both of its query chunks
// against the earlier key chunk, or its later query chunk against both. Without a causal mask it
// sees the whole part.
Attention ring_step(const TransformerSlice& s, int step, bool backward) {
  Attention attention = whole_attention(s, backward);
  attention.query_length = local_length(s);
  if (s.chunked && s.window > 0) {  // documents, each in parts of all ranks
    const std::int64_t own = std::max<std::int64_t>(1, s.window / s.context);
    attention.causal = step == 0;
    attention.key_length = step == 0 ? local_length(s) : divide_up(own, 2);
    attention.window = step == 0 ? own : 0;
    attention.chunked = step == 0;
    return attention;
  }
  attention.key_length = step == 0 || !s.causal ? local_length(s) : local_length(s) / 2;
  attention.causal = s.causal && step == 0;
  return attention;
}

void ring_forward(WorkList& list, const TransformerSlice& s) {
  const Bytes output = query_bytes(s);
  for (int step = 0; step < s.context; ++step) {
    if (step + 1 < s.context) shift(list, s, "keys and values to the next", key_value_bytes(s));
    list.kernel("attention", ring_step(s, step, false));
    // Rescales the sum so far and adds the step's part.
    if (step > 0)
      list.kernel("attention merge", MemoryBound{MemoryOp::elementwise, 2 * output, output});
    if (step + 1 < s.context) list.wait(LayerGroup::context);
  }
}

void ring_backward(WorkList& list, const TransformerSlice& s) {
  const Bytes own = key_value_bytes(s);
  for (int step = 0; step < s.context; ++step) {
    if (step + 1 < s.context) shift(list, s, "keys and values to the next", own);
    list.kernel("attention backward", ring_step(s, step, true));
    list.wait(LayerGroup::context);
    const Bytes sums = query_bytes(s) + own;
    if (step > 0)
      list.kernel("attention gradient merge", MemoryBound{MemoryOp::elementwise, 2 * sums, sums});
    // The gradient of the part at hand follows it under the next step, and after the last goes
    // home.
    shift(list, s, "key and value gradients to the next", own);
  }
  list.wait(LayerGroup::context);
}

void gathered(WorkList& list, const TransformerSlice& s, bool backward) {
  const Bytes all = s.context * key_value_bytes(s);
  list.start("keys and values all-gather", CollectiveKind::all_gather, all, LayerGroup::context);
  list.wait(LayerGroup::context);
  Attention attention = whole_attention(s, backward);
  attention.query_length = local_length(s);
  list.kernel(backward ? "attention backward" : "attention", attention);
  if (!backward) return;
  list.start("key and value gradients reduce-scatter", CollectiveKind::reduce_scatter, all,
             LayerGroup::context);
  list.wait(LayerGroup::context);
}

void exchanged(WorkList& list, const TransformerSlice& s, bool backward) {
  const Bytes inputs = s.tokens * s.attended_width() * s.element();
  const auto exchange = [&](std::string name, Bytes bytes) {
    list.start(std::move(name), CollectiveKind::all_to_all, bytes, LayerGroup::context);
    list.wait(LayerGroup::context);
  };
  Attention attention = whole_attention(s, backward);
  attention.heads = s.heads / s.context;
  attention.kv_heads = s.attended_heads() / s.context;
  if (backward)
    exchange("output gradient all-to-all", query_bytes(s));
  else
    exchange("query, key and value all-to-all", inputs);
  list.kernel(backward ? "attention backward" : "attention", attention);
  if (backward)
    exchange("query, key and value gradient all-to-all", inputs);
  else
    exchange("attention output all-to-all", query_bytes(s));
}

void divided(WorkList& list, const TransformerSlice& s, bool backward) {
  switch (s.context_parallel.method) {
    case ContextMethod::ring: backward ? ring_backward(list, s) : ring_forward(list, s); break;
    case ContextMethod::all_gather: gathered(list, s, backward); break;
    case ContextMethod::ulysses: exchanged(list, s, backward); break;
  }
}

}  // namespace

void fused_attention_forward(WorkList& list, const TransformerSlice& s) {
  if (s.context > 1)
    divided(list, s, false);
  else
    list.kernel("attention", whole_attention(s, false));
}

void fused_attention_backward(WorkList& list, const TransformerSlice& s) {
  if (s.context > 1)
    divided(list, s, true);
  else
    list.kernel("attention backward", whole_attention(s, true));
}

}  // namespace trainyard::models
