// Flags and copies with which kernels of different devices hand data to each other. Device code.
#pragma once

#include <cstdint>

namespace trainyard::probe {

__device__ inline unsigned long long nanoseconds() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// A flag is written by one thread of one device and read by one of another. A block writes its
// data, meets at __syncthreads(), and then one thread releases; the other side acquires with one
// thread and then meets at __syncthreads(). Release and acquire of system scope are cumulative, so
// the barrier carries all threads' accesses along (PTX ISA, memory consistency model: causality
// order).
__device__ inline void release_flag(std::uint64_t* flag, std::uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
}
__device__ inline std::uint64_t acquire_flag(const std::uint64_t* flag) {
  std::uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
  return value;
}

// Spins until `ready(value of the flag)`; false if the deadline (of the global timer) has passed. A
// partner that died must not hang the device.
template <class Ready>
__device__ inline bool wait_for_flag(const std::uint64_t* flag, unsigned long long deadline,
                                     Ready ready) {
  for (unsigned spins = 1; !ready(acquire_flag(flag)); ++spins)
    if (spins % 64 == 0 && nanoseconds() > deadline) return false;
  return true;
}

}  // namespace trainyard::probe
