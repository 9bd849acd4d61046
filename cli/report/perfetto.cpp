// Field numbers: google/perfetto, protos/perfetto/trace/{trace_packet,track_event/*}.proto.
#include "cli/report/perfetto.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "cli/report/protobuf.h"
#include "sim/base/hash.h"
#include "sim/base/large_pages.h"

namespace trainyard::report {

using simulate::Lane;
using simulate::MemoryCurve;
using simulate::MemorySample;
using simulate::Slice;
using simulate::Timeline;

namespace {

namespace packet {
constexpr int clock_snapshot = 6, timestamp = 8, sequence = 10, track_event = 11,
              interned_data = 12, flags = 13, defaults = 59, track_descriptor = 60;
}
namespace defaults {
constexpr int events = 11, track = 11, clock = 58;
}
namespace clock {
constexpr int clocks = 1, id = 1, timestamp = 2, is_incremental = 3;
// That of a trace, and the first that a sequence may define.
constexpr int of_trace = 6, steps = 64;
}  // namespace clock
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

// Packets one after another, by the block. Most begin with what an earlier one of their likeness
// began with.
class Packets {
 public:
  static constexpr std::size_t kLikenesses = 256;

  void reserve(std::size_t bytes) {
    bytes_.reserve(bytes);
    use_large_pages(bytes_);
  }
  std::uint64_t new_sequence() { return ++sequences_; }
  void set_head(std::size_t likeness, std::string_view head) { heads_[likeness] = head; }
  void add(std::size_t likeness, std::string_view tail) {
    const std::string& head = heads_[likeness];
    if (head.size() + tail.size() > block_.size() - used_) flush();
    std::memcpy(block_.data() + used_, head.data(), head.size());
    std::memcpy(block_.data() + used_ + head.size(), tail.data(), tail.size());
    used_ += head.size() + tail.size();
  }
  void add(std::string_view packet) {
    flush();
    bytes_ += packet;
  }
  std::string take() {
    flush();
    return std::move(bytes_);
  }

 private:
  void flush() {
    bytes_.append(block_.data(), used_);
    used_ = 0;
  }

  std::array<std::string, kLikenesses> heads_;
  std::string bytes_;
  std::array<char, 1 << 14> block_;
  std::size_t used_ = 0;
  std::uint64_t sequences_ = 0;
};

// What events begin with alike: those of a kind of slice, whose tails are as long.
constexpr std::size_t kEnd = simulate::kSliceKinds, kMoving = kEnd + 1, kCounter = kMoving + 1,
                      kTails = 16, kLikenesses = (kCounter + 1) * kTails;
static_assert(kLikenesses <= Packets::kLikenesses);

// All that the beginning of an event depends on, within a likeness.
struct EventHead {
  std::int32_t microbatch = -1, chunk = 0, peer = -1, kind = -1;
  std::int64_t bytes = 0;
  std::uint64_t sequence = 0;
  std::size_t body = 0, whole = 0;  // lengths of what follows
  bool operator==(const EventHead&) const = default;
};

class TraceWriter {
 public:
  // Writes the variant of that index among several; its processes carry `variant`'s name if it has
  // one.
  TraceWriter(Packets& trace, const Timeline& timeline, int index, std::string_view variant)
      : trace_(trace),
        timeline_(timeline),
        index_(index),
        variant_(variant),
        number_of_(timeline.names.size()) {}

  void write(std::string_view title) {
    look_through();
    sequence_ = trace_.new_sequence();
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
  }

 private:
  // "receive forward", "receive backward"; the lanes of sends begin with "send".
  static bool receives(const Lane& lane) { return lane.stream.rfind("receive", 0) == 0; }

  // A message to a rank that is not shown, or whose receiver never waited, has one end only: no
  // arrow.
  void look_through() {
    std::vector<std::uint64_t> sent, received;
    for (const Lane& lane : timeline_.lanes) {
      for (const Slice& slice : lane.slices) {
        has_chunks_ |= slice.chunk > 0;
        if (slice.flow != 0) (receives(lane) ? received : sent).push_back(slice.flow);
      }
    }
    std::sort(sent.begin(), sent.end());
    std::sort(received.begin(), received.end());
    std::set_intersection(sent.begin(), sent.end(), received.begin(), received.end(),
                          std::back_inserter(both_ends_));
  }

  bool has_both_ends(std::uint64_t flow) const {
    return flow != 0 && std::binary_search(both_ends_.begin(), both_ends_.end(), flow);
  }

  int process_number(int rank) const { return index_ * kMostRanks + rank; }
  // Tracks are numbered per rank: the process, then its streams, then its counters.
  std::uint64_t process_track(int rank) const {
    return (static_cast<std::uint64_t>(process_number(rank)) + 1) << 8;
  }
  std::uint64_t flow_id(std::uint64_t flow) const {
    return index_ == 0 ? flow : Hash().add(static_cast<std::uint64_t>(index_)).add(flow).value();
  }

  // Words are written once in a sequence, and its events name them by number, from 1.
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

  void intern_words(const Lane& lane) {
    std::fill(number_of_.begin(), number_of_.end(), 0);
    std::vector<std::string_view> names;
    for (const Slice& slice : lane.slices) {
      if (number_of_[slice.name] != 0) continue;
      names.push_back(timeline_.names[slice.name]);
      number_of_[slice.name] = names.size();
    }
    std::array<std::string_view, simulate::kSliceKinds> kinds;
    for (std::size_t i = 0; i < kinds.size(); ++i)
      kinds[i] = name(static_cast<simulate::SliceKind>(i));
    ProtoWriter interned;
    intern(interned, interned::categories, kinds);
    intern(interned, interned::names, names);
    intern(interned, interned::annotation_names, kAnnotations);
    ProtoWriter out;
    out.number(packet::sequence, sequence_);
    out.message(packet::interned_data, interned);
    out.number(packet::flags, kNeedsState);
    add_packet(out);
  }

  void add_packet(const ProtoWriter& packet) {
    ProtoWriter out;
    out.message(1, packet);
    trace_.add(out.data());
  }

  void add_descriptor(const ProtoWriter& track) {
    ProtoWriter out;
    out.number(packet::sequence, sequence_);
    out.message(packet::track_descriptor, track);
    add_packet(out);
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

  // All events up to the next call are of that track. They are a sequence with a clock of its own,
  // whose times are steps from event to event: what repeats in a step repeats in the file.
  void go_to(std::uint64_t track) {
    sequence_ = trace_.new_sequence();
    now_ = 0;
    ProtoWriter clocks;
    for (const int id : {clock::of_trace, clock::steps}) {
      ProtoWriter one;
      one.number(clock::id, id);
      one.number(clock::timestamp, 0);
      if (id == clock::steps) one.number(clock::is_incremental, 1);
      clocks.message(clock::clocks, one);
    }
    ProtoWriter events;
    events.number(defaults::track, track);
    ProtoWriter defaults;
    defaults.message(defaults::events, events);
    defaults.number(defaults::clock, clock::steps);
    ProtoWriter out;
    out.message(packet::clock_snapshot, clocks);
    out.number(packet::sequence, sequence_);
    out.number(packet::flags, kStateCleared);
    out.message(packet::defaults, defaults);
    add_packet(out);
  }

  // Writes the packet of an event. `tail` is what differs from the events of its likeness, and the
  // time comes last: what is as before is one piece. `describe` writes that, up to the key of what
  // `tail` begins with.
  template <class Describe>
  void add_event(Duration at, std::size_t kind, EventHead head, EventWriter& tail,
                 const Describe& describe) {
    head.sequence = sequence_;
    head.body = tail.size();
    if (head.body != 0) tail.key(packet::timestamp);
    TRAINYARD_CHECK(nanoseconds(at) >= now_, "an event at {} ps after one at {} ns", at.count(),
                    now_);
    tail.value(nanoseconds(at) - std::exchange(now_, nanoseconds(at)));
    head.whole = tail.size();
    const std::size_t likeness = kind * kTails + std::min(tail.size(), kTails - 1);
    if (heads_[likeness] != head) {
      heads_[likeness] = head;
      EventWriter out;
      const std::size_t whole = out.open(1);
      out.number(packet::sequence, sequence_);
      out.number(packet::flags, kNeedsState);
      const std::size_t body = out.open(packet::track_event);
      describe(out);
      out.close(body, head.body);
      if (head.body == 0) out.key(packet::timestamp);
      out.close(whole, head.whole);
      trace_.set_head(likeness, out.data());
    }
    trace_.add(likeness, tail.data());
  }

  static void annotate(EventWriter& body, Annotation name, std::int64_t value) {
    const std::size_t annotation = body.open(event::annotation);
    body.number(1, static_cast<std::uint64_t>(name));
    body.number(4, static_cast<std::uint64_t>(value));
    body.close(annotation);
  }

  static void begin(EventWriter& body, const Slice& slice) {
    body.number(event::category_iid, static_cast<std::uint64_t>(slice.kind) + 1);
    body.number(event::type, event::begin);
  }

  void add_begin(const Slice& slice, int flow_field) {
    EventWriter tail;
    tail.value(number_of_[slice.name]);
    if (flow_field != 0) tail.fixed64(flow_field, flow_id(slice.flow));
    const EventHead head{.microbatch = slice.microbatch,
                         .chunk = slice.chunk,
                         .peer = slice.peer,
                         .bytes = slice.bytes};
    add_event(slice.begin, static_cast<std::size_t>(slice.kind), head, tail,
              [&](EventWriter& body) {
                begin(body, slice);
                if (slice.microbatch >= 0) {
                  annotate(body, kMicroBatch, slice.microbatch);
                  if (has_chunks_) annotate(body, kChunk, slice.chunk);
                }
                if (slice.bytes > 0) annotate(body, kBytes, slice.bytes);
                if (slice.peer >= 0) annotate(body, kPeer, slice.peer);
                body.key(event::name_iid);
              });
  }

  void add_end(Duration at) {
    EventWriter tail;
    add_event(at, kEnd, {}, tail, [](EventWriter& body) { body.number(event::type, event::end); });
  }

  // A receive that waits begins before its send, so the flow ends at the nested slice of the
  // movement.
  void add_receive(const Slice& slice) {
    if (slice.active <= slice.begin) {
      add_begin(slice, event::terminating_flow);
    } else {
      add_begin(slice, 0);
      EventWriter tail;
      tail.fixed64(event::terminating_flow, flow_id(slice.flow));
      const EventHead head{.kind = static_cast<std::int32_t>(slice.kind)};
      add_event(slice.active, kMoving, head, tail, [&](EventWriter& body) {
        begin(body, slice);
        body.bytes(event::name, "moving");
      });
      add_end(slice.end);
    }
    add_end(slice.end);
  }

  void add_lane(const Lane& lane, std::uint64_t track) {
    go_to(track);
    intern_words(lane);
    for (const Slice& slice : lane.slices) {
      const bool flows = has_both_ends(slice.flow);
      if (flows && receives(lane)) {
        add_receive(slice);
        continue;
      }
      add_begin(slice, flows ? event::flow : 0);
      add_end(slice.end);
    }
  }

  void add_counter(Duration at, std::int64_t value) {
    EventWriter tail;
    tail.value(static_cast<std::uint64_t>(value));
    add_event(at, kCounter, {}, tail, [](EventWriter& body) {
      body.number(event::type, event::counter_value);
      body.key(event::counter);
    });
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

  Packets& trace_;
  const Timeline& timeline_;
  int index_;
  std::string_view variant_;
  std::vector<std::uint64_t> both_ends_;  // sorted
  std::uint64_t sequence_ = 0, now_ = 0;  // the sequence in hand, and its time in ns
  std::vector<std::uint64_t> number_of_;  // in that sequence, by name
  bool has_chunks_ = false;
  std::array<EventHead, kLikenesses> heads_;
  std::map<int, int> tracks_of_;
};

// Most slices take less. What is reserved and not written costs nothing.
std::size_t expected_size(std::span<const NamedTimeline> variants) {
  std::size_t slices = 0;
  for (const NamedTimeline& variant : variants)
    for (const Lane& lane : variant.timeline->lanes)
      slices += lane.slices.size();
  return slices * 100;
}

}  // namespace

// A trace is a list of packets: traces joined end to end are a trace.
std::string perfetto_trace(std::span<const NamedTimeline> variants, std::string_view title) {
  Packets trace;
  trace.reserve(expected_size(variants));
  for (std::size_t i = 0; i < variants.size(); ++i)
    TraceWriter(trace, *variants[i].timeline, static_cast<int>(i), variants[i].name).write(title);
  return trace.take();
}

std::string perfetto_trace(const Timeline& timeline, std::string_view title) {
  const NamedTimeline variant{"", &timeline};
  return perfetto_trace({&variant, 1}, title);
}

}  // namespace trainyard::report
