#include "sim/plan/input/batches.h"

#include <array>
#include <numeric>
#include <string>

namespace trainyard::plan {

namespace {

constexpr Bytes kWord = Bytes(8);  // that a process tells another
constexpr StreamSet kInput = stream_bit(StreamKind::input);

}  // namespace

Rounds input_rounds(const recipe::InputPipeline& input, int microbatches) {
  const int steps = input.workers / std::gcd(input.workers, microbatches);
  return {.count = 2 * steps, .measured = steps, .whole = true};
}

InputBatches::InputBatches(StepPlan& step, StageConnections& connections,
                           const recipe::TrainingRecipe& recipe, const recipe::RankGrids& ranks,
                           int others)
    : connections_(connections),
      input_(*recipe.input),
      samples_(recipe.micro_batch.size),
      workers_(static_cast<std::uint32_t>(input_.workers)),
      all_batches_(step.shape.microbatches * step.rounds.count) {
  for (int r = 0; r < ranks.dense.world_size(); ++r)
    if (ranks.dense.coordinate(static_cast<Rank>(r), recipe::Axis::pipeline) == 0)
      takers_.push_back(static_cast<Player>(r));
  first_player_ =
      static_cast<std::uint32_t>(step.cast.players()) + static_cast<std::uint32_t>(others);
}

Player InputBatches::worker(std::size_t taker, std::uint32_t number) const {
  return static_cast<Player>(first_player_ + static_cast<std::uint32_t>(taker) * workers_ + number);
}

Player InputBatches::storage(std::size_t taker) const {
  const auto workers = static_cast<std::uint32_t>(takers_.size()) * workers_;
  return static_cast<Player>(first_player_ + workers + static_cast<std::uint32_t>(taker));
}

bool InputBatches::reads() const {
  return input_.read_time(samples_) > Seconds(0);
}

ConnectionId InputBatches::between(std::string_view name, bool comes, bool from_storage) {
  const auto describe = [&] {
    Connection connection{.traffic = Traffic::message,
                          .stream = StreamKind::input,
                          .arrives_on = StreamKind::input,
                          .group = OpGroup::input};
    for (std::size_t taker = 0; taker < takers_.size(); ++taker) {
      for (std::uint32_t number = 0; number < workers_; ++number) {
        const Player one = from_storage ? storage(taker) : worker(taker, number);
        const Player other = from_storage ? worker(taker, number) : takers_[taker];
        const std::array<Player, 2> pair = {comes ? one : other, comes ? other : one};
        connection.groups.add(pair);
      }
    }
    return connection;
  };
  return connections_.cast().connect(name, describe, workers_);
}

ConnectionId InputBatches::copies() {
  return connections_.cast().connect("batches to the device", [&] {
    Connection connection{.traffic = Traffic::host,
                          .host = HostTransfer::to_device,
                          .stream = StreamKind::to_device,
                          .group = OpGroup::input};
    for (const Player taker : takers_)
      connection.groups.add({&taker, 1});
    return connection;
  });
}

void InputBatches::work(ProgramBuilder& builder, Seconds time, const std::string& label,
                        StreamKind stream) {
  models::NamedKernel kernel;
  kernel.name = label;
  kernel.kernel = models::Timed{time};
  builder.work_beside(stream, {kernel}, 0, OpGroup::input, label);
}

// The place is free when the pass of the batch begins.
std::uint32_t InputBatches::take(ProgramBuilder& builder, int batch) {
  const auto number = static_cast<std::uint32_t>(batch) % workers_;
  const bool frees = batch + input_.workers * input_.prefetch < all_batches_;
  const auto [block, is_new] = blocks_.try_emplace({number, frees}, 0);
  if (!is_new) return block->second;
  const Bytes bytes = samples_ * input_.prepared_sample;
  // In turn it takes the memory that the batch before has left.
  if (input_.copy_ahead && batch == 0)
    builder.resident(MemoryKind::workspace, bytes, "the next batch");
  builder.begin_block();
  builder.receive(to_peer(batches(), number), kWord, "wait for a batch");
  const StreamSet compute = input_.copy_ahead ? 0 : stream_bit(StreamKind::compute);
  builder.collective(StreamKind::to_device, copies(), {CollectiveKind::broadcast, bytes},
                     kInput | compute, "copy a batch");
  builder.compute_waits_for(stream_bit(StreamKind::to_device));
  builder.settle_waits("batch");
  if (frees)
    builder.send(to_peer(places(), number), kWord, "free a place", PairPart::backward,
                 stream_bit(StreamKind::compute));
  if (const Seconds time = input_.gpu_time(samples_); time > Seconds(0))
    work(builder, time, "decode a batch", StreamKind::compute);
  block->second = builder.end_block();
  return block->second;
}

void InputBatches::add_role(Role role, ProgramBuilder& builder, std::uint32_t of_each) {
  Cast& cast = connections_.cast();
  for (const Player taker : takers_)
    role.beside.insert(role.beside.end(), of_each, taker);
  role.program = builder.finish();
  for (std::string& stream : role.program.streams.edit())
    stream = role.name + ": " + stream;
  cast.role_of.insert(cast.role_of.end(), role.beside.size(),
                      static_cast<std::uint32_t>(cast.roles.size()));
  cast.roles.push_back(std::move(role));
}

void InputBatches::add_workers() {
  Role role;
  role.name = "input worker";
  role.host.buffers = input_.held_by_worker(samples_);
  ProgramBuilder builder(connections_.cast(), connections_);
  std::array<std::optional<std::uint32_t>, 2> blocks;
  for (int own = 0; own < all_batches_ / input_.workers; ++own) {
    const bool waits = waits_for_place(own);
    std::optional<std::uint32_t>& block = blocks[waits ? 1 : 0];
    if (!block) {
      builder.begin_block();
      if (waits) builder.receive(places(), kWord, "wait for a place");
      if (reads()) {
        builder.send(requests(), kWord, "ask for samples", PairPart::backward, 0);
        builder.receive(samples(), kWord, "wait for samples");
      }
      work(builder, input_.prepare_time(samples_), "prepare a batch", StreamKind::input);
      builder.send(batches(), kWord, "hand over a batch", PairPart::backward, 0);
      block = builder.end_block();
    }
    builder.call(*block, static_cast<std::uint32_t>(own));
    role.calls.push_back({.kind = CallKind::step});
    role.round_calls.push_back(role.calls.size());
  }
  add_role(std::move(role), builder, workers_);
}

void InputBatches::add_storage() {
  Role role;
  role.name = "input storage";
  ProgramBuilder builder(connections_.cast(), connections_);
  builder.begin_block();
  for (std::uint32_t number = 0; number < workers_; ++number) {
    builder.receive(to_peer(requests(), number), kWord, "wait for a request");
    work(builder, input_.read_time(samples_), "read a batch", StreamKind::input);
    builder.send(to_peer(samples(), number), kWord, "hand over samples", PairPart::backward, 0);
  }
  const std::uint32_t block = builder.end_block();
  for (int turn = 0; turn < all_batches_ / input_.workers; ++turn) {
    builder.call(block, static_cast<std::uint32_t>(turn));
    role.calls.push_back({.kind = CallKind::step});
    role.round_calls.push_back(role.calls.size());
  }
  add_role(std::move(role), builder, 1);
}

void InputBatches::add_roles() {
  add_workers();
  if (reads()) add_storage();
}

}  // namespace trainyard::plan
