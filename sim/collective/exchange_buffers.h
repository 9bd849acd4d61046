// The device memory that one rank takes to exchange rows of experts that share their way, which no
// framework's allocator and no communicator of NCCL sees.
//
// Up to eight ranks of a server: DeepEP's queues, with 20 multiprocessors, so 10 channels. For each
// channel and rank of the server as many tokens as its tables give a group of that size; between
// servers twice 128 for each channel and server. A token has its row in two bytes a number, and 2
// KiB for up to 128 choices, weights and scales.
// Source: deepseek-ai/DeepEP, csrc/config.hpp (get_nvl_buffer_size_hint, get_rdma_buffer_size_hint)
// and deep_ep/buffer.py (get_dispatch_config).
//
// More, as on a rack: HybridEP's buffers, one to dispatch and one to combine, each with room for
// the tokens of all ranks and fp32 weights for all experts of its server. Source:
// deepseek-ai/DeepEP, branch hybrid-ep, allocate_buffer_for_dispatch and _for_combine.
#pragma once

#include <cstdint>

#include "sim/base/units.h"

namespace trainyard::collective {

struct RowExchange {
  int ranks = 1, per_server = 1;  // per_server: the most on one server
  std::int64_t tokens = 0;        // of a rank
  std::int64_t hidden = 0;        // numbers of a row
  std::int64_t experts = 0;       // of a layer
};

// Requires: 1 <= per_server <= ranks.
Bytes exchange_buffers(const RowExchange& exchange);

}  // namespace trainyard::collective
