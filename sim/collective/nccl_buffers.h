// The device memory that one rank of an NCCL communicator takes for its connections, which no
// framework's allocator sees.
//
// A connection has a buffer per protocol at its receiving end, in fragments of 2 MiB:
//   LL      8 lines x 512 threads x 8 steps x 16 bytes        512 KiB
//   LL128   120 elements x 640 threads x 8 steps x 8 bytes   4800 KiB
//   Simple  NCCL_BUFFSIZE                                     4 MiB
// together 9.19 MiB, so 10 MiB, and one fragment of flags at its sending end. A ring has one
// connection in and one out per channel; pairs that send and receive have both for each peer and
// channel of the peer. Peers in other servers are reached through two pools of 128 KiB x 16 steps x
// channels instead, one to send and one to receive.
//
// Not in it: trees (connected beside the rings by NCCL before 2.22), the multicast buffers of NVLS.
// Source: NCCL 2.18 to 2.28, src/init.cc (DEFAULT_BUFFSIZE, DEFAULT_LL_BUFFSIZE,
// DEFAULT_LL128_BUFFSIZE), src/transport/p2p.cc, src/transport/net.cc (sharedNetBuffersInit) and
// src/graph/paths.cc (ncclTopoComputeP2pChannels); user guide, NCCL_BUFFSIZE. The sizes 10,485,760
// and 2,097,152 are those of its log in NVIDIA/nccl#1685.
#pragma once

#include "sim/base/units.h"

namespace trainyard::nccl {

// Of one connection, at either end.
Bytes receiving_end();
Bytes sending_end();

// Of one rank of a ring.
Bytes ring(int channels);

// Of one rank that sends to and receives from so many peers of its own server and others.
// `channels`: of the communicator's rings. One that spans servers has two channels per peer, one
// within a server as many as the next power of two.
Bytes pairs(int channels, bool spans_servers, int local_peers, int remote_peers);

}  // namespace trainyard::nccl
