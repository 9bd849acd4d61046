#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cctype>
#include <cstring>

#include "device.h"

namespace trainyard::probe {
namespace {

// splitmix64 (Steele, Lea, Flood 2014): a full mix of a counter, so every element is independent.
__device__ std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// In (-1, -1/64] or [1/64, 1): the least of them is a normal number of fp8 e4m3.
__device__ float random_value(std::uint64_t seed, std::uint64_t index) {
  const std::uint64_t bits = mix(seed ^ mix(index));
  const float share = static_cast<float>(bits >> 41) * (1.0f / (1u << 23));  // [0, 1)
  const float size = 0.015625f + share * 0.98f;
  return (bits & 1) != 0 ? size : -size;
}

template <class T>
__global__ void fill_kernel(T* data, std::size_t count, std::uint64_t seed) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step)
    data[i] = static_cast<T>(random_value(seed, i));
}

template <class T>
void fill(void* data, std::size_t count, std::uint64_t seed, cudaStream_t stream) {
  if (count == 0) return;
  constexpr std::size_t kThreads = 256;
  const std::size_t blocks = std::min<std::size_t>((count + kThreads - 1) / kThreads, 8192);
  fill_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(static_cast<T*>(data), count,
                                                                      seed);
  PROBE_LAUNCHED();
}

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  PROBE_CUDA(cudaDeviceGetAttribute(&value, which, device));
  return value;
}

}  // namespace

void check_cuda(cudaError_t code, const char* call, const char* file, int line) {
  if (code == cudaSuccess) return;
  cudaGetLastError();  // an error that is not sticky must not be reported again by the next launch
  const char* name = std::strrchr(file, '/');
  throw CudaError(code, std::string(name != nullptr ? name + 1 : file) + ":" +
                            std::to_string(line) + ": " + call + ": " + cudaGetErrorString(code));
}

double elapsed_us(const Event& start, const Event& stop) {
  float ms = 0;
  PROBE_CUDA(cudaEventElapsedTime(&ms, start, stop));
  return static_cast<double>(ms) * 1e3;
}

int device_count() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaErrorInsufficientDriver) {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    if (driver == 0)
      throw NoDevice(
          "no CUDA device was found: no NVIDIA driver is loaded; run this on a machine with an "
          "NVIDIA GPU where nvidia-smi works (in a container: start it with --gpus all)");
    throw NoDevice("the NVIDIA driver is older than the CUDA " +
                   std::to_string(CUDART_VERSION / 1000) + "." +
                   std::to_string(CUDART_VERSION % 1000 / 10) +
                   " that this program was built with (the driver supports " +
                   std::to_string(driver / 1000) + "." + std::to_string(driver % 1000 / 10) +
                   "); update the driver, or build with an older CUDA toolkit");
  }
  if (code != cudaSuccess && code != cudaErrorNoDevice)
    throw NoDevice(std::string("no CUDA device can be used: ") + cudaGetErrorString(code) +
                   "; see what nvidia-smi says");
  if (code == cudaErrorNoDevice || count == 0)
    throw NoDevice(
        "no CUDA device was found: the driver is there but shows none; see nvidia-smi and "
        "CUDA_VISIBLE_DEVICES");
  return count;
}

DeviceInfo device_info(int index) {
  cudaDeviceProp properties;
  PROBE_CUDA(cudaGetDeviceProperties(&properties, index));
  DeviceInfo info;
  info.index = index;
  info.name = properties.name;
  info.major = properties.major;
  info.minor = properties.minor;
  info.multiprocessors = properties.multiProcessorCount;
  info.memory_bytes = properties.totalGlobalMem;
  info.l2_bytes = static_cast<std::size_t>(std::max(0, properties.l2CacheSize));
  info.memory_bus_bits = properties.memoryBusWidth;
  // The properties lost their clocks with CUDA 13; the attributes (kHz) stayed.
  info.clock_mhz = attribute(cudaDevAttrClockRate, index) * 1e-3;
  info.memory_clock_mhz = attribute(cudaDevAttrMemoryClockRate, index) * 1e-3;
  char pci[32] = {};
  PROBE_CUDA(cudaDeviceGetPCIBusId(pci, sizeof pci, index));
  info.pci = pci;
  std::transform(info.pci.begin(), info.pci.end(), info.pci.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return info;
}

void need_kernels(const DeviceInfo& device) {
  PROBE_CUDA(cudaSetDevice(device.index));
  cudaFuncAttributes attributes;
  const cudaError_t code = cudaFuncGetAttributes(&attributes, fill_kernel<float>);
  if (code == cudaErrorNoKernelImageForDevice || code == cudaErrorInvalidDeviceFunction ||
      code == cudaErrorUnsupportedPtxVersion) {
    const std::string capability = std::to_string(device.major) + std::to_string(device.minor);
    throw NoDevice(device.name + " runs no kernel of this program: " + cudaGetErrorString(code) +
                   "; build it again with -DTRAINYARD_PROBE_ARCHITECTURES=" + capability +
                   " (with nvcc alone: -arch=sm_" + capability + "), or update the driver");
  }
  PROBE_CUDA(code);
}

std::size_t free_memory() {
  std::size_t free = 0, total = 0;
  PROBE_CUDA(cudaMemGetInfo(&free, &total));
  return free;
}

void fill_random(Type type, void* data, std::size_t count, std::uint64_t seed,
                 cudaStream_t stream) {
  switch (type) {
    case Type::fp32:
    case Type::tf32: return fill<float>(data, count, seed, stream);
    case Type::fp16: return fill<__half>(data, count, seed, stream);
    case Type::bf16: return fill<__nv_bfloat16>(data, count, seed, stream);
    case Type::fp8: return fill<__nv_fp8_e4m3>(data, count, seed, stream);
  }
}

}  // namespace trainyard::probe
