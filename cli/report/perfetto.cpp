// Field numbers: google/perfetto, protos/perfetto/trace/{trace_packet,track_event/*}.proto.
#include "cli/report/perfetto.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "cli/report/protobuf.h"
#include "sim/base/hash.h"

namespace trainyard::report {

using simulate::Lane;
using simulate::MemoryCurve;
using simulate::MemorySample;
using simulate::Slice;
using simulate::Timeline;

namespace {

namespace packet {
constexpr int timestamp = 8, sequence = 10, track_event = 11, interned_data = 12, flags = 13,
              track_descriptor = 60;
}
namespace event {
constexpr int annotation = 4, type = 9, name_iid = 10, track = 11, category = 22, name = 23,
              counter = 30, flow = 47, terminating_flow = 48;
constexpr int begin = 1, end = 2, counter_value = 4;
}  // namespace event
namespace descriptor {
constexpr int uuid = 1, name = 2, process = 3, parent = 5, counter = 8, child_ordering = 11,
              sibling_rank = 12, process_ordering = 19;
constexpr int explicit_order = 3, explicit_process_order = 1, unit_bytes = 3;
}  // namespace descriptor

constexpr int kStateCleared = 1, kNeedsState = 2;

std::uint64_t nanoseconds(Duration at) {
  return static_cast<std::uint64_t>(at.count() / 1000);
}

// Processes of a variant are numbered apart from those of the others.
constexpr int kMostRanks = 1 << 22;

// Where a flow ends must come after where it begins, also within one nanosecond: phase 1 is later.
struct Timed {
  std::uint64_t at = 0;
  int phase = 0;
  std::string packet;
};

class TraceWriter {
 public:
  // Writes the variant of that index among several; its processes carry `variant`'s name if it has
  // one.
  TraceWriter(const Timeline& timeline, int index, std::string_view variant)
      : timeline_(timeline), index_(index), variant_(variant) {}

  std::string write(std::string_view title) {
    find_flows();
    intern_names();
    if (index_ == 0) describe_root(title);
    describe_processes();
    for (const Lane& lane : timeline_.lanes)
      add_lane(lane);
    for (const MemoryCurve& curve : timeline_.memory)
      add_memory(curve);
    // Stable: a slice of no length still begins before it ends.
    std::stable_sort(events_.begin(), events_.end(), [](const Timed& a, const Timed& b) {
      return std::pair(a.at, a.phase) < std::pair(b.at, b.phase);
    });
    for (const Timed& timed : events_)
      trace_.bytes(1, timed.packet);
    return trace_.data();
  }

 private:
  // "receive forward", "receive backward"; the lanes of sends begin with "send".
  static bool receives(const Lane& lane) { return lane.stream.rfind("receive", 0) == 0; }

  // A message to a rank that is not shown, or whose receiver never waited, has one end only: no
  // arrow.
  void find_flows() {
    std::set<std::uint64_t> sent;
    for (const Lane& lane : timeline_.lanes)
      for (const Slice& slice : lane.slices)
        if (slice.flow != 0 && !receives(lane)) sent.insert(slice.flow);
    for (const Lane& lane : timeline_.lanes)
      for (const Slice& slice : lane.slices)
        if (receives(lane) && sent.count(slice.flow) != 0) both_ends_.insert(slice.flow);
  }

  std::uint64_t sequence() const { return static_cast<std::uint64_t>(index_) + 1; }
  int process_number(int rank) const { return index_ * kMostRanks + rank; }
  // Tracks are numbered per rank: the process, then its streams, then its counters.
  std::uint64_t process_track(int rank) const {
    return (static_cast<std::uint64_t>(process_number(rank)) + 1) << 8;
  }
  std::uint64_t flow_id(std::uint64_t flow) const {
    return index_ == 0 ? flow : Hash().add(static_cast<std::uint64_t>(index_)).add(flow).value();
  }

  void intern_names() {
    ProtoWriter interned;
    for (std::size_t i = 0; i < timeline_.names.size(); ++i) {
      ProtoWriter entry;
      entry.number(1, static_cast<std::uint64_t>(i) + 1);
      entry.bytes(2, timeline_.names[i]);
      interned.message(2, entry);
    }
    ProtoWriter first;
    first.number(packet::sequence, sequence());
    first.message(packet::interned_data, interned);
    first.number(packet::flags, kStateCleared);
    trace_.message(1, first);
  }

  void add_descriptor(const ProtoWriter& track) {
    ProtoWriter out;
    out.number(packet::sequence, sequence());
    out.message(packet::track_descriptor, track);
    trace_.message(1, out);
  }

  // Track 0 is the parent of all processes; it asks for them in the order of their ranks.
  void describe_root(std::string_view title) {
    ProtoWriter track;
    track.number(descriptor::uuid, std::uint64_t{0});
    track.bytes(descriptor::name, title);
    track.number(descriptor::process_ordering, descriptor::explicit_process_order);
    add_descriptor(track);
  }

  void describe_processes() {
    std::map<int, int> stages;
    for (const Lane& lane : timeline_.lanes)
      stages.emplace(lane.rank, lane.stage);
    for (const MemoryCurve& curve : timeline_.memory)
      stages.emplace(curve.rank, -1);
    for (const auto& [rank, stage] : stages) {
      ProtoWriter process;
      process.number(1, process_number(rank) + 1);  // a process id of 0 is the idle task
      const std::string prefix = variant_.empty() ? "" : fmt::format("{}: ", variant_);
      process.bytes(6, stage < 0 ? fmt::format("{}rank {}", prefix, rank)
                                 : fmt::format("{}rank {} (stage {})", prefix, rank, stage));
      ProtoWriter track;
      track.number(descriptor::uuid, process_track(rank));
      track.message(descriptor::process, process);
      track.number(descriptor::child_ordering, descriptor::explicit_order);
      track.number(descriptor::sibling_rank, process_number(rank));
      add_descriptor(track);
    }
  }

  std::uint64_t add_track(int rank, std::string_view name, bool counts_bytes) {
    const int position = ++tracks_of_[rank];
    ProtoWriter track;
    track.number(descriptor::uuid, process_track(rank) + static_cast<std::uint64_t>(position));
    track.bytes(descriptor::name, name);
    track.number(descriptor::parent, process_track(rank));
    if (counts_bytes) {
      ProtoWriter counter;
      counter.number(3, descriptor::unit_bytes);
      track.message(descriptor::counter, counter);
    }
    track.number(descriptor::sibling_rank, position);
    add_descriptor(track);
    return process_track(rank) + static_cast<std::uint64_t>(position);
  }

  // Events of one track are added in order; a phase once raised holds for the rest of its
  // nanosecond.
  void add_event(Duration at, const ProtoWriter& body, int phase = 0) {
    ProtoWriter out;
    out.number(packet::timestamp, nanoseconds(at));
    out.number(packet::sequence, sequence());
    out.message(packet::track_event, body);
    out.number(packet::flags, kNeedsState);
    if (nanoseconds(at) == latest_at_) phase = std::max(phase, latest_phase_);
    latest_at_ = nanoseconds(at);
    latest_phase_ = phase;
    events_.push_back({latest_at_, phase, out.data()});
  }

  static void annotate(ProtoWriter& body, std::string_view name, std::int64_t value) {
    ProtoWriter annotation;
    annotation.number(4, value);
    annotation.bytes(10, name);
    body.message(event::annotation, annotation);
  }

  ProtoWriter begin_of(std::uint64_t track, const Slice& slice) {
    ProtoWriter body;
    if (slice.microbatch >= 0) {
      annotate(body, "micro-batch", slice.microbatch);
      annotate(body, "chunk", slice.chunk);
    }
    if (slice.bytes > 0) annotate(body, "bytes", slice.bytes);
    if (slice.peer >= 0) annotate(body, "peer", slice.peer);
    body.number(event::type, event::begin);
    body.number(event::name_iid, static_cast<std::uint64_t>(slice.name) + 1);
    body.number(event::track, track);
    body.bytes(event::category, name(slice.kind));
    return body;
  }

  void add_end(std::uint64_t track, Duration at) {
    ProtoWriter body;
    body.number(event::type, event::end);
    body.number(event::track, track);
    add_event(at, body);
  }

  // A receive that waits begins before its send, so the flow ends at the nested slice of the
  // movement.
  void add_receive(std::uint64_t track, const Slice& slice) {
    ProtoWriter body = begin_of(track, slice);
    if (slice.active > slice.begin) {
      add_event(slice.begin, body);
      body.clear();
      body.number(event::type, event::begin);
      body.bytes(event::name, "moving");
      body.number(event::track, track);
      body.bytes(event::category, name(slice.kind));
    }
    body.fixed64(event::terminating_flow, flow_id(slice.flow));
    add_event(std::max(slice.active, slice.begin), body, 1);
    if (slice.active > slice.begin) add_end(track, slice.end);
    add_end(track, slice.end);
  }

  void add_lane(const Lane& lane) {
    const std::uint64_t track = add_track(lane.rank, lane.stream, false);
    latest_phase_ = 0;
    for (const Slice& slice : lane.slices) {
      const bool flows = both_ends_.count(slice.flow) != 0;
      if (flows && receives(lane)) {
        add_receive(track, slice);
        continue;
      }
      ProtoWriter body = begin_of(track, slice);
      if (flows) body.fixed64(event::flow, flow_id(slice.flow));
      add_event(slice.begin, body);
      add_end(track, slice.end);
    }
  }

  void add_counter(std::uint64_t track, Duration at, std::int64_t value) {
    ProtoWriter body;
    body.number(event::type, event::counter_value);
    body.number(event::track, track);
    body.number(event::counter, value);
    add_event(at, body);
  }

  // The total, and each category that is ever used; a value is written when it changes.
  void add_memory(const MemoryCurve& curve) {
    const auto total = [](const MemorySample& sample) {
      std::int64_t sum = 0;
      for (const std::int64_t bytes : sample.bytes)
        sum += bytes;
      return sum;
    };
    const auto add_curve = [&](std::string_view title, const auto& value) {
      if (std::all_of(curve.samples.begin(), curve.samples.end(),
                      [&](const MemorySample& s) { return value(s) == 0; }))
        return;
      const std::uint64_t track = add_track(curve.rank, title, true);
      std::int64_t last = -1;
      latest_phase_ = 0;
      for (const MemorySample& sample : curve.samples) {
        if (value(sample) == last) continue;
        last = value(sample);
        add_counter(track, sample.at, last);
      }
    };
    add_curve("memory", total);
    for (std::size_t i = 0; i < plan::kMemoryKinds; ++i)
      add_curve(fmt::format("memory: {}", name(static_cast<plan::MemoryKind>(i))),
                [i](const MemorySample& sample) { return sample.bytes[i]; });
  }

  const Timeline& timeline_;
  int index_;
  std::string_view variant_;
  ProtoWriter trace_;
  std::set<std::uint64_t> both_ends_;
  std::map<int, int> tracks_of_;
  std::vector<Timed> events_;
  std::uint64_t latest_at_ = 0;
  int latest_phase_ = 0;
};

}  // namespace

std::string perfetto_trace(const Timeline& timeline, std::string_view title) {
  return TraceWriter(timeline, 0, "").write(title);
}

// A trace is a list of packets: traces joined end to end are a trace.
std::string perfetto_trace(std::span<const NamedTimeline> variants, std::string_view title) {
  std::string trace;
  for (std::size_t i = 0; i < variants.size(); ++i)
    trace += TraceWriter(*variants[i].timeline, static_cast<int>(i), variants[i].name).write(title);
  return trace;
}

}  // namespace trainyard::report
