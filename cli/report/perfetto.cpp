// Field numbers: google/perfetto, protos/perfetto/trace/{trace_packet,track_event/*}.proto.
#include "cli/report/perfetto.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
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
              defaults = 59, track_descriptor = 60;
}
namespace defaults {
constexpr int events = 11, track = 11;
}
namespace event {
constexpr int category_iid = 3, annotation = 4, type = 9, name_iid = 10, name = 23, counter = 30,
              flow = 47, terminating_flow = 48;
constexpr int begin = 1, end = 2, counter_value = 4;
}  // namespace event
namespace interned {
constexpr int categories = 1, names = 2, annotation_names = 3;
}
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

enum Annotation : std::uint64_t { kMicroBatch = 1, kChunk, kBytes, kPeer };
constexpr std::array<std::string_view, 4> kAnnotations = {"micro-batch", "chunk", "bytes", "peer"};

class TraceWriter {
 public:
  // Writes the variant of that index among several; its processes carry `variant`'s name if it has
  // one.
  TraceWriter(const Timeline& timeline, int index, std::string_view variant)
      : timeline_(timeline), index_(index), variant_(variant) {}

  std::string write(std::string_view title) {
    look_through();
    intern_names();
    if (index_ == 0) describe_root(title);
    describe_processes();
    // Viewers order packets by time and, within a nanosecond, as they stand in the file: what ends
    // a flow stands behind what begins it.
    std::vector<std::uint64_t> tracks;
    for (const Lane& lane : timeline_.lanes)
      tracks.push_back(add_track(lane.rank, lane.stream, false));
    for (const bool receiving : {false, true})
      for (std::size_t i = 0; i < tracks.size(); ++i)
        if (receives(timeline_.lanes[i]) == receiving) add_lane(timeline_.lanes[i], tracks[i]);
    for (const MemoryCurve& curve : timeline_.memory)
      add_memory(curve);
    return trace_.take();
  }

 private:
  // "receive forward", "receive backward"; the lanes of sends begin with "send".
  static bool receives(const Lane& lane) { return lane.stream.rfind("receive", 0) == 0; }

  // A message to a rank that is not shown, or whose receiver never waited, has one end only: no
  // arrow.
  void look_through() {
    std::vector<std::uint64_t> sent, received;
    std::size_t slices = 0;
    for (const Lane& lane : timeline_.lanes) {
      slices += lane.slices.size();
      for (const Slice& slice : lane.slices) {
        has_chunks_ |= slice.chunk > 0;
        if (slice.flow != 0) (receives(lane) ? received : sent).push_back(slice.flow);
      }
    }
    // Most slices take less: what is reserved and not written costs nothing.
    trace_.reserve(slices * 100);
    std::sort(sent.begin(), sent.end());
    std::sort(received.begin(), received.end());
    std::set_intersection(sent.begin(), sent.end(), received.begin(), received.end(),
                          std::back_inserter(both_ends_));
  }

  bool has_both_ends(std::uint64_t flow) const {
    return flow != 0 && std::binary_search(both_ends_.begin(), both_ends_.end(), flow);
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

  // Words are written once, and events name them by number, from 1.
  template <class Words>
  static void intern(ProtoWriter& interned, int field, const Words& words) {
    std::uint64_t number = 0;
    for (const auto& word : words) {
      ProtoWriter entry;
      entry.number(1, ++number);
      entry.bytes(2, word);
      interned.message(field, entry);
    }
  }

  void intern_names() {
    std::array<std::string_view, simulate::kSliceKinds> kinds;
    for (std::size_t i = 0; i < kinds.size(); ++i)
      kinds[i] = name(static_cast<simulate::SliceKind>(i));
    ProtoWriter interned;
    intern(interned, interned::categories, kinds);
    intern(interned, interned::names, timeline_.names);
    intern(interned, interned::annotation_names, kAnnotations);
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
    std::map<int, std::string> names;
    for (const Lane& lane : timeline_.lanes)
      names.emplace(lane.rank, !lane.role.empty()
                                   ? lane.role
                                   : fmt::format("rank {} (stage {})", lane.rank, lane.stage));
    for (const MemoryCurve& curve : timeline_.memory)
      names.emplace(curve.rank, fmt::format("rank {}", curve.rank));
    for (const auto& [rank, name] : names) {
      ProtoWriter process;
      process.number(1, process_number(rank) + 1);  // a process id of 0 is the idle task
      const std::string prefix = variant_.empty() ? "" : fmt::format("{}: ", variant_);
      process.bytes(6, prefix + name);
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

  // The track of all events up to the next call.
  void go_to(std::uint64_t track) {
    ProtoWriter events;
    events.number(defaults::track, track);
    ProtoWriter defaults;
    defaults.message(defaults::events, events);
    ProtoWriter out;
    out.number(packet::sequence, sequence());
    out.message(packet::defaults, defaults);
    trace_.message(1, out);
  }

  void add_event(Duration at, const EventWriter& body) {
    EventWriter out;
    out.number(packet::timestamp, nanoseconds(at));
    out.number(packet::sequence, sequence());
    out.message(packet::track_event, body);
    out.number(packet::flags, kNeedsState);
    trace_.message(1, out);
  }

  static void annotate(EventWriter& body, Annotation name, std::int64_t value) {
    EventWriter annotation;
    annotation.number(1, static_cast<std::uint64_t>(name));
    annotation.number(4, value);
    body.message(event::annotation, annotation);
  }

  static void begin(EventWriter& body, const Slice& slice) {
    body.number(event::category_iid, static_cast<std::uint64_t>(slice.kind) + 1);
    body.number(event::type, event::begin);
  }

  EventWriter begin_of(const Slice& slice) const {
    EventWriter body;
    begin(body, slice);
    if (slice.microbatch >= 0) {
      annotate(body, kMicroBatch, slice.microbatch);
      if (has_chunks_) annotate(body, kChunk, slice.chunk);
    }
    if (slice.bytes > 0) annotate(body, kBytes, slice.bytes);
    if (slice.peer >= 0) annotate(body, kPeer, slice.peer);
    body.number(event::name_iid, static_cast<std::uint64_t>(slice.name) + 1);
    return body;
  }

  void add_end(Duration at) {
    EventWriter body;
    body.number(event::type, event::end);
    add_event(at, body);
  }

  // A receive that waits begins before its send, so the flow ends at the nested slice of the
  // movement.
  void add_receive(const Slice& slice) {
    EventWriter body = begin_of(slice);
    if (slice.active > slice.begin) {
      add_event(slice.begin, body);
      body.clear();
      begin(body, slice);
      body.bytes(event::name, "moving");
    }
    body.fixed64(event::terminating_flow, flow_id(slice.flow));
    add_event(std::max(slice.active, slice.begin), body);
    if (slice.active > slice.begin) add_end(slice.end);
    add_end(slice.end);
  }

  void add_lane(const Lane& lane, std::uint64_t track) {
    go_to(track);
    for (const Slice& slice : lane.slices) {
      const bool flows = has_both_ends(slice.flow);
      if (flows && receives(lane)) {
        add_receive(slice);
        continue;
      }
      EventWriter body = begin_of(slice);
      if (flows) body.fixed64(event::flow, flow_id(slice.flow));
      add_event(slice.begin, body);
      add_end(slice.end);
    }
  }

  void add_counter(Duration at, std::int64_t value) {
    EventWriter body;
    body.number(event::type, event::counter_value);
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
      go_to(add_track(curve.rank, title, true));
      std::int64_t last = -1;
      for (const MemorySample& sample : curve.samples) {
        if (value(sample) == last) continue;
        last = value(sample);
        add_counter(sample.at, last);
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
  std::vector<std::uint64_t> both_ends_;  // sorted
  bool has_chunks_ = false;
  std::map<int, int> tracks_of_;
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
