#include "cli/report/packed_lanes.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "sim/base/check.h"
#include "sim/base/ends_first.h"

namespace trainyard::report {

using simulate::Lane;
using simulate::Slice;
using simulate::Timeline;

namespace {

struct RankSize {
  int rank = 0, stage = 0, nth_of_stage = 0;
  std::size_t slices = 0;
};

// Ranks in the order in which they are given room: the first of each stage, the second of each,
// ...; of the stages those at the ends of the pipeline first, which differ most.
std::vector<RankSize> by_importance(const Timeline& timeline) {
  std::map<int, RankSize> sizes;
  for (const Lane& lane : timeline.lanes) {
    RankSize& size = sizes[lane.rank];
    size.rank = lane.rank;
    size.stage = lane.stage;
    size.slices += lane.slices.size();
  }
  std::map<int, std::size_t> place;  // by stage
  for (const auto& [rank, size] : sizes)
    place.emplace(size.stage, 0);
  std::vector<std::size_t*> places;
  for (auto& [stage, at] : place)
    places.push_back(&at);
  std::size_t next = 0;
  for (const std::size_t at : ends_first(places.size()))
    *places[at] = next++;
  std::map<int, int> seen;
  std::vector<RankSize> ordered;
  for (auto& [rank, size] : sizes) {
    size.nth_of_stage = seen[size.stage]++;
    ordered.push_back(size);
  }
  std::stable_sort(ordered.begin(), ordered.end(), [&](const RankSize& a, const RankSize& b) {
    return std::pair(a.nth_of_stage, place.at(a.stage)) <
           std::pair(b.nth_of_stage, place.at(b.stage));
  });
  return ordered;
}

bool is_selected(const Selection& selection, int rank) {
  return std::binary_search(selection.ranks.begin(), selection.ranks.end(), rank);
}

// Slices of the selection that `lane` contributes.
std::size_t kept(const Lane& lane, const Selection& selection) {
  return static_cast<std::size_t>(
      std::count_if(lane.slices.begin(), lane.slices.end(),
                    [&](const Slice& slice) { return slice.begin <= selection.until; }));
}

// Numbers as the varints of Protocol Buffers, by the block: most take a byte or two.
class Numbers {
 public:
  void add(std::uint64_t value) {
    if (used_ + kLongest > block_.size()) flush();
    for (; value >= 0x80; value >>= 7)
      block_[used_++] = static_cast<char>((value & 0x7F) | 0x80);
    block_[used_++] = static_cast<char>(value);
  }
  std::string take() {
    flush();
    return std::move(out_);
  }

 private:
  static constexpr std::size_t kLongest = 10;

  void flush() {
    out_.append(block_.data(), used_);
    used_ = 0;
  }

  std::string out_;
  std::array<char, 1 << 14> block_;
  std::size_t used_ = 0;
};

template <class Column>
void write_column(Numbers& out, const Lane& lane, std::size_t count, const Column& column) {
  for (std::size_t i = 0; i < count; ++i)
    out.add(static_cast<std::uint64_t>(column(lane.slices[i])));
}

// What stays as it is for many slices: a value and for how many, until all have one.
template <class Column>
void write_runs(Numbers& out, const Lane& lane, std::size_t count, const Column& column) {
  for (std::size_t i = 0; i < count;) {
    const auto value = column(lane.slices[i]);
    const std::size_t first = i++;
    while (i < count && column(lane.slices[i]) == value)
      ++i;
    out.add(static_cast<std::uint64_t>(value));
    out.add(i - first);
  }
}

using FlowNumbers = std::map<std::uint64_t, std::uint64_t>;

void pack_lane(Numbers& out, const Lane& lane, std::size_t count, FlowNumbers& flows) {
  out.add(count);
  Duration previous{};
  write_column(out, lane, count, [&](const Slice& s) {
    TRAINYARD_CHECK(s.begin >= previous && s.end >= s.begin, "lane {} of rank {} overlaps at {} ps",
                    lane.stream, lane.rank, s.begin.count());
    const Duration gap = s.begin - previous;
    previous = s.end;
    return gap.count();
  });
  write_column(out, lane, count, [](const Slice& s) { return (s.end - s.begin).count(); });
  write_runs(out, lane, count, [](const Slice& s) {
    return std::clamp(s.active - s.begin, Duration{}, s.end - s.begin).count();
  });
  write_column(out, lane, count, [](const Slice& s) { return s.name; });
  write_runs(out, lane, count, [](const Slice& s) { return static_cast<int>(s.kind); });
  write_runs(out, lane, count, [](const Slice& s) { return std::max(s.microbatch, -1) + 1; });
  write_runs(out, lane, count, [](const Slice& s) { return std::max(s.chunk, 0); });
  write_runs(out, lane, count, [](const Slice& s) { return std::max<std::int64_t>(s.bytes, 0); });
  write_runs(out, lane, count, [](const Slice& s) { return std::max(s.peer, -1) + 1; });
  // Renumbered from 1: the page's numbers hold 53 bits.
  write_runs(out, lane, count, [&](const Slice& s) -> std::uint64_t {
    return s.flow == 0 ? 0 : flows.emplace(s.flow, flows.size() + 1).first->second;
  });
}

void pack_curve(Numbers& out, const simulate::MemoryCurve& curve) {
  out.add(curve.samples.size());
  Duration previous{};
  for (const simulate::MemorySample& sample : curve.samples) {
    out.add(static_cast<std::uint64_t>((sample.at - previous).count()));
    previous = sample.at;
  }
  for (std::size_t i = 0; i < plan::kMemoryKinds; ++i)
    for (const simulate::MemorySample& sample : curve.samples)
      out.add(static_cast<std::uint64_t>(std::max<std::int64_t>(sample.bytes[i], 0)));
}

}  // namespace

Selection select(const Timeline& timeline, std::size_t cap) {
  Selection selection;
  selection.until = timeline.end;
  std::size_t total = 0;
  for (const Lane& lane : timeline.lanes)
    total += lane.slices.size();
  const std::vector<RankSize> ordered = by_importance(timeline);
  for (const RankSize& size : ordered) {
    if (selection.slices + size.slices > cap) break;
    selection.slices += size.slices;
    selection.ranks.push_back(size.rank);
  }
  if (selection.ranks.empty() && !ordered.empty()) {
    selection.ranks.push_back(ordered[0].rank);
    std::vector<Duration> begins;
    for (const Lane& lane : timeline.lanes)
      if (lane.rank == ordered[0].rank)
        for (const Slice& slice : lane.slices)
          begins.push_back(slice.begin);
    std::sort(begins.begin(), begins.end());
    // Ties at the cut would exceed the cap, so the cut is before them.
    selection.until = cap < begins.size() ? begins[cap] - Duration(1) : timeline.end;
    for (const Lane& lane : timeline.lanes)
      if (lane.rank == ordered[0].rank) selection.slices += kept(lane, selection);
  }
  std::sort(selection.ranks.begin(), selection.ranks.end());
  selection.left_out = total - selection.slices;
  return selection;
}

std::string pack(const Timeline& timeline, const Selection& selection) {
  Numbers out;
  FlowNumbers flows;
  for (const Lane& lane : timeline.lanes)
    if (is_selected(selection, lane.rank)) pack_lane(out, lane, kept(lane, selection), flows);
  for (const simulate::MemoryCurve& curve : timeline.memory)
    if (is_selected(selection, curve.rank)) pack_curve(out, curve);
  return out.take();
}

}  // namespace trainyard::report
