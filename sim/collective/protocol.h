// How NCCL writes what it sends: lines with flags (LL, LL128) are quick, plain buffers (Simple) are
// wide. Source: NVIDIA/nccl, src/include/nccl_common.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace trainyard::nccl {

enum class Protocol : std::uint8_t { ll, ll128, simple };

inline constexpr std::array kProtocols = {Protocol::ll, Protocol::ll128, Protocol::simple};

// As NCCL_PROTO has it, in lower case.
constexpr std::string_view name(Protocol protocol) {
  constexpr std::array<std::string_view, 3> kNames = {"ll", "ll128", "simple"};
  return kNames[static_cast<std::size_t>(protocol)];
}

// The protocol of that name; nothing for another word.
constexpr std::optional<Protocol> find_protocol(std::string_view word) {
  for (const Protocol protocol : kProtocols)
    if (name(protocol) == word) return protocol;
  return std::nullopt;
}

}  // namespace trainyard::nccl
