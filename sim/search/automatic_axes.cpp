// What "auto" stands for on an axis of a search. The loader judges every combination; here are the
// values of which some may be valid.
#include <algorithm>
#include <array>
#include <functional>

#include "models/transformer/networks.h"
#include "sim/base/divide.h"
#include "sim/plan/replicas/data_parallel.h"
#include "sim/schedule/schedule.h"
#include "sim/search/space.h"

namespace trainyard::search {

using json::Value;
using scenario::Scenario;

namespace {

std::vector<Value> divisors_up_to(std::int64_t most, std::int64_t number) {
  std::vector<Value> found;
  for (const std::int64_t divisor : divisors(number))
    if (divisor <= most) found.push_back(Value::of(divisor));
  return found;
}

std::int64_t gpus_of(const Scenario& scenario) {
  return scenario.plan.degrees.world_size();
}

// Inside a server, whose links are made for it.
std::vector<Value> tensor(const Scenario& scenario) {
  const models::Transformer* stack = scenario.network.stack();
  if (stack == nullptr) return {};
  std::vector<Value> found = divisors_up_to(stack->heads, fewest_gpus_in_use(scenario.cluster));
  std::erase_if(found,
                [&](const Value& value) { return stack->heads % *json::find_integer(value) != 0; });
  return found;
}

std::vector<Value> pipeline(const Scenario& scenario) {
  if (!scenario.network.pipeline()) return {};
  return divisors_up_to(scenario.network.chain().divisible, gpus_of(scenario));
}

std::vector<Value> context(const Scenario& scenario) {
  constexpr std::int64_t kMost = 64;
  if (scenario.network.stack() == nullptr) return {};
  const std::int64_t length = scenario.recipe.micro_batch.sequence_length;
  std::vector<Value> found = divisors_up_to(kMost, gpus_of(scenario));
  std::erase_if(found, [&](const Value& value) {
    const std::int64_t parts = *json::find_integer(value);
    return parts > 1 && length % (2 * parts) != 0;
  });
  return found;
}

std::vector<Value> expert(const Scenario& scenario) {
  const auto* transformer = scenario.network.find<models::Transformer>();
  if (transformer == nullptr || transformer->moe.experts == 0) return {};
  return divisors_up_to(gpus_of(scenario), transformer->moe.experts);
}

std::vector<Value> micro_batch(const Scenario& scenario) {
  constexpr std::int64_t kMost = 1024;
  return divisors_up_to(kMost, scenario.recipe.global_batch);
}

std::vector<Value> words(std::initializer_list<const char*> names) {
  std::vector<Value> found;
  for (const char* name : names)
    found.push_back(Value::of(name));
  return found;
}

std::vector<Value> recompute(const Scenario& scenario) {
  if (scenario.network.stack() == nullptr) return words({"none", "full"});
  return words({"none", "selective", "full"});
}

std::vector<Value> schedules(const Scenario&) {
  std::vector<Value> found;
  for (const schedule::ScheduleEntry& entry : schedule::schedules())
    if (entry.updates == schedule::Updates::after_all) found.push_back(Value::of(entry.name));
  return found;
}

std::vector<Value> chunks(const Scenario& scenario) {
  constexpr std::int64_t kMost = 8;
  return divisors_up_to(kMost, scenario.network.chain().divisible);
}

// Those that need nothing of the machine and take nothing from the training.
std::vector<Value> sharding(const Scenario&) {
  return words({"allreduce", "distributed_optimizer", "zero1", "zero2", "zero3", "fsdp"});
}

std::vector<Value> flags(const Scenario&) {
  return {Value::of(false), Value::of(true)};
}

struct AutomaticAxis {
  const char* pointer;
  std::vector<Value> (*values)(const Scenario&);
};
constexpr std::array<AutomaticAxis, 12> kAutomatic = {
    {{"/parallelism/tp", tensor},
     {"/parallelism/pp", pipeline},
     {"/parallelism/cp", context},
     {"/parallelism/ep", expert},
     {"/training/micro_batch", micro_batch},
     {"/training/recompute", recompute},
     {"/parallelism/sequence_parallel", flags},
     {"/parallelism/pipeline/schedule", schedules},
     {"/parallelism/pipeline/chunks_per_stage", chunks},
     {"/parallelism/pipeline/overlap_passes", flags},
     {"/parallelism/data_parallel/kind", sharding},
     {"/training/fused_attention", flags}}};

}  // namespace

std::vector<Value> automatic_values(const std::string& pointer, const Scenario& scenario) {
  for (const AutomaticAxis& axis : kAutomatic)
    if (pointer == axis.pointer) return axis.values(scenario);
  return {};
}

std::vector<std::string> automatic_keys() {
  std::vector<std::string> keys;
  for (const AutomaticAxis& axis : kAutomatic) {
    std::string key = axis.pointer + 1;
    std::replace(key.begin(), key.end(), '/', '.');
    keys.push_back(std::move(key));
  }
  return keys;
}

}  // namespace trainyard::search
