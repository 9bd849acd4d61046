#include "cli/report/html.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "cli/report/packed_lanes.h"
#include "fixture.h"
#include "sim/simulate/report/summary.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using Json = nlohmann::ordered_json;

namespace {

std::string block(const std::string& page, const std::string& id) {
  const std::string open = "id=\"" + id + "\">";
  const std::size_t begin = page.find(open) + open.size();
  return page.substr(begin, page.find("</script>", begin) - begin);
}

std::size_t count(const std::string& text, std::string_view part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++n;
  return n;
}

}  // namespace

TEST_CASE("the page holds the comparison, number for number") {
  const std::vector<ReportVariant> variants = fixture::four_variants();
  std::vector<StepReport> reports;
  for (const ReportVariant& variant : variants)
    reports.push_back(variant.report);
  const std::string page = html_report("four", variants, 0);
  const bool same =
      Json::parse(block(page, "result")) == Json::parse(compare_json("four", reports, 0));
  CHECK(same);
}

TEST_CASE("no text of the user leaves its string in the page") {
  const std::string page = html_report(fixture::hostile_texts()[0], fixture::hostile_variants(), 0);
  for (const char* id : {"result", "page"}) {
    const std::string json = block(page, id);
    CHECK(json.find_first_of("<>&") == std::string::npos);
    CHECK(json.find("\u2028") == std::string::npos);
    CHECK(json.find("\u2029") == std::string::npos);
    CHECK(json.find('\x1b') == std::string::npos);
  }
  CHECK(count(page, "<script") == 3);
  CHECK(count(page, "</script>") == 3);
  CHECK(count(page, "<!--") == 0);
  CHECK(count(page, "onerror=document") == count(block(page, "result"), "onerror=document") +
                                               count(block(page, "page"), "onerror=document"));
  const Json result = Json::parse(block(page, "result"));
  CHECK(result["name"] == fixture::hostile_texts()[0]);
  CHECK(result["variants"][0]["warnings"][2] == fixture::hostile_texts()[1]);
}

TEST_CASE("the page names no address and allows no script but its own") {
  const std::string page = html_report("four", fixture::four_variants(), 0);
  CHECK(page.find("default-src 'none'; script-src 'sha256-") != std::string::npos);
  CHECK(page.find("https://") == std::string::npos);
  CHECK(page.find("src=\"") == std::string::npos);
  CHECK(page.find("@import") == std::string::npos);
  // The one address is the name space of SVG, which nobody fetches.
  CHECK(count(page, "http://") == count(page, "http://www.w3.org/2000/svg"));
}

TEST_CASE("the same variants give the same page") {
  CHECK(html_report("four", fixture::four_variants(), 0) ==
        html_report("four", fixture::four_variants(), 0));
}

TEST_CASE("a page without lanes is a page") {
  std::vector<ReportVariant> variants = fixture::four_variants();
  for (ReportVariant& variant : variants)
    variant.timeline = {};
  CHECK(Json::parse(block(html_report("none", variants, 0), "page"))["variants"].size() == 4);
}

TEST_CASE("above the cap whole ranks are left out, a rank of every stage first") {
  const Timeline timeline = fixture::make({"t", "1f1b", 4, 8, 1, 2, false, 1 << 20}).timeline;
  std::size_t total = 0;
  for (const Lane& lane : timeline.lanes)
    total += lane.slices.size();
  const Selection all = select(timeline, total);
  CHECK(all.ranks == std::vector<int>{0, 2, 4, 6});
  CHECK(all.left_out == 0);
  const Selection some = select(timeline, total / 2);
  CHECK(some.ranks.size() < 4);
  CHECK(!some.ranks.empty());
  CHECK(some.slices + some.left_out == total);
  CHECK(some.slices <= total / 2);
  const Selection part = select(timeline, 10);
  CHECK(part.ranks.size() == 1);
  CHECK(part.slices <= 10);
  CHECK(part.until < timeline.end);
}

TEST_CASE("the page names the stages of which no rank is shown") {
  ReportVariant variant;
  const auto made = fixture::make({"t", "1f1b", 4, 8, 1, 2, false, 1 << 20});
  variant.timeline = made.timeline;
  variant.report = made.report;
  const auto left_out = [&](std::size_t cap) {
    HtmlOptions options;
    options.slice_cap = cap;
    const Json page = Json::parse(block(html_report("t", {&variant, 1}, 0, options), "page"));
    return page["variants"][0]["timeline"]["stages_left_out"];
  };
  CHECK(left_out(400'000) == Json::array());
  CHECK(left_out(10) == Json({1, 2, 3}));
}

TEST_CASE("where not all stages have room, the first and the last have it") {
  const Timeline timeline = fixture::make({"t", "1f1b", 4, 8, 1, 2, false, 1 << 20}).timeline;
  std::size_t of_ends = 0;
  for (const Lane& lane : timeline.lanes)
    if (lane.stage == 0 || lane.stage == 3) of_ends += lane.slices.size();
  CHECK(select(timeline, of_ends).ranks == std::vector<int>{0, 6});
}

TEST_CASE("the first rank of each stage goes before the second of any") {
  Timeline timeline;
  timeline.names = {"k"};
  for (const auto& [rank, stage] :
       std::vector<std::pair<int, int>>{{0, 0}, {1, 0}, {2, 1}, {3, 1}}) {
    Lane lane;
    lane.rank = rank, lane.stage = stage, lane.stream = "compute";
    Slice slice;
    slice.end = Duration(5);
    lane.slices = {slice, slice};
    lane.slices[1].begin = lane.slices[1].active = Duration(5);
    lane.slices[1].end = Duration(9);
    timeline.lanes.push_back(lane);
  }
  CHECK(select(timeline, 4).ranks == std::vector<int>{0, 2});
  CHECK(select(timeline, 7).ranks == std::vector<int>{0, 1, 2});
}

TEST_CASE("columns are exact: decoded, they are the slices") {
  const Timeline timeline = fixture::make({"t", "1f1b", 2, 3, 2, 1, true, 1 << 20}).timeline;
  const std::string bytes = pack(timeline, select(timeline, 1 << 20));
  std::size_t at = 0;
  const auto next = [&] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes.at(at++));
      value |= static_cast<std::uint64_t>(byte & 127) << shift;
      if (byte < 128) return static_cast<std::int64_t>(value);
    }
  };
  const auto column = [&](std::size_t n) {
    std::vector<std::int64_t> values(n);
    for (std::int64_t& value : values)
      value = next();
    return values;
  };
  const auto runs = [&](std::size_t n) {
    std::vector<std::int64_t> values;
    while (values.size() < n) {
      const std::int64_t value = next(), length = next();
      REQUIRE(length > 0);
      CHECK((values.empty() || values.back() != value));
      values.insert(values.end(), static_cast<std::size_t>(length), value);
    }
    REQUIRE(values.size() == n);
    return values;
  };
  for (const Lane& lane : timeline.lanes) {
    const auto n = static_cast<std::size_t>(next());
    REQUIRE(n == lane.slices.size());
    const auto gap = column(n), length = column(n), wait = runs(n), name = column(n),
               kind = runs(n), microbatch = runs(n), chunk = runs(n), size = runs(n),
               peer = runs(n), flow = runs(n);
    std::int64_t t = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const Slice& slice = lane.slices[i];
      CHECK(slice.begin.count() == (t += gap[i]));
      CHECK(slice.active.count() == t + wait[i]);
      CHECK(slice.end.count() == (t += length[i]));
      CHECK(slice.name == name[i]);
      CHECK(static_cast<int>(slice.kind) == kind[i]);
      CHECK(slice.microbatch == microbatch[i] - 1);
      CHECK(slice.chunk == chunk[i]);
      CHECK(slice.bytes == size[i]);
      CHECK(slice.peer == peer[i] - 1);
      CHECK((slice.flow == 0) == (flow[i] == 0));
    }
  }
  for (const MemoryCurve& curve : timeline.memory) {
    REQUIRE(static_cast<std::size_t>(next()) == curve.samples.size());
    std::int64_t t = 0;
    for (const MemorySample& sample : curve.samples)
      CHECK(sample.at.count() == (t += next()));
    for (std::size_t c = 0; c < kMemoryKinds; ++c)
      for (const MemorySample& sample : curve.samples)
        CHECK(sample.bytes[c] == next());
  }
  CHECK(at == bytes.size());
}
