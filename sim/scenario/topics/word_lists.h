// Words and limits that several tables of the scenario share.
#pragma once

#include <array>
#include <string_view>

#include "models/layer/kernel.h"
#include "sim/json/schema.h"

namespace trainyard::scenario {

// Upper ends that keep every product of sizes within 64 bits; no network comes near.
inline constexpr double kMostLayers = 1e5;
inline constexpr double kMostWidth = 1e7;
inline constexpr double kMostTokens = 1e8;
inline constexpr double kMostBatch = 1e9;

inline constexpr std::array<json::Choice<models::Dtype>, 3> kGradientDtypes = {
    {{"fp32", models::Dtype::fp32}, {"bf16", models::Dtype::bf16}, {"fp16", models::Dtype::fp16}}};

// Forms of /training/recompute that are a word, as name(Recompute) spells them.
inline constexpr std::array<std::string_view, 4> kRecomputeForms = {"none", "selective", "full",
                                                                    "selective_op"};

// Picoseconds of the host for one kernel or call, a second at most: decades above any.
inline constexpr json::Bounds kOfOneCall = json::between(0, 1e12);

}  // namespace trainyard::scenario
