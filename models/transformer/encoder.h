// Encoders with the heads of their pre-training (BERT). Layers are those of transformer.h, without
// a causal mask.
#pragma once

#include "models/families/network.h"
#include "models/transformer/networks.h"

namespace trainyard::models {

NetworkWork encoder_work(const Encoder& network, const Execution& execution);
std::int64_t encoder_parameters(const Encoder& network, std::int64_t sequence_length);
void check_encoder(Problems& problems, const Encoder& network, const Execution& execution);

}  // namespace trainyard::models
