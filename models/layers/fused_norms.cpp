#include "models/layers/fused_norms.h"

namespace trainyard::models {

FusedNorms::FusedNorms(const LayerNetwork& network, const Readers& readers, bool wanted)
    : operations_(network.operations), roles_(network.operations.size(), Role::none) {
  if (!wanted) return;
  // From the last: of two norms that an addition joins, the later one runs it.
  for (std::size_t i = operations_.size(); i-- > 0;)
    if (operations_[i].row.op == TableOp::batch_norm) fuse(operations_[i], readers);
}

void FusedNorms::fuse(const LayerOperation& norm, const Readers& readers) {
  const auto index = [&](const LayerOperation& o) { return &o - operations_.data(); };
  const auto behind = [&](const LayerOperation& o, TableOp op) -> const LayerOperation* {
    const int only = readers.only(static_cast<int>(index(o)));
    if (only < 0) return nullptr;
    const LayerOperation& reader = operations_[static_cast<std::size_t>(only)];
    const bool is_free = role(reader) == Role::none && reader.layer == norm.layer;
    return is_free && reader.row.op == op ? &reader : nullptr;
  };
  const auto set = [&](const LayerOperation& o, Role role) {
    roles_[static_cast<std::size_t>(index(o))] = role;
  };
  const LayerOperation* addition = behind(norm, TableOp::add);
  if (addition != nullptr && addition->inputs.size() != 2) return;
  const LayerOperation* activation = behind(addition != nullptr ? *addition : norm, TableOp::relu);
  if (activation == nullptr) return;
  set(*activation, Role::absorbed);
  if (addition != nullptr) set(*addition, Role::absorbed);
  set(norm, addition != nullptr ? Role::adding : Role::activating);
}

}  // namespace trainyard::models
