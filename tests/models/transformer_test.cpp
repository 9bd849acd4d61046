// FLOPs and parameters of transformers against published formulas and counts.
#include <doctest/doctest.h>

#include "tests/models/work_support.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

Flops model_flops_of_step(const NetworkWork& work) {
  Flops sum;
  for (const int kind : work.chain) {
    sum = sum + work.kinds[static_cast<std::size_t>(kind)].forward_model_flops;
  }
  return 3.0 * sum;
}

struct Shape {
  std::int64_t layers, hidden, heads, vocabulary, micro_batch, sequence_length;
};

constexpr Shape kShapes[] = {
    {2, 64, 4, 128, 1, 16},
    {12, 768, 12, 50257, 4, 1024},
    {48, 6144, 64, 51200, 4, 2048},
    {96, 12288, 96, 51200, 1, 2048},
};

}  // namespace

// Narayanan et al. 2021 count 96 B s l h^2 (1 + s/(6h) + V/(16 l h)) with full recomputation.
// Without it, a layer costs 72 B s h^2 + 12 B s^2 h and the logits 6 B s h V.
TEST_CASE("model FLOPs of a step are 72 B s l h^2 (1 + s/(6h) + V/(12 l h)) exactly") {
  for (const Shape& shape : kShapes) {
    const auto [l, h, a, v, b, s] = shape;
    const std::int64_t expected =
        72 * b * s * l * h * h + 12 * b * s * s * l * h + 6 * b * s * h * v;
    for (const bool fused : {false, true}) {
      Execution how = execution(b, s);
      how.kernels.attention = fused ? AttentionKernel::fa2 : AttentionKernel::unfused;
      const NetworkWork work = network_work(gpt(l, h, a, v), how);
      CHECK(model_flops_of_step(work).count() == static_cast<double>(expected));
    }
  }
}

// 12 B s^2 l h are the square of the scores in three passes; a causal mask leaves half of it.
TEST_CASE("a causal mask leaves out 6 B s^2 l h, fused or not") {
  for (const Shape& shape : kShapes) {
    const auto [l, h, a, v, b, s] = shape;
    for (const bool fused : {false, true}) {
      for (const int t : {1, 2}) {
        Execution how = execution(b, s, t);
        how.kernels.attention = fused ? AttentionKernel::fa2 : AttentionKernel::unfused;
        const NetworkWork work = network_work(gpt(l, h, a, v), how);
        CHECK(3.0 * l * layer(work).forward_masked_flops.count() ==
              static_cast<double>(6 * b * s * s * l * h));
        how.recompute.form = Recompute::full;
        const LayerWork again = layer(network_work(gpt(l, h, a, v), how));
        CHECK(again.recompute_masked_flops == again.forward_masked_flops);
      }
    }
  }
}

TEST_CASE("what fused kernels execute forward are the model FLOPs without the mask's part") {
  for (const Transformer& network : {gpt(2, 512, 8, 1000), llama(2, 512, 8, 2, 1408, 1000)}) {
    for (const bool causal : {true, false}) {
      Transformer masked = network;
      masked.causal = causal;
      Execution how = execution(2, 256);
      how.kernels.attention = AttentionKernel::fa2;
      const LayerWork work = layer(network_work(masked, how));
      CHECK(sum_of_flops(work.forward) == work.forward_model_flops - work.forward_masked_flops);
      CHECK((work.forward_masked_flops == Flops(0)) == !causal);
    }
    // A window leaves out more.
    Transformer windowed = network;
    windowed.window.size = 64;
    Execution how = execution(2, 256);
    how.kernels.attention = AttentionKernel::fa2;
    const NetworkWork all = network_work(windowed, how);
    const LayerWork& near = all.kinds[static_cast<std::size_t>(all.chain[1])];
    CHECK(sum_of_flops(near.forward) == near.forward_model_flops - near.forward_masked_flops);
    CHECK(near.forward_masked_flops > layer(network_work(network, how)).forward_masked_flops);
  }
}

TEST_CASE("with full recomputation the layers and logits cost what Narayanan et al. count") {
  for (const Shape& shape : kShapes) {
    const auto [l, h, a, v, b, s] = shape;
    const NetworkWork work =
        network_work(gpt(l, h, a, v), execution(b, s, 1, false, Recompute::full));
    const double executed =
        (model_flops_of_step(work) + static_cast<double>(l) * layer(work).recompute_model_flops)
            .count();
    CHECK(executed ==
          static_cast<double>(96 * b * s * l * h * h + 16 * b * s * s * l * h + 6 * b * s * h * v));
  }
}

TEST_CASE("tensor parallelism changes no model FLOPs and divides the executed ones") {
  const Transformer network = gpt(4, 1024, 16, 51200);
  const NetworkWork whole = network_work(network, execution(2, 512));
  for (const int t : {2, 4, 8, 16}) {
    for (const bool sp : {false, true}) {
      const NetworkWork split = network_work(network, execution(2, 512, t, sp));
      for (std::size_t kind = 0; kind < 3; ++kind) {
        CHECK(split.kinds[kind].forward_model_flops == whole.kinds[kind].forward_model_flops);
        CHECK(static_cast<double>(t) * sum_of_flops(split.kinds[kind].forward) ==
              sum_of_flops(whole.kinds[kind].forward));
        CHECK(static_cast<double>(t) * sum_of_flops(split.kinds[kind].backward) ==
              sum_of_flops(whole.kinds[kind].backward));
      }
    }
  }
}

TEST_CASE("executed FLOPs are the model's: one forward, two backward") {
  for (const Transformer& network : {gpt(2, 512, 8, 1000), llama(2, 512, 8, 2, 1408, 1000)}) {
    const NetworkWork work = network_work(network, execution(2, 256));
    for (const LayerWork& kind : work.kinds) {
      CHECK(sum_of_flops(kind.forward) == kind.forward_model_flops);
      CHECK(sum_of_flops(kind.backward) == 2.0 * kind.forward_model_flops);
    }
  }
}

TEST_CASE("full recomputation executes 4/3 of the FLOPs, selective something between") {
  const Transformer network = gpt(2, 512, 8, 1000);
  const auto executed = [&](Recompute recompute) {
    const LayerWork work = layer(network_work(network, execution(2, 256, 2, true, recompute)));
    return (sum_of_flops(work.forward) + sum_of_flops(work.recompute) + sum_of_flops(work.backward))
        .count();
  };
  const double none = executed(Recompute::none);
  CHECK(3 * executed(Recompute::full) == 4 * none);
  CHECK(none < executed(Recompute::selective));
  CHECK(executed(Recompute::selective) < executed(Recompute::full));
}

TEST_CASE("the FLOPs said to be recomputed are those that recomputation adds") {
  for (const int t : {1, 4}) {
    const auto work = [&](Recompute recompute) {
      return layer(network_work(gpt(2, 512, 8, 1000), execution(2, 256, t, false, recompute)));
    };
    const Flops none = sum_of_flops(work(Recompute::none).backward);
    for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
      const LayerWork again = work(recompute);
      const Flops added = sum_of_flops(again.backward) + sum_of_flops(again.recompute) - none;
      CHECK(static_cast<double>(t) * added == again.recompute_model_flops);
    }
  }
}

TEST_CASE("with fused attention selective recomputation changes nothing") {
  Execution how = execution(2, 256);
  how.kernels.attention = AttentionKernel::fa2;
  const NetworkWork none = network_work(gpt(2, 512, 8, 1000), how);
  how.recompute.form = Recompute::selective;
  const NetworkWork selective = network_work(gpt(2, 512, 8, 1000), how);
  CHECK(script(layer(none).backward) == script(layer(selective).backward));
  CHECK(layer(none).activations() == layer(selective).activations());
  CHECK(layer(selective).recompute_model_flops == Flops(0));
  CHECK(layer(selective).workspace() == Bytes(0));
}

// Narayanan et al. 2021, equation 2, leaves out the 2 h of the final norm.
TEST_CASE("parameters of a GPT are 12 l h^2 (1 + 13/(12h) + (V+s)/(12 l h)) and a final norm") {
  for (const Shape& shape : kShapes) {
    const auto [l, h, a, v, b, s] = shape;
    CHECK(parameter_count(gpt(l, h, a, v), s) == 12 * l * h * h + 13 * l * h + (v + s) * h + 2 * h);
  }
}

TEST_CASE("published networks have their published parameter counts") {
  // GPT-3 is called 175B with either vocabulary.
  for (const std::int64_t vocabulary : {50257, 51200}) {
    const auto count = static_cast<double>(parameter_count(gpt(96, 12288, 96, vocabulary), 2048));
    CHECK(count == about(175e9).within(0.005));
  }
  // The checkpoints of GPT-2, Llama 2 and Llama 3.
  CHECK(parameter_count(gpt(12, 768, 12, 50257), 1024) == 124'439'808);
  CHECK(parameter_count(gpt(48, 1600, 25, 50257), 1024) == 1'557'611'200);
  CHECK(parameter_count(llama(32, 4096, 32, 32, 11008, 32000), 4096) == 6'738'415'616);
  CHECK(parameter_count(llama(80, 8192, 64, 8, 28672, 32000), 4096) == 68'976'648'192);
  CHECK(parameter_count(llama(32, 4096, 32, 8, 14336, 128256), 8192) == 8'030'261'248);
  CHECK(parameter_count(llama(80, 8192, 64, 8, 28672, 128256), 8192) == 70'553'706'496);
  CHECK(parameter_count(llama(126, 16384, 128, 8, 53248, 128256), 8192) == 405'853'388'800);
}

TEST_CASE("a learned position table has its own rows when the network says so") {
  Transformer network = gpt(2, 64, 4, 100);
  const std::int64_t by_sequence = parameter_count(network, 16);
  network.max_positions = 48;
  CHECK(parameter_count(network, 16) == by_sequence + 32 * 64);
  network.positional = Positional::none;
  CHECK(parameter_count(network, 16) == by_sequence - 16 * 64);
}

TEST_CASE("the ranks of a tensor-parallel group hold the network, replicas counted once") {
  for (const bool tied : {true, false}) {
    Transformer network = gpt(3, 64, 8, 128);
    network.tied_embeddings = tied;
    const std::int64_t h = network.hidden;
    const std::int64_t s = 16;
    for (const int t : {1, 2, 4, 8}) {
      const NetworkWork work = network_work(network, execution(1, s, t));
      std::int64_t sum = 0;
      for (const int kind : work.chain) {
        const LayerWork& place = work.kinds[static_cast<std::size_t>(kind)];
        sum += t * (place.parameters - place.tied_parameters);
      }
      // Whole on every rank: norms and the biases of proj and fc2 in each layer, the final norm and
      // the positions.
      const std::int64_t replicated = network.layers * (4 * h + 2 * h) + 2 * h + s * h;
      CHECK(sum - (t - 1) * replicated == parameter_count(network, s));
    }
  }
}

TEST_CASE("a vocabulary that does not divide is rounded up on every rank") {
  const Transformer network = gpt(1, 64, 8, 101);
  const NetworkWork work = network_work(network, execution(1, 16, 4));
  CHECK(work.kinds[0].parameters == 26 * 64 + 16 * 64);
  CHECK(work.kinds[2].parameters == 26 * 64 + 2 * 64);
  CHECK(work.kinds[2].tied_parameters == 26 * 64);
}

TEST_CASE("the chain is an embedding, the layers, and the logits") {
  const NetworkWork work = network_work(gpt(3, 64, 8, 101), execution(1, 16));
  CHECK(work.chain == std::vector<int>{0, 1, 1, 1, 2});
  CHECK(work.divisible == std::vector<bool>{false, true, true, true, false});
  CHECK(divisible_layers(gpt(3, 64, 8, 101)) == 3);
  CHECK(work.kinds[0].output.count() == 16 * 64 * 2);
  CHECK(work.kinds[1].output.count() == 16 * 64 * 2);
  CHECK(work.kinds[2].output.count() == 0);
}
