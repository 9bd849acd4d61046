#include "cudnn_attention.h"

#ifdef TRAINYARD_PROBE_CUDNN
#include <cmath>
#include <limits>

#include "backend_graph.h"
#include "device.h"

// The graphs are those that cuDNN's manual gives for fused attention (Graph API, fused flash
// attention forward and backward): the library recognises the pattern and runs one kernel
// (backward: a few). K, and backward V, are given as their transposes, which costs nothing: only
// strides are exchanged.
namespace trainyard::probe {
namespace {

struct Problem {
  explicit Problem(const AttentionProblem& p)
      : queries{p.batch, p.heads, p.length, p.head_size},
        keys{p.batch, p.kv_heads, p.length, p.head_size},
        all_keys{p.batch, p.heads, p.length, p.head_size},
        scores{p.batch, p.heads, p.length, p.length},
        rows{p.batch, p.heads, p.length, 1},
        scale(1 / std::sqrt(static_cast<float>(p.head_size))),
        causal(p.causal),
        grouped(p.heads != p.kv_heads) {}
  Extents queries, keys, all_keys, scores, rows;
  float scale;
  bool causal, grouped;
};

Tensor scaled_scores(BackendGraph& g, const Problem& p, const Tensor& q,
                     const Tensor& k_transposed) {
  const Tensor products = g.inner(CUDNN_DATA_FLOAT, p.scores);
  const Tensor scaled = g.inner(CUDNN_DATA_FLOAT, p.scores);
  const Tensor scale = g.scalar(p.scale);
  g.multiply(q, k_transposed, products);
  g.pointwise(CUDNN_POINTWISE_MUL, products, &scale, nullptr, scaled);
  return scaled;
}

// If causal, a query sees keys up to its own index.
Tensor masked_scores(BackendGraph& g, const Problem& p, const Tensor& scores) {
  if (!p.causal) return scores;
  const Tensor row = g.inner(CUDNN_DATA_INT32, p.scores);
  const Tensor column = g.inner(CUDNN_DATA_INT32, p.scores);
  const Tensor seen = g.inner(CUDNN_DATA_BOOLEAN, p.scores);
  const Tensor masked = g.inner(CUDNN_DATA_FLOAT, p.scores);
  const Tensor lowest = g.scalar(std::numeric_limits<float>::lowest());
  g.index(scores, 2, row);
  g.index(scores, 3, column);
  g.pointwise(CUDNN_POINTWISE_CMP_GE, row, &column, nullptr, seen, CUDNN_DATA_BOOLEAN);
  g.pointwise(CUDNN_POINTWISE_BINARY_SELECT, scores, &lowest, &seen, masked);
  return masked;
}

struct Ids {
  std::int64_t q = 0, k = 0, v = 0, o = 0, lse = 0, d_o = 0, dq = 0, dk = 0, dv = 0;
  std::int64_t delta = 0, dq_sum = 0;
};

void build_forward(BackendGraph& g, const Problem& p, cudnnDataType_t type, Ids& ids) {
  const Tensor q = g.memory(type, p.queries, packed_strides(p.queries));
  const Tensor k = g.memory(type, swap_last(p.keys), swap_last(packed_strides(p.keys)));
  const Tensor v = g.memory(type, p.keys, packed_strides(p.keys));
  const Tensor o = g.memory(type, p.queries, packed_strides(p.queries));
  const Tensor lse = g.memory(CUDNN_DATA_FLOAT, p.rows, packed_strides(p.rows));
  const Tensor scores = masked_scores(g, p, scaled_scores(g, p, q, k));
  const Tensor maximum = g.inner(CUDNN_DATA_FLOAT, p.rows);
  const Tensor below = g.inner(CUDNN_DATA_FLOAT, p.scores);
  const Tensor exponentials = g.inner(CUDNN_DATA_FLOAT, p.scores);
  const Tensor sum = g.inner(CUDNN_DATA_FLOAT, p.rows);
  const Tensor log_sum = g.inner(CUDNN_DATA_FLOAT, p.rows);
  const Tensor probabilities = g.inner(type, p.scores);
  g.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, maximum);
  g.pointwise(CUDNN_POINTWISE_SUB, scores, &maximum, nullptr, below);
  g.pointwise(CUDNN_POINTWISE_EXP, below, nullptr, nullptr, exponentials);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, exponentials, sum);
  g.pointwise(CUDNN_POINTWISE_LOG, sum, nullptr, nullptr, log_sum);
  g.pointwise(CUDNN_POINTWISE_ADD, maximum, &log_sum, nullptr, lse);
  g.pointwise(CUDNN_POINTWISE_DIV, exponentials, &sum, nullptr, probabilities);
  g.multiply(probabilities, v, o);
  ids.q = q.id, ids.k = k.id, ids.v = v.id, ids.o = o.id, ids.lse = lse.id;
}

// gradient = transpose(factor) rows, summed over the heads of a group.
void add_key_gradient(BackendGraph& g, const Problem& p, cudnnDataType_t type, const Tensor& factor,
                      const Tensor& rows, const Tensor& gradient) {
  const Tensor transposed = g.inner(type, swap_last(p.scores), swap_last(packed_strides(p.scores)));
  g.reshape(factor, transposed);
  if (!p.grouped) {
    g.multiply(transposed, rows, gradient);
    return;
  }
  const Tensor of_each_head = g.inner(type, p.all_keys);
  g.multiply(transposed, rows, of_each_head);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, of_each_head, gradient);
}

void build_backward(BackendGraph& g, const Problem& p, cudnnDataType_t type, bool sum_in_memory,
                    Ids& ids) {
  const Extents query_strides = packed_strides(p.queries), key_strides = packed_strides(p.keys);
  const Tensor q = g.memory(type, p.queries, query_strides);
  const Tensor k = g.memory(type, swap_last(p.keys), swap_last(key_strides));
  const Tensor v = g.memory(type, swap_last(p.keys), swap_last(key_strides));
  const Tensor o = g.memory(type, p.queries, query_strides);
  const Tensor d_o = g.memory(type, p.queries, query_strides);
  const Tensor lse = g.memory(CUDNN_DATA_FLOAT, p.rows, packed_strides(p.rows));
  const Tensor dq = g.memory(type, p.queries, query_strides);
  const Tensor dk = g.memory(type, p.keys, key_strides);
  const Tensor dv = g.memory(type, p.keys, key_strides);
  const auto scores = [&] { return g.inner(CUDNN_DATA_FLOAT, p.scores); };
  const Tensor one = g.scalar(1);
  const Tensor scale = g.scalar(p.scale);

  // delta = sum(dO O), in memory because one kernel leaves it there for another. The product by one
  // stands where dropout would: the pattern wants it.
  const Tensor product = g.inner(CUDNN_DATA_FLOAT, p.queries);
  const Tensor sum = g.inner(CUDNN_DATA_FLOAT, p.rows);
  const Tensor delta = g.memory(CUDNN_DATA_FLOAT, p.rows, packed_strides(p.rows));
  g.pointwise(CUDNN_POINTWISE_MUL, d_o, &o, nullptr, product);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, product, sum);
  g.pointwise(CUDNN_POINTWISE_MUL, sum, &one, nullptr, delta);

  const Tensor below = scores(), probabilities = scores();
  g.pointwise(CUDNN_POINTWISE_SUB, scaled_scores(g, p, q, k), &lse, nullptr, below);
  g.pointwise(CUDNN_POINTWISE_EXP, masked_scores(g, p, below), nullptr, nullptr, probabilities);
  add_key_gradient(g, p, type, probabilities, d_o, dv);

  const Tensor dp = scores(), centred = scores(), weighted = scores(), ds = scores();
  g.multiply(d_o, v, dp);
  g.pointwise(CUDNN_POINTWISE_SUB, dp, &delta, nullptr, centred);
  g.pointwise(CUDNN_POINTWISE_MUL, centred, &probabilities, nullptr, weighted);
  g.pointwise(CUDNN_POINTWISE_MUL, weighted, &scale, nullptr, ds);
  add_key_gradient(g, p, type, ds, q, dk);

  const Tensor k_rows = g.inner(type, p.keys, key_strides);
  g.reshape(k, k_rows);
  if (sum_in_memory) {
    const Tensor dq_sum = g.memory(CUDNN_DATA_FLOAT, p.queries, query_strides);
    g.multiply(ds, k_rows, dq_sum);
    g.pointwise(CUDNN_POINTWISE_IDENTITY, dq_sum, nullptr, nullptr, dq);
    ids.dq_sum = dq_sum.id;
  } else {
    g.multiply(ds, k_rows, dq);
  }
  ids.q = q.id, ids.k = k.id, ids.v = v.id, ids.o = o.id, ids.lse = lse.id, ids.d_o = d_o.id;
  ids.dq = dq.id, ids.dk = dk.id, ids.dv = dv.id, ids.delta = delta.id;
}

// Made once, because it takes a while. Not destroyed: at the end of the program the CUDA context
// may be gone before it.
cudnnHandle_t handle() {
  static const cudnnHandle_t made = [] {
    cudnnHandle_t handle = nullptr;
    check_cudnn(cudnnCreate(&handle), "cudnnCreate");
    return handle;
  }();
  return made;
}

std::size_t aligned(std::size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

class Plan final : public CudnnAttention {
 public:
  Plan(const AttentionProblem& problem, cudnnDataType_t type, bool backward, bool sum_in_memory,
       cudaStream_t stream)
      : stream_(stream), backward_(backward) {
    const Problem p(problem);
    if (backward) {
      build_backward(graph_, p, type, sum_in_memory, ids_);
    } else {
      build_forward(graph_, p, type, ids_);
    }
    check_cudnn(cudnnSetStream(handle(), stream), "cudnnSetStream");
    graph_.plan(handle());
    const std::size_t elements = problem.query_elements();
    if (sum_in_memory) sum_bytes_ = aligned(elements * sizeof(float));
    const auto size = static_cast<std::size_t>(problem.head_size);
    if (backward) delta_bytes_ = aligned(elements / size * sizeof(float));
  }

  // The sums of dQ first, then delta, then what the engine wants.
  std::size_t workspace_bytes() const override {
    return sum_bytes_ + delta_bytes_ + graph_.workspace_bytes();
  }

  void enqueue(const AttentionTensors& t, void* workspace) const override {
    std::vector<BackendGraph::Address> addresses = {
        {ids_.q, t.q}, {ids_.k, t.k}, {ids_.v, t.v}, {ids_.o, t.o}, {ids_.lse, t.lse}};
    auto* const own = static_cast<std::byte*>(workspace);
    if (backward_) {
      addresses.insert(addresses.end(), {{ids_.d_o, t.d_o},
                                         {ids_.dq, t.dq},
                                         {ids_.dk, t.dk},
                                         {ids_.dv, t.dv},
                                         {ids_.delta, own + sum_bytes_}});
    }
    if (sum_bytes_ > 0) {
      addresses.push_back({ids_.dq_sum, own});
      // From 9.6 on the engine clears the sums itself, as cuDNN's own frontend has it.
      if (cudnnGetVersion() < 90600) PROBE_CUDA(cudaMemsetAsync(own, 0, sum_bytes_, stream_));
    }
    graph_.run(handle(), addresses, own + sum_bytes_ + delta_bytes_);
  }

 private:
  cudaStream_t stream_;
  bool backward_;
  BackendGraph graph_;
  Ids ids_;
  std::size_t sum_bytes_ = 0, delta_bytes_ = 0;
};

}  // namespace

std::string cudnn_attention_absent() {
  try {
    handle();
    return "";
  } catch (const CudnnError& error) {
    return error.what();
  }
}

std::unique_ptr<CudnnAttention> cudnn_attention(const AttentionProblem& problem, Type type,
                                                bool backward, cudaStream_t stream,
                                                std::string& refused) {
  const cudnnDataType_t data = type == Type::fp16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16;
  // Backward engines differ in where they add up dQ; with the sums in memory they need no workspace
  // that grows with the square of the length, so that is asked for first.
  for (const bool sum_in_memory : {true, false}) {
    if (!backward && sum_in_memory) continue;
    try {
      return std::make_unique<Plan>(problem, data, backward, sum_in_memory, stream);
    } catch (const CudnnError& error) {
      refused = error.what();
      cudaGetLastError();  // what an engine that failed left behind is not the next launch's
    }
  }
  return nullptr;
}

}  // namespace trainyard::probe

#else

namespace trainyard::probe {

std::string cudnn_attention_absent() {
  return "the program was built without it";
}

std::unique_ptr<CudnnAttention> cudnn_attention(const AttentionProblem&, Type, bool, cudaStream_t,
                                                std::string& refused) {
  refused = cudnn_attention_absent();
  return nullptr;
}

}  // namespace trainyard::probe

#endif
