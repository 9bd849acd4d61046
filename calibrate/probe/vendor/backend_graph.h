// Graphs of cuDNN's backend API: tensors and operations on them, and the plan that runs them. Only
// for builds with cuDNN.
#pragma once

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace trainyard::probe {

class CudnnError : public std::runtime_error {
 public:
  CudnnError(cudnnStatus_t status, const std::string& what)
      : std::runtime_error(what + ": " + cudnnGetErrorString(status) + last_message()) {}

 private:
  // What cuDNN says beside the status: which of its conditions was not met.
  static std::string last_message() {
    char text[256] = {};
#if CUDNN_MAJOR >= 9
    cudnnGetLastErrorString(text, sizeof text);
#endif
    std::string message = text;
    for (char& c : message)
      if (c == '\n') c = ' ';
    return message.empty() ? message : " (" + message + ")";
  }
};

inline void check_cudnn(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS) throw CudnnError(status, what);
}

// Owns a descriptor of the backend.
class Descriptor {
 public:
  Descriptor(cudnnBackendDescriptorType_t type, const char* what);
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { cudnnBackendDestroyDescriptor(descriptor_); }

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
           const void* values);
  void set(cudnnBackendAttributeName_t name, const Descriptor& other);
  void finalize();
  cudnnBackendDescriptor_t get() const { return descriptor_; }

 private:
  cudnnBackendDescriptor_t descriptor_ = nullptr;
  const char* what_;
};

using Extents = std::array<std::int64_t, 4>;

// [a][b][c][d] without gaps.
Extents packed_strides(const Extents& extents);
Extents swap_last(Extents extents);

struct Tensor {
  const Descriptor* descriptor = nullptr;
  Extents extents{};
  std::int64_t id = 0;
};

class BackendGraph {
 public:
  // In memory; its address is given when the plan runs.
  Tensor memory(cudnnDataType_t type, const Extents& extents, const Extents& strides);
  // Only inside of the graph.
  Tensor inner(cudnnDataType_t type, const Extents& extents, const Extents& strides);
  Tensor inner(cudnnDataType_t type, const Extents& extents) {
    return inner(type, extents, packed_strides(extents));
  }
  // One number, kept by the graph.
  Tensor scalar(float value);

  void multiply(const Tensor& a, const Tensor& b, const Tensor& product);
  void reduce(cudnnReduceTensorOp_t op, const Tensor& x, const Tensor& y);
  void reshape(const Tensor& x, const Tensor& y);
  // y = mode(x) or mode(x, *b); `select`: x where *t, else *b.
  void pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor* b, const Tensor* t,
                 const Tensor& y, cudnnDataType_t compute = CUDNN_DATA_FLOAT);
  void index(const Tensor& x, std::int64_t axis, const Tensor& y);

  // Asks the heuristics and takes the first engine that makes a plan; throws CudnnError if none
  // does.
  void plan(cudnnHandle_t handle);
  std::size_t workspace_bytes() const { return workspace_bytes_; }

  struct Address {
    std::int64_t id;
    void* data;
  };
  void run(cudnnHandle_t handle, const std::vector<Address>& addresses, void* workspace) const;

 private:
  struct Scalar {
    std::int64_t id;
    float value;
  };
  Tensor tensor(cudnnDataType_t type, const Extents& extents, const Extents& strides, bool is_inner,
                bool by_value);
  Descriptor& keep(cudnnBackendDescriptorType_t type, const char* what);

  std::vector<std::unique_ptr<Descriptor>> kept_;  // tensors, operations and what they refer to
  std::vector<cudnnBackendDescriptor_t> operations_;
  std::vector<std::unique_ptr<Scalar>> scalars_;  // whose addresses do not move
  std::unique_ptr<Descriptor> plan_;
  std::size_t workspace_bytes_ = 0;
  std::int64_t last_id_ = 0;
};

}  // namespace trainyard::probe
