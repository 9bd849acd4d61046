// What is offloaded: the table of /training/offload, and the options that it becomes.
#include "sim/json/schema.h"
#include "sim/scenario/topics/assemble.h"
#include "sim/scenario/topics/sections.h"

namespace trainyard::scenario {

using recipe::OffloadTo;

namespace {

using json::between;
using json::Choice;
using json::optional;

constexpr std::array<Choice<OffloadTo>, 3> kPlaces = {
    {{"none", OffloadTo::none}, {"cpu", OffloadTo::cpu}, {"nvme", OffloadTo::nvme}}};
constexpr std::array<Choice<bool>, 2> kActivationPlaces = {{{"none", false}, {"cpu", true}}};

}  // namespace

void visit_fields(json::Fields& f, OffloadSection& s) {
  f.choice("optimizer", s.optimizer, kPlaces, optional,
           "Where optimizer states are kept; the host updates them (ZeRO-Offload, ZeRO-Infinity).");
  f.choice("parameters", s.parameters, kPlaces, optional,
           "Where zero3, fsdp and hsdp keep their shards of the parameters.");
  f.not_yet({"nvme"});
  f.choice("activations", s.activations, kActivationPlaces, optional,
           "Where activations wait for their backward pass.");
  f.field("fraction", s.fraction, json::ratio,
          "Of the layers of a stage, its first ones, whose activations go. Default: 1.");
  f.field("prefetch_layers", s.prefetch_layers, between(0, recipe::kMostActivationPrefetch),
          "Layers whose activations are on their way beside the one that computes. Default: 1.");
  f.field("tile_parameters", s.tile_parameters, between(1, 1e12),
          "Parameters that the host updates at a time. Default: 134217728 (DeepSpeed).");
}

recipe::OffloadOptions assemble_offload(const OffloadSection& section) {
  recipe::OffloadOptions options;
  options.optimizer = section.optimizer;
  options.parameters = section.parameters;
  options.activations = section.activations;
  options.fraction = section.fraction.value_or(options.fraction);
  options.prefetch_layers = section.prefetch_layers.value_or(options.prefetch_layers);
  options.tile_parameters = section.tile_parameters.value_or(options.tile_parameters);
  return options;
}

}  // namespace trainyard::scenario
