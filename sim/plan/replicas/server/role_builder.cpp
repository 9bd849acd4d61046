#include "sim/plan/replicas/server/role_builder.h"

#include <utility>

#include "sim/plan/step_memory.h"

namespace trainyard::plan {

namespace {

StateBytes whole_states(std::int64_t parameters, const recipe::TrainingRecipe& recipe) {
  return state_bytes(parameters, recipe, DataParallelStrategy{});
}

}  // namespace

ServerRoleBuilder::ServerRoleBuilder(StepPlan& step, StageConnections& connections,
                                     const recipe::TrainingRecipe& recipe, ServerMessages& messages,
                                     std::string name, int server)
    : step_(step), recipe_(recipe), messages_(messages), builder_(step.cast, connections) {
  role.name = std::move(name);
  role.host_server = server;
}

void ServerRoleBuilder::end_block(int calls) {
  const std::uint32_t block = builder_.end_block();
  for (int call = 0; call < calls; ++call) {
    builder_.call(block, static_cast<std::uint32_t>(call));
    role.calls.push_back({.kind = CallKind::step});
    role.round_calls.push_back(role.calls.size());
  }
}

void ServerRoleBuilder::touch(Bytes bytes, const char* label) {
  builder_.collective(StreamKind::host_optimizer, messages_.memory(),
                      {CollectiveKind::broadcast, bytes}, stream_bit(StreamKind::data), label);
}

void ServerRoleBuilder::settle(const char* label) {
  builder_.compute_waits_for(stream_bit(StreamKind::host_optimizer));
  builder_.settle_waits(label);
}

void ServerRoleBuilder::keep(std::int64_t parameters) {
  const StateBytes states = whole_states(parameters, recipe_);
  role.parameters += parameters;
  role.host.parameters = role.host.parameters + states.parameters;
  role.host.gradients = role.host.gradients + states.gradients;
  role.host.optimizer_state = role.host.optimizer_state + states.optimizer_state;
}

Bytes ServerRoleBuilder::update_bytes(std::int64_t parameters) const {
  const models::MemoryBound update = optimizer_kernel(parameters, recipe_, DataParallelStrategy{});
  return update.read + update.written;
}

Bytes ServerRoleBuilder::gradient_bytes(std::int64_t parameters) const {
  return whole_states(parameters, recipe_).gradients;
}

Bytes ServerRoleBuilder::parameter_bytes(std::int64_t parameters) const {
  return whole_states(parameters, recipe_).parameters;
}

void ServerRoleBuilder::finish(int players) {
  role.program = builder_.finish();
  for (std::string& stream : role.program.streams.edit())
    stream = "parameter server: " + stream;
  Cast& cast = step_.cast;
  cast.role_of.insert(cast.role_of.end(), static_cast<std::size_t>(players),
                      static_cast<std::uint32_t>(cast.roles.size()));
  cast.roles.push_back(std::move(role));
}

}  // namespace trainyard::plan
