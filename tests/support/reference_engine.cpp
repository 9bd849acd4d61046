#include "tests/support/reference_engine.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "tests/support/rooms.h"

namespace trainyard::testing {
namespace {

using Wide = __int128;

struct RefFlow {
  Path path;
  std::int64_t limit = 0, rate = 0;
  Wide left = 0;  // bytes x 1e12
};

struct RefOp {
  std::size_t actor = 0, call = 0, index = 0, order = 0;
  const Op* op = nullptr;
  Duration issued{};
  Duration launches_from{};
  std::size_t sequence = 0;  // among the actor's ops of this kind and port
  std::optional<Duration> begin, end;
  Duration active{};
  // compute
  std::size_t kernel = 0;
  std::optional<Duration> kernel_begin;
  Wide left = 0;  // of the present kernel, ps x units x 256
  std::vector<KernelSpan> kernels;
};

// All ops that belong together: the members' k-th collectives, or the k-th send and receive.
struct RefExchange {
  std::vector<RefOp*> members;  // collectives
  RefOp* send = nullptr;
  RefOp* receive = nullptr;
  std::size_t expected = 0;       // members of the communicator
  std::vector<std::size_t> ends;  // actors that give units
  const std::vector<Transfer>* table = nullptr;
  std::vector<Path> paths;
  std::optional<Duration> active, done;
  bool joined = false;
  std::vector<RefFlow> flows;
  const Transfer& transfer() const {
    return (*table)[(send != nullptr ? send : members.front())->op->subject];
  }
};

std::int64_t up(Wide amount, std::int64_t by) {
  return static_cast<std::int64_t>(amount / by + (amount % by != 0 ? 1 : 0));
}

class Reference {
 public:
  explicit Reference(const Machine& machine) : machine_(machine) {
    for (std::size_t a = 0; a < machine.actors.size(); ++a)
      expand(a);
    for (auto& list : ops_)
      for (RefOp& op : list)
        if (exchanges_with(op.op->kind)) enlist(op);
    peaks_.resize(machine.actors.size());
    for (std::size_t a = 0; a < peaks_.size(); ++a) {
      peaks_[a] = memory(a);
      peaks_[a].resident = peaks_[a].peak;
    }
  }

  ReferenceResult run() {
    for (;;) {
      while (end_some() || begin_some()) {
      }
      weigh();
      set_flow_rates();
      const std::optional<Duration> next = next_time();
      if (!next) break;
      pass(*next - now_);
      now_ = *next;
    }
    return result();
  }

 private:
  static bool exchanges_with(OpKind kind) {
    return kind == OpKind::collective || kind == OpKind::send || kind == OpKind::receive;
  }
  const Actor& actor(std::size_t a) const { return machine_.actors[static_cast<ActorId>(a)]; }

  void expand(std::size_t a) {
    const Actor& owner = actor(a);
    auto& list = ops_.emplace_back();
    Duration enqueued{};
    std::map<std::pair<OpKind, std::uint32_t>, std::size_t> sequences;
    for (std::size_t c = 0; c < owner.program->calls.size(); ++c) {
      const Block& block = owner.program->blocks[owner.program->calls[c].block];
      for (std::size_t i = 0; i < block.ops.size(); ++i) {
        const Op& op = block.ops[i];
        RefOp entry;
        entry.actor = a;
        entry.call = c;
        entry.index = i;
        entry.order = list.size();
        entry.op = &op;
        entry.launches_from = enqueued + op.call;
        entry.issued = entry.launches_from + (op.launches > 0 ? owner.launch : Duration(0));
        enqueued = entry.launches_from + owner.launch * op.launches;
        if (op.kind != OpKind::compute) entry.sequence = sequences[{op.kind, op.port}]++;
        list.push_back(entry);
      }
    }
  }

  void enlist(RefOp& op) {
    const Actor& owner = actor(op.actor);
    if (op.op->kind == OpKind::collective) {
      const CommunicatorId id = owner.communicators[op.op->port];
      const Communicator& communicator = machine_.communicators[id];
      RefExchange& x = exchanges_[{0, index(id), op.sequence}];
      x.members.push_back(&op);
      x.expected = communicator.members.size();
      x.ends.clear();
      for (ActorId member : communicator.members)
        x.ends.push_back(index(member));
      x.table = &machine_.transfers[communicator.transfers];
      x.paths = communicator.paths;
      return;
    }
    const ChannelId id = owner.channels[op.op->port];
    const Channel& channel = machine_.channels[id];
    RefExchange& x = exchanges_[{1, index(id), op.sequence}];
    (op.op->kind == OpKind::send ? x.send : x.receive) = &op;
    x.ends = {index(channel.source), index(channel.destination)};
    x.table = &machine_.transfers[channel.transfers];
    if (!channel.path.empty()) x.paths = {channel.path};
  }

  bool can_begin(const RefOp& op) const {
    if (op.begin || op.issued > now_) return false;
    for (const RefOp& other : ops_[op.actor]) {
      if (other.order >= op.order) break;
      const bool matters =
          other.op->stream == op.op->stream || ((op.op->waits >> other.op->stream) & 1);
      if (matters && !other.end) return false;
    }
    return true;
  }

  bool begin_some() {
    std::vector<RefOp*> ready;
    for (auto& list : ops_)
      for (RefOp& op : list)
        if (can_begin(op)) ready.push_back(&op);
    for (RefOp* op : ready) {
      op->begin = op->active = now_;
      last_ = now_;
    }
    for (auto& [key, x] : exchanges_) {
      if (x.active) continue;
      bool starts = x.send != nullptr && x.send->begin;
      if (!x.members.empty() && x.members.size() == x.expected) {
        starts = true;
        for (const RefOp* member : x.members)
          starts = starts && member->begin && member->op->subject == x.members[0]->op->subject;
      }
      if (starts) x.active = now_;
    }
    return !ready.empty();
  }

  bool end_some() {
    bool any = false;
    for (auto& list : ops_)
      for (RefOp& op : list)
        if (op.begin && !op.end) any |= end_alone(op);
    for (auto& [key, x] : exchanges_) {
      if (!x.active) continue;
      if (!x.done && arrived(x)) x.done = now_;
      if (!x.done) continue;
      for (RefOp* member : x.members)
        any |= finish(*member, *x.active);
      if (x.send != nullptr) any |= finish(*x.send, *x.active);
      if (x.receive != nullptr && x.receive->begin && x.receive->op->subject == x.send->op->subject)
        any |= finish(*x.receive, std::max(*x.receive->begin, *x.active));
    }
    return any;
  }

  // Ops that no transfer of their own ends.
  bool end_alone(RefOp& op) {
    switch (op.op->kind) {
      case OpKind::compute: return run_kernels(op);
      case OpKind::hear: return has_heard(op) && finish(op, now_);
      default: return false;
    }
  }

  bool has_heard(const RefOp& op) const {
    const Inbox& inbox = machine_.inboxes[actor(op.actor).inboxes[op.op->port]];
    std::size_t there = 0;
    for (const ChannelId channel : inbox.channels) {
      std::size_t arrived = 0;
      for (const auto& [key, x] : exchanges_)
        if (std::get<0>(key) == 1 && std::get<1>(key) == index(channel) && x.done) ++arrived;
      if (arrived > op.sequence / inbox.first) ++there;
    }
    return there > op.sequence % inbox.first;
  }

  bool finish(RefOp& op, Duration active) {
    if (op.end) return false;
    op.end = last_ = now_;
    op.active = active;
    return true;
  }

  // Whether all bytes have arrived; lets the flows start when the latency is over.
  bool arrived(RefExchange& x) {
    const Transfer& transfer = x.transfer();
    const Duration latency_over = *x.active + transfer.latency;
    if (transfer.bytes.count() == 0) return now_ >= latency_over;
    if (x.paths.empty())
      return now_ >=
             latency_over + Duration(up(Wide{transfer.bytes.count()} * kSecond, transfer.rate));
    if (now_ < latency_over) return false;
    if (!x.joined) {
      x.joined = true;
      for (const Path& path : x.paths)
        x.flows.push_back({path, transfer.rate, 0, Wide{transfer.bytes.count()} * kSecond});
    }
    return std::all_of(x.flows.begin(), x.flows.end(),
                       [](const RefFlow& flow) { return flow.left <= 0; });
  }

  std::size_t kernel_count(const RefOp& op) const {
    return actor(op.actor).program->segments[op.op->subject].kernels;
  }
  std::size_t kernel_position(const RefOp& op) const {
    return actor(op.actor).program->segments[op.op->subject].first_kernel + op.kernel;
  }
  Duration kernel_issued(const RefOp& op) const {
    const auto nth = static_cast<std::int64_t>(op.kernel) + 1;
    const auto kernels = static_cast<std::int64_t>(kernel_count(op));
    const std::int64_t own = op.op->launches > kernels
                                 ? up(Wide{nth} * op.op->launches, kernels)
                                 : std::min<std::int64_t>(nth, op.op->launches);
    return (op.op->drained ? *op.begin : op.launches_from) + actor(op.actor).launch * own;
  }

  // Ends and begins the kernels that can at this instant; true if the op ended.
  bool run_kernels(RefOp& op) {
    const Actor& owner = actor(op.actor);
    while (op.kernel < kernel_count(op)) {
      if (!op.kernel_begin) {
        if (kernel_issued(op) > now_) return false;
        op.kernel_begin = now_;
        op.left = Wide{owner.times->kernel[owner.program->kernels[kernel_position(op)]].count()} *
                  owner.units * 256;
      }
      if (op.left > 0) return false;
      op.kernels.push_back({static_cast<ActorId>(op.actor), static_cast<std::uint32_t>(op.call),
                            static_cast<std::uint32_t>(op.index),
                            static_cast<std::uint32_t>(kernel_position(op)), *op.kernel_begin,
                            now_});
      op.kernel_begin.reset();
      ++op.kernel;
    }
    return finish(op, *op.begin);
  }

  // Units that transfers in flight hold, of which one is always left to kernels.
  std::int64_t taken(std::size_t a) const {
    std::int64_t units = 0;
    for (const auto& [key, x] : exchanges_)
      if (x.active && !x.done)
        for (std::size_t end : x.ends)
          if (end == a) units += x.transfer().units_taken;
    return std::min<std::int64_t>(units, actor(a).units - 1);
  }

  // Of the op's present kernel.
  std::int64_t compute_rate(const RefOp& op) const {
    const Actor& owner = actor(op.actor);
    const std::uint32_t kernel = owner.program->kernels[kernel_position(op)];
    const std::int64_t weight = owner.times->weight.empty() ? 256 : owner.times->weight[kernel];
    return std::max<std::int64_t>(256, owner.units * 256LL - weight * taken(op.actor));
  }

  void set_flow_rates() {
    std::vector<Path> paths;
    std::vector<std::int64_t> limits;
    std::vector<RefFlow*> flows;
    for (auto& [key, x] : exchanges_)
      for (RefFlow& flow : x.flows)
        if (flow.left > 0) {
          flows.push_back(&flow);
          paths.push_back(flow.path);
          limits.push_back(flow.limit);
        }
    const std::vector<std::int64_t> rates = reference_rates(
        {machine_.link_capacity.begin(), machine_.link_capacity.end()}, paths, limits);
    for (std::size_t f = 0; f < flows.size(); ++f)
      flows[f]->rate = rates[f];
  }

  std::optional<Duration> next_time() const {
    std::optional<Duration> next;
    const auto consider = [&](Duration at) {
      if (at > now_ && (!next || at < *next)) next = at;
    };
    for (const auto& list : ops_)
      for (const RefOp& op : list) {
        if (!op.begin) consider(op.issued);
        if (!op.begin || op.end || op.op->kind != OpKind::compute) continue;
        if (op.kernel_begin)
          consider(now_ + Duration(up(op.left, compute_rate(op))));
        else
          consider(kernel_issued(op));
      }
    for (const auto& [key, x] : exchanges_) {
      if (!x.active || x.done) continue;
      const Transfer& transfer = x.transfer();
      consider(*x.active + transfer.latency);
      if (transfer.bytes.count() > 0 && x.paths.empty())
        consider(*x.active + transfer.latency +
                 Duration(up(Wide{transfer.bytes.count()} * kSecond, transfer.rate)));
      for (const RefFlow& flow : x.flows)
        if (flow.left > 0) consider(now_ + Duration(up(flow.left, flow.rate)));
    }
    return next;
  }

  void pass(Duration time) {
    for (std::size_t a = 0; a < ops_.size(); ++a) {
      for (RefOp& op : ops_[a])
        if (op.kernel_begin && !op.end) op.left -= Wide{compute_rate(op)} * time.count();
    }
    for (auto& [key, x] : exchanges_)
      for (RefFlow& flow : x.flows)
        if (flow.left > 0) flow.left -= Wide{flow.rate} * time.count();
  }

  MemoryPeak memory(std::size_t a) const {
    MemoryPeak held;
    const auto add = [&](const MemoryEffect& effect) {
      held.peak = held.peak + Bytes(effect.bytes);
      held.by_category[effect.category] += effect.bytes;
    };
    const Program& program = *actor(a).program;
    std::for_each(program.resident.begin(), program.resident.end(), add);
    for (const RefOp& op : ops_[a])
      for (std::uint32_t e = 0; e < op.op->effects; ++e) {
        const MemoryEffect& effect = program.effects[op.op->first_effect + e];
        if (effect.bytes > 0 ? op.begin.has_value() : op.end.has_value()) add(effect);
      }
    held.at = now_;
    return held;
  }

  void weigh() {
    for (std::size_t a = 0; a < ops_.size(); ++a) {
      MemoryPeak held = memory(a);
      const Bytes at_end = held.peak;
      held.resident = peaks_[a].resident;
      if (held.peak > peaks_[a].peak) peaks_[a] = held;
      peaks_[a].at_end = at_end;
    }
  }

  ReferenceResult result() const {
    ReferenceResult r;
    r.finished = true;
    r.last = last_;
    r.peaks = peaks_;
    for (const auto& list : ops_) {
      for (std::uint8_t stream = 0; stream < kMaxStreams; ++stream) {
        bool head = true;
        for (const RefOp& op : list) {
          if (op.op->stream != stream) continue;
          const auto call = static_cast<std::uint32_t>(op.call);
          const auto number = static_cast<std::uint32_t>(op.index);
          const auto id = static_cast<ActorId>(op.actor);
          if (op.end) {
            r.spans.push_back({id, call, number, op.issued, *op.begin, op.active, *op.end});
          } else if (head) {
            head = r.finished = false;
            r.waiting.push_back({id, call, number, ""});
          }
        }
      }
      for (const RefOp& op : list)
        if (op.end) r.kernels.insert(r.kernels.end(), op.kernels.begin(), op.kernels.end());
    }
    return r;
  }

  static constexpr std::int64_t kSecond = 1'000'000'000'000;

  const Machine& machine_;
  std::vector<std::vector<RefOp>> ops_;  // by actor, in program order
  std::map<std::tuple<int, std::size_t, std::size_t>, RefExchange> exchanges_;
  std::vector<MemoryPeak> peaks_;
  Duration now_{}, last_{};
};

}  // namespace

ReferenceResult run_reference(const Machine& machine) {
  return Reference(machine).run();
}

std::vector<std::int64_t> reference_rates(const std::vector<std::int64_t>& capacity,
                                          const std::vector<Path>& paths,
                                          const std::vector<std::int64_t>& limits) {
  std::vector<std::int64_t> rates(paths.size(), 0), left = capacity;
  for (;;) {
    std::vector<std::int64_t> users(capacity.size(), 0);
    std::optional<std::int64_t> least;
    for (std::size_t f = 0; f < paths.size(); ++f) {
      if (rates[f] != 0) continue;
      if (!least || limits[f] < *least) least = limits[f];
      for (const PathLink& step : paths[f])
        users[index(step.link)] += step.count;
    }
    if (!least) return rates;
    std::vector<std::int64_t> share(capacity.size(), 0);
    for (std::size_t l = 0; l < capacity.size(); ++l) {
      if (users[l] == 0) continue;
      share[l] = std::max<std::int64_t>(1, left[l] / users[l]);
      least = std::min(*least, share[l]);
    }
    for (std::size_t f = 0; f < paths.size(); ++f) {
      if (rates[f] != 0) continue;
      bool stops = limits[f] == *least;
      for (const PathLink& step : paths[f])
        stops = stops || share[index(step.link)] == *least;
      if (!stops) continue;
      rates[f] = *least;
      for (const PathLink& step : paths[f])
        left[index(step.link)] -= *least * step.count;
    }
  }
}

}  // namespace trainyard::testing
