#ifdef TRAINYARD_PROBE_CUDNN
#include "backend_graph.h"

#include <utility>

namespace trainyard::probe {

Descriptor::Descriptor(cudnnBackendDescriptorType_t type, const char* what) : what_(what) {
  check_cudnn(cudnnBackendCreateDescriptor(type, &descriptor_), what);
}

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                     std::int64_t count, const void* values) {
  check_cudnn(cudnnBackendSetAttribute(descriptor_, name, type, count, values), what_);
}

void Descriptor::set(cudnnBackendAttributeName_t name, const Descriptor& other) {
  const cudnnBackendDescriptor_t value = other.get();
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void Descriptor::finalize() {
  check_cudnn(cudnnBackendFinalize(descriptor_), what_);
}

Extents packed_strides(const Extents& e) {
  return {e[1] * e[2] * e[3], e[2] * e[3], e[3], 1};
}

Extents swap_last(Extents extents) {
  std::swap(extents[2], extents[3]);
  return extents;
}

Descriptor& BackendGraph::keep(cudnnBackendDescriptorType_t type, const char* what) {
  kept_.push_back(std::make_unique<Descriptor>(type, what));
  return *kept_.back();
}

Tensor BackendGraph::tensor(cudnnDataType_t type, const Extents& extents, const Extents& strides,
                            bool is_inner, bool by_value) {
  Descriptor& d = keep(CUDNN_BACKEND_TENSOR_DESCRIPTOR, "a tensor of cuDNN");
  const std::int64_t id = ++last_id_;
  const std::int64_t alignment = 16;
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, extents.data());
  d.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.data());
  d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
  d.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
  d.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_inner);
  d.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
  d.finalize();
  return {&d, extents, id};
}

Tensor BackendGraph::memory(cudnnDataType_t type, const Extents& extents, const Extents& strides) {
  return tensor(type, extents, strides, false, false);
}

Tensor BackendGraph::inner(cudnnDataType_t type, const Extents& extents, const Extents& strides) {
  return tensor(type, extents, strides, true, false);
}

Tensor BackendGraph::scalar(float value) {
  const Tensor one = tensor(CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true);
  scalars_.push_back(std::make_unique<Scalar>(Scalar{one.id, value}));
  return one;
}

void BackendGraph::multiply(const Tensor& a, const Tensor& b, const Tensor& product) {
  Descriptor& rule = keep(CUDNN_BACKEND_MATMUL_DESCRIPTOR, "a product of cuDNN");
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  rule.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  rule.finalize();
  Descriptor& op = keep(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "a product of cuDNN");
  op.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, *a.descriptor);
  op.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, *b.descriptor);
  op.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, *product.descriptor);
  op.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, rule);
  op.finalize();
  operations_.push_back(op.get());
}

void BackendGraph::reduce(cudnnReduceTensorOp_t mode, const Tensor& x, const Tensor& y) {
  Descriptor& rule = keep(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, "a reduction of cuDNN");
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  rule.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  rule.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
  rule.finalize();
  Descriptor& op = keep(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "a reduction of cuDNN");
  op.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, *x.descriptor);
  op.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, *y.descriptor);
  op.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, rule);
  op.finalize();
  operations_.push_back(op.get());
}

void BackendGraph::reshape(const Tensor& x, const Tensor& y) {
  Descriptor& op = keep(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, "a reshape of cuDNN");
  op.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, *x.descriptor);
  op.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, *y.descriptor);
  op.finalize();
  operations_.push_back(op.get());
}

void BackendGraph::pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor* b,
                             const Tensor* t, const Tensor& y, cudnnDataType_t compute) {
  Descriptor& rule = keep(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "an elementwise operation of cuDNN");
  rule.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  rule.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  rule.finalize();
  Descriptor& op =
      keep(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "an elementwise operation of cuDNN");
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, rule);
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *x.descriptor);
  if (b != nullptr) op.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b->descriptor);
  if (t != nullptr) op.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *t->descriptor);
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, *y.descriptor);
  op.finalize();
  operations_.push_back(op.get());
}

void BackendGraph::index(const Tensor& x, std::int64_t axis, const Tensor& y) {
  Descriptor& rule = keep(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "an index of cuDNN");
  const cudnnPointwiseMode_t mode = CUDNN_POINTWISE_GEN_INDEX;
  const cudnnDataType_t compute = CUDNN_DATA_INT32;
  rule.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  rule.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  rule.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
  rule.finalize();
  Descriptor& op = keep(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "an index of cuDNN");
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, rule);
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *x.descriptor);
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, *y.descriptor);
  op.finalize();
  operations_.push_back(op.get());
}

void BackendGraph::plan(cudnnHandle_t handle) {
  // Graph, heuristics and engines are kept: the manual does not say that a plan needs none of them.
  Descriptor& graph = keep(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "the graph of cuDNN");
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            static_cast<std::int64_t>(operations_.size()), operations_.data());
  graph.finalize();

  Descriptor& heuristics = keep(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "the heuristics of cuDNN");
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  heuristics.finalize();

  constexpr std::int64_t kMost = 8;
  std::vector<cudnnBackendDescriptor_t> engines;
  for (std::int64_t i = 0; i < kMost; ++i) {
    engines.push_back(keep(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "an engine of cuDNN").get());
  }
  std::int64_t found = 0;
  check_cudnn(
      cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                               CUDNN_TYPE_BACKEND_DESCRIPTOR, kMost, &found, engines.data()),
      "the heuristics of cuDNN");

  cudnnStatus_t refused = CUDNN_STATUS_NOT_SUPPORTED;
  for (std::int64_t i = 0; i < found && i < kMost; ++i) {
    auto candidate =
        std::make_unique<Descriptor>(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "a plan of cuDNN");
    candidate->set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    const cudnnBackendDescriptor_t engine = engines[static_cast<std::size_t>(i)];
    cudnnStatus_t status =
        cudnnBackendSetAttribute(candidate->get(), CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
    if (status == CUDNN_STATUS_SUCCESS) status = cudnnBackendFinalize(candidate->get());
    if (status != CUDNN_STATUS_SUCCESS) {
      refused = status;  // the next engine may do
      continue;
    }
    std::int64_t bytes = 0;
    std::int64_t count = 0;
    check_cudnn(cudnnBackendGetAttribute(candidate->get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                         CUDNN_TYPE_INT64, 1, &count, &bytes),
                "a plan of cuDNN");
    workspace_bytes_ = static_cast<std::size_t>(bytes);
    plan_ = std::move(candidate);
    return;
  }
  throw CudnnError(refused, "cuDNN offers " + std::to_string(found) + " engines and no plan");
}

void BackendGraph::run(cudnnHandle_t handle, const std::vector<Address>& addresses,
                       void* workspace) const {
  std::vector<std::int64_t> ids;
  std::vector<void*> data;
  for (const Address& address : addresses) {
    ids.push_back(address.id);
    data.push_back(address.data);
  }
  for (const auto& scalar : scalars_) {
    ids.push_back(scalar->id);
    data.push_back(&scalar->value);
  }
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "the arguments of cuDNN");
  const auto count = static_cast<std::int64_t>(ids.size());
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, data.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  pack.finalize();
  check_cudnn(cudnnBackendExecute(handle, plan_->get(), pack.get()), "attention by cuDNN");
}

}  // namespace trainyard::probe
#endif
