// What NCCL chooses for a collective: algorithm, protocol and channels, by the time that its own
// tuning expects of each. These times decide; they are no prediction (they are off by a quarter to
// two thirds of what is measured, as they leave out the launch and the fabric).
//
// Of S bytes, n ranks on N servers, C channels of b GB/s each:
//
//   time       latency + S / bandwidth of the buffer
//   ring       Simple C b, LL128 min(.92 C b, C cap), LL min(C b / 2, cap); of the buffer:
//              times n / (2 (n - 1)) of an all-reduce, n / (n - 1) of a gather or a scatter, 1
//   tree       all-reduce: min(.92 C b, C cap), half of it the buffer's; LL128 120/128 (7/9 on one
//              server), LL 1/3.8; times a table of the protocol and floor(log2(S / 64))
//   nvls       switches reduce, one server: h heads of b', h b' e (h - 1)/h, twice that of an
//              all-reduce, (n - 1)/n of it of the others; e .85, Blackwell .74
//   nvls_tree  all-reduce over servers by such switches and a tree between them
//   pat        gathers and scatters of one rank on each server: .75 C b
//   latency    base + steps inside x hop + steps between x (hop + overhead), by protocol
//   channels   one fewer as long as S < channels x threads x bytes of a thread, then one more step
//              down; nvls: 16
//
// LL128 needs NVLink and Volta. Left out: CollNet (SHARP), trees of unequal servers, and the search
// of the topology, of which `Joined` holds what it ends with.
// Source: NVIDIA/nccl v2.30.7, src/graph/tuning.cc, src/graph/search.cc, src/graph/topo.h and
// src/enqueue.cc, restated.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "sim/base/collective_kind.h"
#include "sim/base/units.h"
#include "sim/collective/algorithm.h"
#include "sim/collective/protocol.h"

namespace trainyard::nccl {

// Of GPUs, by which the tuning keeps its constants.
enum class Generation : std::uint8_t { volta, ampere, hopper, blackwell };

// Of a CUDA compute capability ("8.0"); older ones count as Volta. Nothing without one.
std::optional<Generation> generation_of(std::string_view compute_capability);

enum class Method : std::uint8_t { tree, ring, nvls, nvls_tree, pat };

std::string_view name(Method method);

// The servers of a group, as the search of their topology ends.
struct Machine {
  Generation generation = Generation::ampere;
  bool nvlink = true;            // between the ranks of a server; else PCIe
  bool reducing_switch = false;  // which NVLS needs
  bool amd_processors = false;   // of the host; else Intel
  int channels = 24;             // launched for a large buffer: those of the search, doubled
  friend bool operator==(const Machine&, const Machine&) = default;
};

// A group on them. Bandwidths: of all channels together, per direction.
struct Joined {
  collective::Group group{2};
  Machine machine;
  BytesPerSecond inside;   // 0 with one rank on each server
  BytesPerSecond between;  // 0 on one server
};

struct Choice {
  Method method = Method::ring;
  Protocol protocol = Protocol::simple;
  int channels = 1;
  Seconds expected{};  // by NCCL, see above
};

// All that the library may take, the one that it takes first. Empty for an all-to-all and a shift,
// which are sends and receives. Requires: two ranks or more, bytes >= 0, bandwidths where there are
// links.
std::vector<Choice> choices(CollectiveKind kind, Bytes bytes, const Joined& joined);

}  // namespace trainyard::nccl
