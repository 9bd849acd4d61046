// Writes the program of one role of a parameter server.
#pragma once

#include <string>

#include "sim/plan/program_builder.h"
#include "sim/plan/replicas/server/messages.h"
#include "sim/plan/stage_connections.h"
#include "sim/recipe/recipe.h"

namespace trainyard::plan {

class ServerRoleBuilder {
 public:
  // All references must outlive it.
  ServerRoleBuilder(StepPlan& step, StageConnections& connections,
                    const recipe::TrainingRecipe& recipe, ServerMessages& messages,
                    std::string name, int server);

  void begin_block() { builder_.begin_block(); }
  // Ends the block and calls it so many times, each as a step.
  void end_block(int calls);

  void receive(ConnectionId from, Bytes bytes, const char* label) {
    builder_.receive(from, bytes, label);
  }
  void send(ConnectionId to, Bytes bytes, const char* label) { builder_.send(to, bytes, label); }
  // Reads and writes so much of the host's memory when all that was received so far has come.
  void touch(Bytes bytes, const char* label);
  // What is sent from here on waits for what was received and touched.
  void settle(const char* label);

  // States of these parameters are kept here.
  void keep(std::int64_t parameters);
  // What the optimizer reads and writes of them.
  Bytes update_bytes(std::int64_t parameters) const;
  Bytes gradient_bytes(std::int64_t parameters) const;
  Bytes parameter_bytes(std::int64_t parameters) const;

  // Adds the role, and so many players of it behind those that are there.
  void finish(int players);

  Role role;

 private:
  StepPlan& step_;
  const recipe::TrainingRecipe& recipe_;
  ServerMessages& messages_;
  ProgramBuilder builder_;
};

}  // namespace trainyard::plan
