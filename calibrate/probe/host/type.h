// Number formats of operands, as samples spell them.
#pragma once

#include <cstddef>

namespace trainyard::probe {

enum class Type { fp32, tf32, fp16, bf16, fp8 };  // tf32 is kept as fp32; fp8 is e4m3

constexpr const char* type_name(Type type) {
  constexpr const char* kNames[] = {"fp32", "tf32", "fp16", "bf16", "fp8"};
  return kNames[static_cast<std::size_t>(type)];
}

constexpr std::size_t type_bytes(Type type) {
  constexpr std::size_t kBytes[] = {4, 4, 2, 2, 1};
  return kBytes[static_cast<std::size_t>(type)];
}

}  // namespace trainyard::probe
