// Vision transformers: an encoder of image patches with a classifier.
#pragma once

#include "models/families/network.h"
#include "models/transformer/networks.h"

namespace trainyard::models {

NetworkWork vision_work(const VisionTransformer& network, const Execution& execution);
std::int64_t vision_parameters(const VisionTransformer& network);
void check_vision(Problems& problems, const VisionTransformer& network, const Execution& execution);

// Patches take the place of tokens.
Execution vision_execution(const VisionTransformer& network, const Execution& execution);

}  // namespace trainyard::models
