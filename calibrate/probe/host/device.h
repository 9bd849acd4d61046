// CUDA with owners: errors become exceptions, memory, streams and events are values.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "type.h"

namespace trainyard::probe {

class CudaError : public std::runtime_error {
 public:
  CudaError(cudaError_t code, const std::string& text) : std::runtime_error(text), code_(code) {}
  bool out_of_memory() const { return code_ == cudaErrorMemoryAllocation; }

 private:
  cudaError_t code_;
};

// The machine has no device that CUDA can use; the text says why and what to do.
class NoDevice : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws CudaError: "gemm_suite.cu:120: cudaMalloc(...): out of memory".
void check_cuda(cudaError_t code, const char* call, const char* file, int line);
#define PROBE_CUDA(call) ::trainyard::probe::check_cuda((call), #call, __FILE__, __LINE__)
// After <<<...>>>.
#define PROBE_LAUNCHED() PROBE_CUDA(cudaGetLastError())

// Memory of the current device; aligned to 256 bytes at least.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t bytes) : bytes_(bytes) {
    PROBE_CUDA(cudaMalloc(&data_, bytes > 0 ? bytes : 1));
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceBuffer() { cudaFree(data_); }

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  template <class T>
  T* as(std::size_t byte_offset = 0) const {
    return reinterpret_cast<T*>(data() + byte_offset);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  void swap(DeviceBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Host memory that the devices can reach by DMA.
class PinnedBuffer {
 public:
  explicit PinnedBuffer(std::size_t bytes, unsigned flags = cudaHostAllocPortable) : bytes_(bytes) {
    PROBE_CUDA(cudaHostAlloc(&data_, bytes > 0 ? bytes : 1, flags));
  }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  ~PinnedBuffer() { cudaFreeHost(data_); }

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Of the device that is current when it is made. Does not wait for the legacy default stream.
class Stream {
 public:
  Stream() { PROBE_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&&) = delete;
  ~Stream() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  operator cudaStream_t() const { return stream_; }
  void wait() const { PROBE_CUDA(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  explicit Event(unsigned flags = cudaEventDefault) {
    PROBE_CUDA(cudaEventCreateWithFlags(&event_, flags));
  }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&&) = delete;
  ~Event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  operator cudaEvent_t() const { return event_; }
  void record(cudaStream_t stream) const { PROBE_CUDA(cudaEventRecord(event_, stream)); }
  void wait() const { PROBE_CUDA(cudaEventSynchronize(event_)); }

 private:
  cudaEvent_t event_ = nullptr;
};

double elapsed_us(const Event& start, const Event& stop);

struct DeviceInfo {
  int index = 0;  // CUDA's ordinal
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  std::size_t memory_bytes = 0;
  std::size_t l2_bytes = 0;
  int memory_bus_bits = 0;
  double memory_clock_mhz = 0;  // 0: not said
  double clock_mhz = 0;         // highest
  std::string pci;              // "0000:17:00.0", lower case
  bool at_least(int a, int b) const { return major > a || (major == a && minor >= b); }
};

int device_count();  // throws NoDevice
DeviceInfo device_info(int index);
// Throws NoDevice if the program holds no code that the device runs: it is older than all that it
// was compiled for.
void need_kernels(const DeviceInfo& device);
std::size_t free_memory();  // bytes of the current device

// Fills with seeded random values in (-1, 1) that are not zero. Zeros would be a lie: power, and
// with it the clock under load, depends on the bits that toggle.
void fill_random(Type type, void* data, std::size_t count, std::uint64_t seed, cudaStream_t stream);

}  // namespace trainyard::probe
