// Frozen weights, adapters and weights of 4 bits: parameters, products and kept bytes against
// counts that others have published and closed forms.
#include "tests/models/work_support.h"
#include "tests/support/about.h"

using namespace trainyard;
using models::adapter_parameters;
using models::Finetune;
using models::nf4_bytes;
using models::Part;
using models::Target;
using models::trained_parameters;

namespace {

Transformer llama2_7b() {
  return llama(32, 4096, 32, 32, 11008, 32000);
}

Finetune lora(std::int64_t rank, std::initializer_list<Target> targets) {
  Finetune how;
  how.kind = Finetune::Kind::lora;
  how.rank = rank;
  for (const Target target : targets)
    how.targets.add(target);
  return how;
}

Finetune all_linear(std::int64_t rank) {
  return lora(rank, {Target::query, Target::key, Target::value, Target::output, Target::gate,
                     Target::up, Target::fc2});
}

Finetune frozen(std::initializer_list<Part> parts) {
  Finetune how;
  how.kind = Finetune::Kind::frozen;
  for (const Part part : parts)
    how.trains.add(part);
  return how;
}

Execution fused(const Finetune& how, int tensor = 1, bool sequence_parallel = false) {
  Execution e = execution(2, 256, tensor, sequence_parallel);
  e.kernels.attention = AttentionKernel::fa2;
  e.finetune = how;
  return e;
}

// FLOPs of the products and of attention in the backward passes of a chain.
double backward_flops(const NetworkWork& work) {
  double sum = 0;
  for (const int kind : work.chain)
    sum += sum_of_flops(work.kinds[static_cast<std::size_t>(kind)].backward).count();
  return sum;
}

std::int64_t trained(const NetworkWork& work) {
  std::int64_t sum = 0;
  for (const int kind : work.chain)
    sum += work.kinds[static_cast<std::size_t>(kind)].parameters;
  return sum;
}

}  // namespace

// The first two as peft prints them for Llama 2 7B; r (in + out) for each matrix.
TEST_CASE("adapters of Llama 2 7B have the numbers of parameters that peft counts") {
  const Transformer network = llama2_7b();
  CHECK(trained_parameters(network, lora(8, {Target::query, Target::value}), 128) == 4'194'304);
  CHECK(trained_parameters(network, all_linear(16), 128) == 39'976'960);
  CHECK(adapter_parameters(network, all_linear(64), 128) == 159'907'840);
  // One adapter for a joint product has one A.
  CHECK(trained_parameters(network, lora(16, {Target::qkv}), 128) == 32 * 16 * (4096 + 3 * 4096));
  CHECK(trained_parameters(network, lora(16, {Target::fc1}), 128) == 32 * 16 * (4096 + 2 * 11008));
}

TEST_CASE("what trains and what is frozen add up to the network and its adapters") {
  const Transformer network = llama(4, 512, 8, 2, 1408, 1024);
  for (const Finetune& how :
       {all_linear(8), lora(8, {Target::qkv, Target::fc2}), frozen({Part::norms}),
        frozen({Part::head, Part::attention}), frozen({Part::embedding})}) {
    for (const int tensor : {1, 2}) {
      const NetworkWork work = network_work(network, fused(how, tensor));
      std::int64_t sum = 0;
      for (const int kind : work.chain) {
        const LayerWork& each = work.kinds[static_cast<std::size_t>(kind)];
        sum += each.parameters + each.frozen.parameters;
      }
      const NetworkWork plain = network_work(network, fused({}, tensor));
      CHECK(sum == trained(plain) + adapter_parameters(network, how, 256) / tensor);
    }
  }
}

// Forward 2, input gradients 2 of 6 in all; attention's backward pass is as before. The lowest
// layer's qkv has no gradient of its input.
TEST_CASE("beside frozen weights the backward pass makes half of the products of full training") {
  const std::int64_t layers = 4, h = 512, ffn = 1408, m = 512, r = 8;
  const Transformer network = llama(layers, h, 8, 8, ffn, 1024);
  const double full = backward_flops(network_work(network, fused({})));
  const Finetune how = lora(r, {Target::query, Target::value});
  const double own = backward_flops(network_work(network, fused(how)));
  const double weights =
      2.0 * static_cast<double>(m * (layers * (4 * h * h + 3 * h * ffn) + 1024 * h));
  const double lowest = 2.0 * static_cast<double>(m * 3 * h * h);
  const double adapters = 2 * 2.0 * static_cast<double>(m * r * 2 * h) * 2 * layers;
  const double of_lowest = 2.0 * static_cast<double>(m * r * h) * 2;
  CHECK(own == full - weights - lowest + adapters - of_lowest);
}

TEST_CASE("model FLOPs count what is executed, frozen or not") {
  const Transformer network = llama(3, 512, 8, 2, 1408, 1024);
  for (const Finetune& how : {all_linear(8), lora(4, {Target::output}), frozen({Part::norms}),
                              frozen({Part::head}), frozen({Part::attention})}) {
    const NetworkWork work = network_work(network, fused(how));
    double model = 0, executed = 0;
    for (const int kind : work.chain) {
      const LayerWork& each = work.kinds[static_cast<std::size_t>(kind)];
      model += 3 * each.forward_model_flops.count() - each.skipped_flops.count() -
               3 * each.forward_masked_flops.count() + each.skipped_masked_flops.count();
      executed += sum_of_flops(each.forward).count();
      // Fused attention makes its scores again: five products where the model counts four.
      for (const WorkItem& item : each.backward)
        if (const auto* kernel = std::get_if<NamedKernel>(&item))
          executed += (std::holds_alternative<Attention>(kernel->kernel) ? 0.8 : 1.0) *
                      flops(kernel->kernel).count();
    }
    CHECK(model == about(executed).within(1e-12));
  }
}

TEST_CASE("a frozen product keeps no input unless an adapter reads it") {
  const Transformer network = llama(2, 512, 8, 8, 1408, 1024);
  const std::int64_t m = 512, d = 2, h = 512, ffn = 1408;
  const auto kept = [&](const Finetune& how) {
    const NetworkWork work = network_work(network, fused(how));
    return work.kinds[static_cast<std::size_t>(work.chain[2])].activations().count();
  };
  const std::int64_t full = kept({});
  // Inputs of qkv, fc1 and fc2; that of proj is attention's own output.
  CHECK(kept(frozen({Part::norms})) == full - m * (2 * h + ffn) * d);
  // An adapter of q: what it reads, and r numbers a token.
  CHECK(kept(lora(8, {Target::query})) == full - m * (h + ffn) * d + m * 8 * d);
  Finetune dropped = lora(8, {Target::query, Target::value});
  dropped.dropout = true;
  CHECK(kept(dropped) == full - m * (2 * h + ffn) * d + 2 * m * (h * (d + 1) + 8 * d));
}

namespace {

constexpr std::int64_t kWideHidden = 512, kWideRank = 8;

// In fp32.
Finetune wide_adapters(bool autocast) {
  Finetune how = lora(kWideRank, {Target::query, Target::value, Target::output});
  how.dtype = Dtype::fp32;
  how.autocast = autocast;
  return how;
}

// The second of two layers, operator by operator.
LayerWork upper_layer(const Finetune& how) {
  Execution e = fused(how);
  e.kernels.fusion = models::Fusion::eager;
  const NetworkWork work = network_work(llama(2, kWideHidden, 8, 8, 1408, 1024), e);
  return work.kinds[static_cast<std::size_t>(work.chain[2])];
}

}  // namespace

// q and v read one output of the norm, and o that of fused attention, which attention needs too.
TEST_CASE("an fp32 adapter under autocast keeps what it reads and its weights in 16 bits") {
  const std::int64_t m = 512, h = kWideHidden, r = kWideRank, d = 2;
  const auto upper = [&](bool autocast, bool dropout) {
    Finetune how = wide_adapters(autocast);
    how.dropout = dropout;
    return upper_layer(how);
  };
  const auto more = [&](bool dropout) {
    return (upper(true, dropout).activations() - upper(false, dropout).activations()).count();
  };
  const std::int64_t weights = 3 * r * (h + h) * d;
  CHECK(more(false) == 2 * m * h * d + weights);
  // What dropout has made is a copy already.
  CHECK(more(true) == weights);
  // Of what an adapter reads to fp32 and back, and of A and B; their gradients the same way.
  CHECK(upper(true, false).forward.size() == upper(false, false).forward.size() + 3 * 4);
  CHECK(upper(true, false).backward.size() == upper(false, false).backward.size() + 3 * 4);
}

// peft's linears of 4 bits leave what they read to autocast, which narrows what is fp32 alone.
TEST_CASE("beside nf4 an fp32 adapter copies its weights, and of its input what is fp32") {
  const std::int64_t m = 512, h = kWideHidden, r = kWideRank, d = 2;
  const auto upper = [&](bool autocast, Unquantised rest) {
    Finetune how = wide_adapters(autocast);
    how.base = BaseWeights::nf4;
    how.unquantised = rest;
    return upper_layer(how);
  };
  const auto more = [&](Unquantised rest) {
    return (upper(true, rest).activations() - upper(false, rest).activations()).count();
  };
  const auto kernels = [&](Unquantised rest) {
    return upper(true, rest).forward.size() - upper(false, rest).forward.size();
  };
  const std::int64_t weights = 3 * r * (h + h) * d;
  CHECK(more(Unquantised::stored) == weights);
  CHECK(kernels(Unquantised::stored) == 3 * 2);
  // A copy for each of query and value, where the shared input was kept; not of the output's.
  CHECK(more(Unquantised::fp32) == m * h * d + weights);
  CHECK(kernels(Unquantised::fp32) == 3 * 2 + 2);
}

// Norms read 4 bytes where they read 2, which plain operators need as a copy otherwise.
TEST_CASE("beside 4-bit weights in fp32 a layer keeps two states of 4 bytes, however norms run") {
  const Transformer network = llama(2, 512, 8, 8, 1408, 1024);
  const std::int64_t m = 512, h = 512;
  Finetune how = all_linear(8);
  how.base = models::BaseWeights::nf4;
  const auto kept = [&](models::Unquantised unquantised, bool by_operators) {
    how.unquantised = unquantised;
    Execution e = fused(how);
    e.kernels.fusion = models::Fusion::eager;
    e.kernels.norms_by_operators = by_operators;
    const NetworkWork work = network_work(network, e);
    return work.kinds[static_cast<std::size_t>(work.chain[2])].activations().count();
  };
  using models::Unquantised;
  const std::int64_t narrow = kept(Unquantised::stored, false);
  CHECK(kept(Unquantised::fp32, false) == narrow + 2 * 2 * m * h);
  CHECK(kept(Unquantised::fp32, true) == narrow + 2 * 2 * m * h);
  // In place of the 16-bit input the copy.
  CHECK(kept(Unquantised::stored, true) == narrow + 2 * 2 * m * h);
}

TEST_CASE("below the lowest trained layer nothing runs backward and nothing is kept") {
  const Transformer network = llama(6, 512, 8, 2, 1408, 1024);
  Finetune how = all_linear(8);
  how.last_layers = 2;
  const NetworkWork work = network_work(network, fused(how));
  for (int place = 0; place <= 4; ++place) {
    const LayerWork& below =
        work.kinds[static_cast<std::size_t>(work.chain[static_cast<std::size_t>(place)])];
    CHECK(below.backward.empty());
    CHECK(below.activations() == Bytes(0));
    CHECK(below.parameters == 0);
  }
  const LayerWork& lowest = work.kinds[static_cast<std::size_t>(work.chain[5])];
  const LayerWork& upper = work.kinds[static_cast<std::size_t>(work.chain[6])];
  CHECK(lowest.parameters == upper.parameters);
  CHECK(sum_of_flops(lowest.backward) < sum_of_flops(upper.backward));
  CHECK(trained(work) == 2 * adapter_parameters(network, all_linear(8), 256) / 6);
}

// 4 bits, 8 for 64 and 32 for 64 x 256: 4.127 bits, as section 3 of QLoRA has it.
TEST_CASE("a weight of nf4 takes 4.127 bits with double quantisation, 4.5 without") {
  const std::int64_t weights = std::int64_t{1} << 24;
  CHECK(nf4_bytes(weights, true).count() * 8 * 1000 / weights == 4126);
  CHECK(nf4_bytes(weights, false).count() * 8 == weights * 9 / 2);
}

TEST_CASE("routers and gates of shared experts are no matrices that fp8 is for") {
  Transformer network = llama(2, 512, 8, 8, 1408, 1024);
  network.moe = {.experts = 8, .top_k = 2, .ffn_hidden = 256, .shared_ffn_hidden = 512};
  network.moe.shared_gate = true;
  const auto matrices = [&](const Finetune& how) {
    return last_layer(network_work(network, fused(how))).frozen.matrices;
  };
  const std::int64_t attention = 4 * 512 * 512, shared = 3 * 512 * 512;
  CHECK(matrices(frozen({Part::norms})) == attention + shared);
  CHECK(matrices(frozen({Part::attention})) == shared);
  CHECK(matrices(frozen({Part::feed_forward})) == attention);
}

TEST_CASE("every frozen product of a 4-bit layer has its weights widened in front of it") {
  Finetune how = all_linear(8);
  how.base = models::BaseWeights::nf4;
  const Transformer network = llama(3, 512, 8, 8, 1408, 1024);
  const NetworkWork work = network_work(network, fused(how));
  const LayerWork& upper = work.kinds[static_cast<std::size_t>(work.chain[2])];
  const std::int64_t weights = 4 * 512 * 512 + 3 * 512 * 1408;
  CHECK(upper.frozen.matrices == weights);
  CHECK(upper.frozen.quantised_bytes ==
        nf4_bytes(4 * 512 * 512, true) + nf4_bytes(3 * 512 * 1408, true));
  const std::int64_t scales = weights / 64 * 4, narrow = weights / 64 + weights / 64 / 256 * 4;
  const std::int64_t once = weights / 2 + scales + 2 * weights + narrow + scales;
  CHECK(bytes_of(upper.forward, MemoryOp::cast) == once);
  CHECK(bytes_of(upper.backward, MemoryOp::cast) == once);
  CHECK(upper.forward_transient == Bytes(2 * 2 * 512 * 1408));
}

TEST_CASE("tensor parallelism divides both matrices of an adapter") {
  const Transformer network = llama(2, 512, 8, 8, 1408, 1024);
  const LayerWork work =
      network_work(network, fused(lora(8, {Target::qkv, Target::output}), 4, true)).kinds[1];
  using M = WeightMatrix;
  CHECK(work.matrices == std::vector<M>{M{2, 512}, M{3 * 512 / 4, 8}, M{8, 128}, M{128, 8}});
  std::int64_t narrow = 0;
  for (const GroupCollective& each : collectives(work.forward))
    if (each.bytes == Bytes(512 * 8 * 2)) ++narrow;
  CHECK(narrow == 2);
}

TEST_CASE("wrong adapters are told apart") {
  const auto problem = [](const Transformer& network, const Finetune& how, int tensor = 1) {
    const auto found = check_execution(network, fused(how, tensor));
    return found.empty() ? std::string() : found.front().member + ": " + found.front().message;
  };
  const Transformer gated = llama(2, 512, 8, 2, 1408, 1024), plain = gpt(2, 512, 8, 1024);
  CHECK(problem(gated, all_linear(8)).empty());
  CHECK(problem(plain, all_linear(8)).empty());
  CHECK(problem(plain, lora(8, {Target::gate})) ==
        "targets: no layer has a gate_proj; there are q_proj, k_proj, v_proj, o_proj, up_proj, "
        "down_proj, linear_qkv, linear_fc1");
  CHECK(problem(gated, lora(200, {Target::key})) ==
        "rank: an adapter of rank 200 is more than the 128 x 512 matrix of k_proj itself");
  CHECK(problem(gated, lora(9, {Target::query}), 2).starts_with("rank: the rank of adapters (9)"));
  CHECK(problem(gated, lora(8, {Target::query, Target::qkv})).starts_with("targets: linear_qkv"));
  CHECK(problem(plain, frozen({Part::head})).starts_with("trains: embedding and head share"));
}

TEST_CASE("biases that are not trained have no gradients to sum") {
  const Transformer network = gpt(1, 64, 4, 512);
  const auto summed = [&](const Finetune& how) {
    return bytes_of(layer(network_work(network, fused(how))).backward, MemoryOp::column_sum);
  };
  CHECK(summed({}) > 0);
  CHECK(summed(lora(8, {Target::qkv})) == 0);
}
