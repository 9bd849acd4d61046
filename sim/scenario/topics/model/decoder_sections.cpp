#include "sim/scenario/topics/model/decoder_sections.h"

#include <fmt/format.h>

#include <array>

#include "sim/json/schema.h"
#include "sim/scenario/topics/word_lists.h"

namespace trainyard::models {

void visit_fields(json::Fields& f, Mamba& s) {
  using json::between;
  using scenario::kMostTokens, scenario::kMostWidth;
  f.field("heads", s.heads, json::required, between(1, kMostWidth), "Heads of the state space.");
  f.field("head_dim", s.head_size, json::optional, between(1, kMostWidth), "Width of a head.");
  f.field("groups", s.groups, json::optional, between(1, kMostWidth),
          "Equal groups of heads that share B and C.");
  f.field("state_dim", s.state_size, json::optional, between(1, kMostWidth),
          "Numbers of a state for each of a head's.");
  f.field("conv_kernel", s.convolution, json::optional, between(1, 64),
          "Tokens of the causal convolution.");
  f.field("chunk", s.chunk, json::optional, between(1, kMostTokens),
          "Tokens that meet in products; chunks hand on states.");
}

}  // namespace trainyard::models

namespace trainyard::scenario {

using json::between;
using json::Choice;
using json::optional;
using json::required;

namespace {

constexpr std::array<Choice<WindowForm>, 2> kWindowForms = {
    {{"sliding", WindowForm::sliding}, {"chunks", WindowForm::chunks}}};

bool check_groups(const MoeSection& moe, Findings& findings) {
  if (moe.experts % moe.groups != 0) {
    findings.error("/model/moe/groups",
                   fmt::format("{} experts in {} groups", moe.experts, moe.groups),
                   "groups must divide experts");
    return false;
  }
  const std::int64_t chosen = moe.top_groups.value_or(moe.groups);
  const std::int64_t offered = chosen * (moe.experts / moe.groups);
  if (chosen > moe.groups) {
    findings.error("/model/moe/top_groups", fmt::format("{} of {} groups", chosen, moe.groups),
                   fmt::format("the most is {}", moe.groups));
    return false;
  }
  if (moe.top_k <= moe.experts && moe.top_k > offered) {
    findings.error(
        "/model/moe/top_groups",
        fmt::format("experts in the chosen groups: {}, fewer than top_k ({})", offered, moe.top_k));
    return false;
  }
  return true;
}

}  // namespace

void visit_fields(json::Fields& f, WindowSection& s) {
  f.field("size", s.size, required, between(1, kMostTokens),
          "Tokens that a token sees, itself among them.");
  f.field("first", s.first, optional, between(0, kMostLayers),
          "Layers before this one, counted from 0, see all tokens.");
  f.field("global_every", s.global_every, optional, between(0, kMostLayers),
          "Each n-th layer of the stack sees all tokens; 0: none does.");
  f.choice("form", s.form, kWindowForms, optional,
           "sliding: the nearest tokens before it. chunks: those of its own part of the sequence.");
  f.field("global_positions", s.global_positions, optional,
          "Layers that see all tokens have positions too.");
}

void visit_fields(json::Fields& f, MoeSection& s) {
  f.field("experts", s.experts, required, between(1, 1 << 16), "Routed experts of a layer.");
  f.field("top_k", s.top_k, required, between(1, 1 << 16), "Experts that each token visits.");
  f.field("expert_ffn_hidden", s.expert_ffn_hidden, between(1, kMostWidth),
          "Width of one routed expert. Default: ffn_hidden.");
  f.field("shared_experts", s.shared_experts, optional, between(0, 1 << 16),
          "Experts that every token visits.");
  f.field("shared_ffn_hidden", s.shared_ffn_hidden, between(1, kMostWidth),
          "Width of the shared experts together. Default: that of as many routed ones.");
  f.field("first_dense", s.first_dense, optional, between(0, kMostLayers),
          "Dense layers before the first one with experts.");
  f.field("every", s.every, optional, between(1, kMostLayers),
          "Of the layers that follow, each n-th has experts.");
  f.field("groups", s.groups, optional, between(1, 1024),
          "Equal groups of experts, of which the router chooses some for each token (n_group).");
  f.field("top_groups", s.top_groups, between(1, 1024),
          "Groups that a token's experts are in (topk_group). Default: all.");
  f.field("biases", s.biases, json::anything, "Of the router and of the experts (gpt-oss).");
  f.field("clamped", s.clamped, json::anything,
          "Both halves before the experts' gate are kept within limits (gpt-oss).");
  f.field("shared_gate", s.shared_gate, json::anything,
          "A column that scales what the shared experts add (Qwen2-MoE).");
  f.field("balance_bias", s.balance_bias, json::anything,
          "A number per expert that balances their load without a loss (DeepSeek-V3).");
}

void visit_hybrid(json::Fields& f, HybridSection& s) {
  f.field("layer_pattern", s.pattern, json::anything,
          "Layers of one part each, a letter a layer: M Mamba, * attention, - feed-forward, E "
          "experts, as Megatron-LM's --hybrid-layer-pattern. Default: whole layers.");
  f.section("mamba", s.mamba, "Mamba-2's heads and states, of layers M.");
}

void assemble_hybrid(const HybridSection& section, models::Transformer& stack, Findings& findings) {
  constexpr const char* kPattern = "/model/layer_pattern";
  const std::string pattern = section.pattern.value_or("");
  const auto has = [&](char letter) { return pattern.find(letter) != std::string::npos; };
  if (section.mamba && has('M')) stack.mamba = *section.mamba;
  // A pattern without M may replace that of a preset, whose Mamba heads nothing can take away.
  if (section.mamba && !section.pattern)
    findings.error("/model/mamba", "no layer is one of Mamba",
                   "remove it, or write M for such layers into layer_pattern");
  if (section.mamba && section.mamba->heads % section.mamba->groups != 0)
    findings.error(
        "/model/mamba/groups",
        fmt::format("{} heads in {} groups", section.mamba->heads, section.mamba->groups),
        "groups must divide heads");
  if (!section.pattern) return;
  if (const std::size_t other = pattern.find_first_not_of("M*-E"); other != std::string::npos)
    return findings.error(kPattern, fmt::format("layer {} is '{}'", other, pattern[other]),
                          "known: M Mamba, * attention, - feed-forward, E experts");
  if (static_cast<std::int64_t>(pattern.size()) != stack.layers)
    return findings.error(
        kPattern, fmt::format("{} letters for {} layers", pattern.size(), stack.layers),
        pattern.empty() ? "write a letter for each"
                        : fmt::format("set layers to {}, or mend the pattern", pattern.size()));
  if (has('M') && !section.mamba)
    findings.error("/model/mamba", "is required and missing: layer_pattern has layers M",
                   "give at least its heads");
  if (has('E') && stack.moe.experts == 0)
    findings.error(kPattern, "has layers of experts, and there is no moe",
                   "describe them under moe");
  if (!has('E') && stack.moe.experts > 0)
    findings.error("/model/moe", "no layer of layer_pattern has experts",
                   "write E for such layers, or remove it, or the preset that it is of");
  if (stack.moe.first_dense != 0 || stack.moe.every != 1)
    findings.error("/model/moe", "layer_pattern says which layers have experts",
                   "remove first_dense and every");
  stack.pattern = pattern;
}

models::Window assemble_window(const WindowSection& section) {
  return {.size = section.size,
          .first = section.first,
          .global_every = section.global_every,
          .chunked = section.form == WindowForm::chunks,
          .global_positions = section.global_positions};
}

void assemble_moe(const MoeSection& section, models::Transformer& stack, Findings& findings) {
  models::Experts& moe = stack.moe;
  moe.experts = section.experts;
  moe.top_k = section.top_k;
  moe.ffn_hidden = section.expert_ffn_hidden.value_or(stack.ffn_hidden);
  moe.shared_ffn_hidden =
      section.shared_ffn_hidden.value_or(section.shared_experts * moe.ffn_hidden);
  moe.first_dense = section.first_dense;
  moe.every = section.every;
  moe.biases = section.biases.value_or(false);
  moe.clamped = section.clamped.value_or(false);
  moe.shared_gate = section.shared_gate.value_or(false);
  moe.balance_bias = section.balance_bias.value_or(false);
  if (check_groups(section, findings)) {
    moe.groups = section.groups;
    moe.top_groups = section.top_groups.value_or(section.groups);
  }
  if (const std::int64_t first = moe.first_dense + moe.every; first > stack.layers)
    findings.error("/model/moe",
                   fmt::format("of {} layers none is a mixture of experts: the first "
                               "would be layer {}",
                               stack.layers, first),
                   "lower first_dense or every, or remove moe");
  if (moe.top_k > moe.experts)
    findings.error("/model/moe/top_k", fmt::format("{} of {} experts", moe.top_k, moe.experts),
                   fmt::format("the most is {}", moe.experts));
  if (stack.biases.feed_forward)
    findings.error("/model/biases", "experts have biases of their own, under moe.biases",
                   "write \"biases\": false");
  if (moe.clamped && !stack.gated())
    findings.error("/model/moe/clamped", "the feed-forward layer has no gate", "remove it");
  if (moe.shared_gate && moe.shared_ffn_hidden == 0)
    findings.error("/model/moe/shared_gate", "there are no shared experts to scale", "remove it");
}

}  // namespace trainyard::scenario
