// torch.nn.DataParallel: one process with a thread for each GPU. In every pass GPU 0 gives each its
// part of the batch and a copy of the parameters, gathers what they put out, computes the loss of
// all, hands out its gradients, and sums those of the parameters when all of them are there. It
// alone has gradients that stay, the optimizer's states and the update.
//
//   bytes   P to all and G from all in every pass, with n - 1 inputs, outputs and their gradients
//   memory  GPU 0: P, O; at the end of a pass 2 G, before it n times what the loss keeps and needs.
//           Others: P and G while a pass is under way
//   host    threads launch their forward passes at once, of which `lock_share` needs the
//           interpreter's lock: n of them take max(1, lock_share n) times as long as one. Making
//           the copies is taken to take as long as a launch for each weight matrix and GPU.
//           Backward passes have threads of their own, in which no interpreter runs.
//
// What NCCL reduces to one takes as long as what it sends from one: the same bytes on the same
// links the other way. Source: PyTorch 2.6, torch/nn/parallel (data_parallel.py, replicate.py,
// scatter_gather.py, parallel_apply.py, _functions.py, comm.py's reduce_add_coalesced);
// torch/csrc/cuda/comm.cpp (broadcast_coalesced).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "sim/plan/replicas/leader/loss_place.h"
#include "sim/plan/replicas/parts/owners.h"
#include "sim/plan/replicas/parts/parts.h"
#include "sim/plan/replicas/replica_part.h"

namespace trainyard::plan {

using schedule::Pass;

namespace {

// Of flat buffers, in both directions. Source: comm.py, buffer_size=10485760.
constexpr Bytes kBuffer = Bytes(10485760);
// A loss of one GPU, and its gradient.
constexpr Bytes kScalar = Bytes(4);
constexpr const char* kCopy = "copy of the parameters";

// What GPU 0 and each of the others tell each other; ports of GPU 0 by number of the other less 1.
class FirstGpuMessages {
 public:
  FirstGpuMessages(Cast& cast, int ranks) : cast_(cast), others_(ranks - 1) {}

  int others() const { return others_; }
  ConnectionId inputs() { return connect("inputs from GPU 0", true, true); }
  ConnectionId outputs() { return connect("outputs to GPU 0", false, true); }
  ConnectionId gradients() { return connect("gradients of outputs from GPU 0", true, false); }

 private:
  ConnectionId connect(std::string_view name, bool from_first, bool forward) {
    const auto describe = [&] {
      Connection connection{
          .traffic = Traffic::message,
          .stream = forward ? StreamKind::send_forward : StreamKind::send_backward,
          .arrives_on = forward ? StreamKind::receive_forward : StreamKind::receive_backward,
          .group = OpGroup::data,
          .copied = true};
      for (int other = 1; other <= others_; ++other) {
        std::array<Player, 2> pair = {Player{0}, static_cast<Player>(other)};
        if (!from_first) std::swap(pair[0], pair[1]);
        connection.groups.add(pair);
      }
      return connection;
    };
    return cast_.connect(name, describe, static_cast<std::uint32_t>(others_));
  }

  Cast& cast_;
  int others_;
};

class OneProcess : public ReplicaPart {
 public:
  explicit OneProcess(ReplicaContext& context)
      : context_(context),
        builder_(context.builder),
        messages_(context.builder.connections().cast(), context.plan.degrees.data) {}

  void hold(const StageParameters& stage, const StateBytes& states) override {
    const Bytes frozen = stage.frozen[0] + stage.frozen[1];
    parameters_ = states.parameters + frozen;
    gradients_ = states.gradients;
    std::int64_t modules = 0;
    for (const models::WeightMatrix& matrix : stage.matrices)
      modules += matrix.count;
    copies_ = static_cast<std::uint32_t>(modules * context_.plan.degrees.data);
    sent_ = buffers(stage, states.parameters, Fill::past);
    for (Bytes left = frozen; left > Bytes(0); left = left - sent_.back().bytes)
      sent_.push_back({std::min(left, kBuffer)});
    reduced_ = buffers(stage, states.gradients, Fill::within);
  }

  // The first gradients of a step become its sums, and others are added to them.
  PassRole distinguishes(bool forward) const override {
    return {.first = !forward && context_.accumulates()};
  }

  void begin() override {
    if (context_.pass != Pass::forward) return;
    if (context_.leads) {
      send_each(messages_.inputs(), context_.work.input, "scatter inputs", PairPart::forward);
    } else {
      builder_.receive(messages_.inputs(), context_.work.input, "receive inputs",
                       PairPart::forward);
      builder_.hold(MemoryKind::parameters, parameters_, kCopy);
    }
    replicate();
  }

  void before(int place) override {
    if (context_.pass == Pass::forward && is_loss(place)) gather();
  }

  void after(int place) override {
    const bool of_inputs = context_.pass != Pass::forward && context_.pass != Pass::backward_weight;
    if (of_inputs && is_loss(place)) scatter_gradients();
  }

  void end() override {
    if (schedule::ends_backward(context_.pass))
      reduce();
    else if (context_.recipe.forward_only && !context_.leads)
      builder_.release(MemoryKind::parameters, parameters_, kCopy);
  }

 private:
  bool is_loss(int place) const { return place + 1 == context_.range.last; }
  Bytes output() const {
    return context_.plan.data_parallel.loss_in_model
               ? kScalar
               : context_.layer(context_.range.last - 2).output;
  }

  // What becomes of the array with which a buffer goes past its size: it is the last of it
  // (take_tensors in C++), or the first of the next (_take_tensors in Python).
  enum class Fill : std::uint8_t { past, within };
  // `all` bytes in flat buffers: whole arrays, of which those that are no matrices are one.
  struct Buffer {
    Bytes bytes;
    bool copied = true;  // one array alone is its own buffer
  };
  std::vector<Buffer> buffers(const StageParameters& stage, Bytes all, Fill fill) const;

  void send_each(ConnectionId connection, Bytes bytes, const std::string& label, PairPart part) {
    for (int other = 0; other < messages_.others(); ++other)
      builder_.send(to_peer(connection, static_cast<std::uint32_t>(other)), bytes, label, part);
  }
  void replicate();
  void gather();
  void scatter_gradients();
  void reduce();

  ReplicaContext& context_;
  ProgramBuilder& builder_;
  FirstGpuMessages messages_;
  Bytes parameters_, gradients_;
  std::uint32_t copies_ = 0;  // of modules, over all GPUs
  std::vector<Buffer> sent_, reduced_;
};

std::vector<OneProcess::Buffer> OneProcess::buffers(const StageParameters& stage, Bytes all,
                                                    Fill fill) const {
  if (stage.dense == 0) return {};
  const Bytes each(all.count() / stage.dense);
  std::vector<Buffer> full;
  Bytes open;
  int arrays = 0;
  const auto close = [&] {
    if (arrays > 0) full.push_back({open, arrays > 1});
    open = Bytes(0), arrays = 0;
  };
  const auto add = [&](std::int64_t numbers) {
    const Bytes array = numbers * each;
    if (fill == Fill::within && open + array > kBuffer) close();
    open = open + array, ++arrays;
    if (fill == Fill::past && open >= kBuffer) close();
  };
  std::int64_t rest = stage.dense;
  for (const models::WeightMatrix& matrix : stage.matrices) {
    for (std::int64_t n = 0; n < matrix.count; ++n)
      add(matrix.each());
    rest -= matrix.elements();
  }
  if (rest > 0) add(rest);
  close();
  return full;
}

void OneProcess::replicate() {
  int number = 0;
  for (const auto& [bytes, copied] : sent_) {
    if (context_.leads && copied)
      context_.copy("copy parameters into buffer", bytes, bytes, OpGroup::compute);
    builder_.collective(StreamKind::data, context_.within(context_.groups[0]),
                        {CollectiveKind::broadcast, bytes}, stream_bit(StreamKind::compute),
                        fmt::format("replicate parameters {}", number++), PairPart::forward);
    builder_.compute_waits_for(stream_bit(StreamKind::data));
  }
  // The host copies modules when all is under way.
  builder_.mark(StreamKind::compute, 0, "copy modules", copies_);
  builder_.settle_waits("wait for parameters");
}

void OneProcess::gather() {
  if (!context_.leads)
    return builder_.send(messages_.outputs(), output(), "send outputs", PairPart::forward);
  for (int other = 0; other < messages_.others(); ++other)
    builder_.receive(to_peer(messages_.outputs(), static_cast<std::uint32_t>(other)), output(),
                     "gather outputs", PairPart::forward);
  builder_.settle_waits("wait for outputs");
}

void OneProcess::scatter_gradients() {
  if (context_.leads)
    return send_each(messages_.gradients(), output(), "scatter gradients of outputs",
                     PairPart::backward);
  builder_.receive(messages_.gradients(), output(), "receive gradients of outputs",
                   PairPart::backward);
  builder_.settle_waits("wait for gradients of outputs");
}

void OneProcess::reduce() {
  if (context_.leads) builder_.hold(MemoryKind::gradients, gradients_, kGradients);
  int number = 0;
  for (const auto& [bytes, copied] : reduced_) {
    if (copied) context_.copy("copy gradients into buffer", bytes, bytes, OpGroup::compute);
    builder_.collective(StreamKind::data, context_.within(context_.groups[0]),
                        {CollectiveKind::broadcast, bytes}, stream_bit(StreamKind::compute),
                        fmt::format("reduce gradients {}", number++));
    builder_.compute_waits_for(stream_bit(StreamKind::data));
  }
  builder_.settle_waits("wait for gradients");
  builder_.release(MemoryKind::gradients, gradients_, kGradients);
  if (!context_.leads) {
    builder_.release(MemoryKind::parameters, parameters_, kCopy);
  } else if (context_.accumulates() && !context_.role.first) {
    context_.copy("add gradients to their sums", 2 * gradients_, gradients_, OpGroup::compute);
    builder_.release(MemoryKind::gradients, gradients_, kGradients);
  }
}

// Without a leader's part there is none.
std::unique_ptr<ReplicaPart> update_of_leader(ReplicaContext& context) {
  return context.leads ? optimizer_step()(context) : std::make_unique<ReplicaPart>();
}

models::NetworkWork seen_by(const models::NetworkWork& work, const recipe::ParallelPlan& plan,
                            bool leads) {
  models::NetworkWork seen = work;
  const recipe::DataParallelOptions& options = plan.data_parallel;
  slow_launches(seen, std::max(1.0, options.lock_share * plan.degrees.data));
  if (options.loss_in_model) return with_loss_within(seen);
  return with_loss_apart(seen, leads ? plan.degrees.data : 0);
}

}  // namespace

DataParallelStrategy nn_data_parallel(const recipe::DataParallelOptions& /*options*/,
                                      const recipe::TrainingRecipe& /*recipe*/, int /*ranks*/) {
  DataParallelStrategy strategy;
  strategy.each_microbatch = true;
  strategy.fresh_gradients = true;
  strategy.seen_by = seen_by;
  strategy.parts = {[](ReplicaContext& context) { return std::make_unique<OneProcess>(context); },
                    update_of_leader};
  return strategy;
}

}  // namespace trainyard::plan
