// Which weights train: all of them, some, or adapters of low rank beside frozen ones.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "models/layer/kernel.h"
#include "sim/base/member_set.h"

namespace trainyard::models {

// A linear layer of a transformer's layer that may have an adapter. qkv and fc1 are one adapter
// over all columns of a joint product, where the others have one for each of its parts.
enum class Target : std::uint8_t { query, key, value, qkv, output, gate, up, fc1, fc2 };
inline constexpr std::size_t kTargets = 9;

std::string_view name(Target target);  // "q_proj", as Hugging Face spells it; "linear_qkv"

// Parts of a network that train whole or not at all.
enum class Part : std::uint8_t { embedding, attention, feed_forward, norms, head };
inline constexpr std::size_t kParts = 5;

// How frozen matrices of layers are kept.
//   stored: as other weights.
//   nf4:    4 bits a number, and for each 64 of them their largest, which each product needs as 16
//           bits before it. Source: Dettmers et al., QLoRA, NeurIPS 2023, section 3.
enum class BaseWeights : std::uint8_t { stored, nf4 };

// How frozen weights beside nf4 matrices are kept: embedding, head, norms and biases.
//   stored: as other weights.
//   fp32:   in 4 bytes, and what layers hand on becomes as wide; autocast copies the head to 16
//           bits for its product and keeps the copy until the gradient of what the head reads.
//           Source: huggingface/peft, utils/other.py, prepare_model_for_kbit_training.
enum class Unquantised : std::uint8_t { stored, fp32 };

// What trains: a scenario's /training/finetune.
struct Finetune {
  enum class Kind : std::uint8_t { full, lora, frozen };
  Kind kind = Kind::full;
  // Adapters: y = W x + B A x with A of rank x inputs and B of outputs x rank.
  // Source: Hu et al., LoRA, ICLR 2022, section 4.1.
  std::int64_t rank = 8;
  MemberSet<Target> targets;
  bool dropout = false;  // of what A reads
  // Adapters' weights; empty: as other weights. Products are of the compute type.
  std::optional<Dtype> dtype{};
  // Of fp32 adapters: what each reads is brought to 4 bytes for it (beside nf4 left as it is) and
  // back to 16 bits for its product, and its weights are cast for each pass.
  bool autocast = false;
  BaseWeights base = BaseWeights::stored;
  bool double_quantised =
      true;  // nf4: the largest numbers in 8 bits, with an fp32 one for each 256
  Unquantised unquantised = Unquantised::stored;
  MemberSet<Part> trains;  // whole, beside adapters if there are any
  int last_layers = 0;     // of the stack, which alone train or have adapters; 0: all

  bool all() const { return kind == Kind::full; }
  bool adapts() const { return kind == Kind::lora; }
  bool trains_whole(Part part) const { return all() || trains.has(part); }
  bool quantises() const { return base == BaseWeights::nf4; }
  // Layers hand on fp32.
  bool widens_stream() const { return quantises() && unquantised == Unquantised::fp32; }
  friend bool operator==(const Finetune&, const Finetune&) = default;
};

// Bytes of so many weights in nf4: half a byte each, 4 bytes for each block of 64, or with double
// quantisation 1 byte for each block and 4 for each 256 of them.
Bytes nf4_bytes(std::int64_t weights, bool double_quantised);

}  // namespace trainyard::models
