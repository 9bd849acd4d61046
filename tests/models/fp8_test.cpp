// Casts to 8 bits: what each recipe reads and writes, in closed form, and where it stands.
#include <doctest/doctest.h>

#include "tests/models/work_support.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

constexpr std::int64_t kHidden = 256, kTokens = 128;
constexpr std::int64_t kStates = kTokens * kHidden, kSquare = kHidden * kHidden;
// Numbers of a GPT layer: inputs of its products, of which norms make `kNormed`; gradients of their
// outputs; weights.
constexpr std::int64_t kInputs = 7 * kStates, kNormed = 2 * kStates, kGradients = 9 * kStates,
                       kWeights = 12 * kSquare;

struct Moved {
  std::int64_t forward_casts, forward_amax, backward_casts, backward_amax;
  friend bool operator==(const Moved&, const Moved&) = default;
};

std::ostream& operator<<(std::ostream& out, const Moved& moved) {
  return out << moved.forward_casts << ' ' << moved.forward_amax << ' ' << moved.backward_casts
             << ' ' << moved.backward_amax;
}

Execution in_fp8(const Fp8Casts& casts, int tensor = 1) {
  Execution how = execution(1, kTokens, tensor, tensor > 1);
  how.compute = Dtype::fp8;
  how.fp8_inputs = casts.keeps_operands;
  how.fp8 = casts;
  return how;
}

LayerWork layer_of(const Execution& how) {
  return layer(network_work(gpt(1, kHidden, 4, 1024), how));
}

Moved moved(const LayerWork& work) {
  return {bytes_of(work.forward, MemoryOp::cast), bytes_of(work.forward, MemoryOp::amax),
          bytes_of(work.backward, MemoryOp::cast), bytes_of(work.backward, MemoryOp::amax)};
}

Moved moved(const Fp8Casts& casts) {
  return moved(layer_of(in_fp8(casts)));
}

}  // namespace

TEST_CASE("each fp8 recipe casts every operand once for all that read it") {
  using R = Fp8Recipe;
  // 2 bytes in, 1 out and 1 for the transpose.
  CHECK(moved({.recipe = R::delayed}) == Moved{4 * (kInputs + kWeights), 0, 4 * kGradients, 0});
  CHECK(moved({.recipe = R::delayed, .transposes = false}) ==
        Moved{3 * (kInputs + kWeights), 0, 3 * kGradients, 0});
  CHECK(moved({.recipe = R::delayed, .casts_weights = false}) ==
        Moved{4 * kInputs, 0, 4 * kGradients, 0});
  CHECK(moved({.recipe = R::delayed, .casts_weights = false, .norms_cast = true}) ==
        Moved{4 * (kInputs - kNormed) + 2 * kNormed, 0, 4 * kGradients, 0});
  CHECK(moved({.recipe = R::current}) ==
        Moved{4 * (kInputs + kWeights), 2 * (kInputs + kWeights), 4 * kGradients, 2 * kGradients});
  // Cast again by columns, whose largest numbers a pass of its own finds.
  CHECK(moved({.recipe = R::rowwise}) ==
        Moved{6 * (kInputs + kWeights), 2 * (kInputs + kWeights), 6 * kGradients, 2 * kGradients});
  // Scales of 4 bytes for 128 numbers, of 1 for 32, in both copies.
  CHECK(moved({.recipe = R::blockwise}) ==
        Moved{4 * (kInputs + kWeights) + (kInputs + kWeights) / 16, 0,
              4 * kGradients + kGradients / 16, 0});
  CHECK(moved({.recipe = R::mxfp8}) == Moved{4 * (kInputs + kWeights) + (kInputs + kWeights) / 16,
                                             0, 4 * kGradients + kGradients / 16, 0});
}

TEST_CASE("operands of separate experts are cast one by one but with delayed scales") {
  Transformer network = llama(1, kHidden, 8, 8, 512, 1024);
  network.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 128};
  const auto kernels = [&](Fp8Recipe recipe, bool separate) {
    Execution how = in_fp8({.recipe = recipe});
    how.experts.ranks = 2;
    how.kernels.separate_experts = separate;
    std::int64_t most = 0;
    const LayerWork work = last_layer(network_work(network, how));
    for (const std::vector<WorkItem>* items : {&work.forward, &work.backward}) {
      for (const WorkItem& item : *items) {
        const auto* named = std::get_if<NamedKernel>(&item);
        const auto* moved = named ? std::get_if<MemoryBound>(&named->kernel) : nullptr;
        if (moved == nullptr) continue;
        CHECK((moved->kernels == 1 || named->name.starts_with("experts fc")));
        most = std::max(most, moved->kernels);
      }
    }
    return most;
  };
  CHECK(kernels(Fp8Recipe::current, true) == 4);
  CHECK(kernels(Fp8Recipe::mxfp8, true) == 4);
  CHECK(kernels(Fp8Recipe::current, false) == 1);
  CHECK(kernels(Fp8Recipe::delayed, true) == 1);
}

TEST_CASE("what is kept in 16 bits is cast again for the backward pass") {
  CHECK(moved({.recipe = Fp8Recipe::current, .keeps_operands = false}) ==
        Moved{3 * (kInputs + kWeights), 2 * (kInputs + kWeights),
              4 * kGradients + 3 * (kInputs + kWeights), 2 * kGradients});
  CHECK(moved({.recipe = Fp8Recipe::rowwise, .keeps_operands = false}) ==
        Moved{3 * (kInputs + kWeights), 0, 6 * kGradients + 3 * (kInputs + kWeights),
              2 * (kGradients + kInputs + kWeights)});
  const LayerWork work = layer_of(in_fp8({.recipe = Fp8Recipe::current, .keeps_operands = false}));
  // Those for gradients of weights wait with them.
  std::int64_t deferred = 0;
  for (const WorkItem& item : work.backward) {
    const auto* kernel = std::get_if<NamedKernel>(&item);
    const auto* memory = kernel ? std::get_if<MemoryBound>(&kernel->kernel) : nullptr;
    if (memory && kernel->weight_gradient) deferred += memory_traffic(*memory).count();
  }
  CHECK(deferred == 3 * kInputs);
}

TEST_CASE("products of fp8 know whose scales their operands have") {
  for (const auto& [recipe, scaling] : {std::pair{Fp8Recipe::delayed, Scaling::tensor},
                                        {Fp8Recipe::current, Scaling::tensor},
                                        {Fp8Recipe::rowwise, Scaling::row},
                                        {Fp8Recipe::blockwise, Scaling::block},
                                        {Fp8Recipe::mxfp8, Scaling::micro}}) {
    const LayerWork work = layer_of(in_fp8({.recipe = recipe}));
    for (const char* name : {"qkv", "proj", "fc1", "fc2"}) {
      CHECK(gemm(work.forward, name).scaling == scaling);
      CHECK(gemm(work.backward, std::string(name) + " input gradient").scaling == scaling);
      CHECK(gemm(work.backward, std::string(name) + " weight gradient").scaling == scaling);
    }
    CHECK(gemm(work.forward, "attention scores").scaling == Scaling::tensor);
  }
}

// Of what a rank gathers, it casts its own part and transposes all.
TEST_CASE("sequence parallelism casts before it gathers, pieces cast once") {
  constexpr int kRanks = 4;
  Execution how = in_fp8({.recipe = Fp8Recipe::delayed, .casts_weights = false}, kRanks);
  const Moved whole = moved(layer_of(how));
  CHECK(whole == Moved{3 * kNormed / kRanks + 2 * kNormed + 4 * (kInputs - kNormed) / kRanks, 0,
                       4 * 7 * kStates / kRanks + 3 * 2 * kStates / kRanks + 2 * 2 * kStates, 0});
  how.tensor_parallel.overlap = TensorOverlap::chunked;
  for (const int chunks : {0, 2, 4}) {
    how.tensor_parallel.chunks = chunks;
    CHECK(moved(layer_of(how)) == whole);
  }
}

TEST_CASE("16-bit training casts nothing to fp8") {
  Execution how = execution(1, kTokens);
  how.fp8 = {.recipe = Fp8Recipe::current};
  CHECK(moved(layer_of(how)) == Moved{0, 0, 0, 0});
}
