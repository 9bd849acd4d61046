// What a scenario says of the layers that only decoders have: experts and windows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "models/transformer/networks.h"
#include "sim/json/fields.h"
#include "sim/scenario/topics/assemble.h"

namespace trainyard::scenario {

enum class WindowForm : std::uint8_t { sliding, chunks };

struct MoeSection {
  std::int64_t experts = 1, top_k = 1;
  std::optional<std::int64_t> expert_ffn_hidden, shared_ffn_hidden;
  std::int64_t shared_experts = 0, first_dense = 0, every = 1;
  std::int64_t groups = 1;
  std::optional<std::int64_t> top_groups;
  std::optional<bool> biases, clamped, shared_gate, balance_bias;
};

// Layers of one part each.
struct HybridSection {
  std::optional<std::string> pattern;
  std::optional<models::Mamba> mamba;
};

struct WindowSection {
  std::int64_t size = 1, first = 0, global_every = 0;
  WindowForm form = WindowForm::sliding;
  bool global_positions = true;
};

void visit_fields(json::Fields& f, MoeSection& s);
void visit_fields(json::Fields& f, WindowSection& s);

// Both fields of a hybrid stack.
void visit_hybrid(json::Fields& f, HybridSection& s);
// Of a stack whose number of layers and experts are known.
void assemble_hybrid(const HybridSection& section, models::Transformer& stack, Findings& findings);

models::Window assemble_window(const WindowSection& section);
// Fills the experts of a stack whose other members are known.
void assemble_moe(const MoeSection& section, models::Transformer& stack, Findings& findings);

}  // namespace trainyard::scenario
