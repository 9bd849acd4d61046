// Mamba-2: a projection to a gate z, x, B, C and a step of each head; a causal convolution of x, B
// and C with SiLU; the scan; a gated norm; a projection back. Convolution, scan and norm are one
// function of the framework, which keeps what it reads and what the scan makes, and runs the rest
// again in its backward pass.
//
// m tokens, H heads of P numbers, I = H P, G groups with B and C of N numbers, chunks of c tokens,
// d bytes of an element. In a chunk tokens meet in products, chunks hand on states of P x N numbers
// a head:
//
//   forward                    product, of each chunk         bytes besides
//     convolution                                             2 m (I + 2 G N) d
//     decays                                                  m H (d + 8)
//     states of chunks         x^T B         P x N x c   a head, fp32
//     states handed on                                        S (4 + d),  S = m / c H P N
//     scores                   C B^T         c x c x N   a group, fp32
//     outputs                  [C scores] [state x]
//                                            c x P x (N + k)   a head
//     gated norm                                              3 m I d
//   backward: convolution, decays, states and scores again, and
//     gated norm                                              5 m I d
//     gradients of states      dy^T C        P x N x c   a head
//     handed back                                             4 S d
//     of x                     [B scores] [dstate dy]
//                                            c x P x (N + k)   a head
//     of B, of C               x dstate, dy state
//                                            c x N x P, summed over a group's heads
//     of scores                dy x^T        c x k x P, summed over a group's heads
//     of B, of C by scores     dscores C, dscores^T B
//                                            c x N x c   a group
//     of decays                dy x^T        c x k x P   a head; six kernels of m H fp32 numbers
//     convolution                                             3 m (I + 2 G N) d
//
// k = (c + 64) / 2: of the scores the half before each token, in blocks of 64. Heads of a group
// share B and C, whose products are those of a group: as many columns as its heads have. Results in
// fp32 are taken to be written in d bytes where products write them, and in 4 where they are read.
//
// With context parallelism a rank has the whole sequence and 1/cp of the heads between two
// all-to-alls. Source: Dao and Gu 2024, sections 6 and 7; state-spaces/mamba,
// ops/triton/ssd_combined.py (MambaSplitConv1dScanCombinedFn); Megatron-Core, ssm/mamba_mixer.py
// and ssm/mamba_context_parallel.py.
#include "models/transformer/mamba/mamba_script.h"

#include <algorithm>
#include <string>
#include <utility>

#include "sim/base/divide.h"

namespace trainyard::models {
namespace {

constexpr Bytes kSingle(4);

class Scan {
 public:
  Scan(WorkList& list, const TransformerSlice& slice)
      : list_(list),
        s_(slice),
        n_(slice.mamba),
        tokens_(slice.micro_batch * slice.sequence_length),
        chunk_(std::min(n_.chunk, slice.sequence_length)),
        chunks_(slice.micro_batch * divide_up(slice.sequence_length, chunk_)) {
    n_.heads /= slice.context;
    n_.groups /= slice.context;
  }

  void forward();
  void backward();
  // The convolution's output and its gradient, those of states, scores and of their parts.
  Bytes transient() const {
    return 2 * convolved() + 3 * states() * s_.element() + 2 * scores() + inner() + 3 * decays();
  }

 private:
  Bytes of(std::int64_t width) const { return tokens_ * width * s_.element(); }
  Bytes inner() const { return of(n_.inner()); }
  Bytes convolved() const { return of(n_.convolved()); }
  Bytes decays() const { return tokens_ * n_.heads * kSingle; }
  std::int64_t states() const { return chunks_ * n_.inner() * n_.state_size; }
  Bytes scores() const { return chunks_ * n_.groups * chunk_ * chunk_ * kSingle; }
  // Columns of a group's heads, and scores that tokens have on average.
  std::int64_t group_width() const { return n_.inner() / n_.groups; }
  std::int64_t seen() const { return std::min(chunk_, (chunk_ + kBlock) / 2); }

  void pass(const char* name, Bytes read, Bytes written, bool is_norm = false) {
    const MemoryOp op = is_norm ? MemoryOp::rms_norm : MemoryOp::elementwise;
    list_.kernel(name, MemoryBound{op, read, written});
  }
  void of_groups(const char* name, std::int64_t rows, std::int64_t columns, std::int64_t depth) {
    list_.kernel(name, Gemm{rows, columns, depth, chunks_ * n_.groups, s_.stored});
  }
  void of_heads(const char* name, std::int64_t rows, std::int64_t columns, std::int64_t depth) {
    list_.kernel(name, Gemm{rows, columns, depth, chunks_ * n_.heads, s_.stored});
  }
  void exchange(const char* name, std::int64_t width);
  void until_scores(bool again);

  static constexpr std::int64_t kBlock = 64;
  WorkList& list_;
  const TransformerSlice& s_;
  Mamba n_;  // of this rank between the exchanges
  std::int64_t tokens_, chunk_, chunks_;
};

void Scan::exchange(const char* name, std::int64_t width) {
  if (s_.context == 1) return;
  list_.start(name, CollectiveKind::all_to_all, s_.tokens * width * s_.element(),
              LayerGroup::context);
  list_.wait(LayerGroup::context);
}

void Scan::until_scores(bool again) {
  const auto name = [&](const char* first, const char* second) { return again ? second : first; };
  pass(name("causal convolution", "causal convolution again"), convolved(), convolved());
  pass(name("decays", "decays again"), of(n_.heads), 2 * decays());
  of_groups(name("states of chunks", "states of chunks again"), group_width(), n_.state_size,
            chunk_);
  pass(name("states handed on", "states handed on again"), states() * kSingle,
       states() * s_.element());
  of_groups(name("scores of chunks", "scores of chunks again"), chunk_, chunk_, n_.state_size);
}

void Scan::forward() {
  exchange("mamba input all-to-all", s_.mamba.projected());
  until_scores(false);
  of_heads("outputs of chunks", chunk_, n_.head_size, n_.state_size + seen());
  pass("gated norm", 2 * inner(), inner(), true);
  exchange("mamba output all-to-all", s_.mamba.inner());
}

void Scan::backward() {
  exchange("mamba output gradient all-to-all", s_.mamba.inner());
  pass("gated norm backward", 3 * inner(), 2 * inner(), true);
  until_scores(true);
  of_groups("states gradient", group_width(), n_.state_size, chunk_);
  const Bytes all = states() * s_.element();
  pass("states gradient handed back", 2 * all, 2 * all);
  of_heads("x gradient", chunk_, n_.head_size, n_.state_size + seen());
  for (const char* which : {"B gradient", "C gradient"})
    of_groups(which, chunk_, n_.state_size, group_width());
  of_groups("scores gradient", chunk_, seen(), group_width());
  for (const char* which : {"B gradient of scores", "C gradient of scores"})
    of_groups(which, chunk_, n_.state_size, chunk_);
  of_heads("decays of scores gradient", chunk_, seen(), n_.head_size);
  constexpr std::int64_t kKernels = 6;
  list_.kernel("decays gradient",
               MemoryBound{.op = MemoryOp::elementwise,
                           .read = kKernels * decays(),
                           .written = kKernels * decays(),
                           .kernels = kKernels},
               kKernels);
  pass("causal convolution backward", 2 * convolved(), convolved());
  exchange("mamba input gradient all-to-all", s_.mamba.projected());
}

}  // namespace

void add_mamba(LayerScript& script, const TransformerSlice& slice) {
  using P = PieceKind;
  add_piece(
      script, P::mamba_in, slice,
      [](WorkList& list, const TransformerSlice& s) {
        gathered_product(list, s, "mamba input all-gather", "mamba input",
                         Gemm{s.tokens, s.mamba.projected(), s.hidden, 1, s.gemm});
      },
      [](WorkList& list, const TransformerSlice& s) {
        column_backward(list, s, "mamba input", s.mamba.projected());
      });
  add_piece(
      script, P::mamba_scan, slice,
      [](WorkList& list, const TransformerSlice& s) { Scan(list, s).forward(); },
      [](WorkList& list, const TransformerSlice& s) { Scan(list, s).backward(); });
  add_piece(
      script, P::mamba_out, slice,
      [](WorkList& list, const TransformerSlice& s) {
        reduced_product(list, s, "mamba output",
                        Gemm{s.tokens, s.hidden, s.mamba.inner(), 1, s.gemm});
      },
      [](WorkList& list, const TransformerSlice& s) {
        row_backward(list, s, "mamba output", s.mamba.inner());
      });
}

Bytes mamba_transient(const TransformerSlice& slice) {
  WorkList none;
  return Scan(none, slice).transient();
}

// Weights and bias of the convolution; a rate, a step's bias and a skip of each head; the norm.
std::int64_t mamba_parameters(const Transformer& network, int tensor) {
  const Mamba& m = network.mamba;
  const std::int64_t all = (m.projected() + m.inner()) * network.hidden +
                           m.convolved() * (m.convolution + 1) + 3 * m.heads + m.inner();
  return all / tensor;
}

double mamba_products(const Transformer& network) {
  const Mamba& m = network.mamba;
  return static_cast<double>(m.projected() + m.inner()) * static_cast<double>(network.hidden);
}

double mamba_scan_flops(const Transformer& network) {
  constexpr double kOfEachNumber = 7;
  const Mamba& m = network.mamba;
  return kOfEachNumber * static_cast<double>(m.inner()) * static_cast<double>(m.state_size);
}

}  // namespace trainyard::models
