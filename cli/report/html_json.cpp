#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/report/assets.h"
#include "cli/report/compress.h"
#include "cli/report/html.h"
#include "cli/report/packed_lanes.h"
#include "sim/base/check.h"
#include "sim/base/html.h"
#include "sim/simulate/report/findings.h"
#include "sim/simulate/report/summary.h"

namespace trainyard::report {
namespace {

using Json = nlohmann::ordered_json;

// JSON inside a script element: no byte may start a tag, a comment or an entity, and U+2028/9 end a
// line in old script parsers. These characters occur only inside JSON strings, where \u is the same
// text.
std::string for_script(std::string_view json) {
  std::string out;
  out.reserve(json.size() + json.size() / 16);
  for (std::size_t i = 0; i < json.size(); ++i) {
    if (json[i] == '<')
      out += "\\u003c";
    else if (json[i] == '>')
      out += "\\u003e";
    else if (json[i] == '&')
      out += "\\u0026";
    else if (json.substr(i, 3) == "\u2028")
      out += "\\u2028", i += 2;
    else if (json.substr(i, 3) == "\u2029")
      out += "\\u2029", i += 2;
    else
      out += json[i];
  }
  return out;
}

// Room for each variant: equal shares, and what small ones leave goes to the large ones.
std::vector<std::size_t> shares(std::span<const ReportVariant> variants, std::size_t cap) {
  std::vector<std::size_t> sizes;
  for (const ReportVariant& variant : variants) {
    std::size_t slices = 0;
    for (const simulate::Lane& lane : variant.timeline.lanes)
      slices += lane.slices.size();
    sizes.push_back(slices);
  }
  std::vector<std::size_t> order(sizes.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return sizes[a] < sizes[b]; });
  std::vector<std::size_t> room(sizes.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    room[order[i]] = std::min(sizes[order[i]], cap / (order.size() - i));
    cap -= room[order[i]];
  }
  return room;
}

// What the columns of pack() mean: the words for their indices.
Json timeline_json(const simulate::Timeline& timeline, std::size_t cap) {
  const Selection selection = select(timeline, cap);
  const auto shown = [&](int rank) {
    return std::binary_search(selection.ranks.begin(), selection.ranks.end(), rank);
  };
  Json lanes = Json::array();
  for (const simulate::Lane& lane : timeline.lanes)
    if (shown(lane.rank))
      lanes.push_back({{"rank", lane.rank},
                       {"stage", lane.stage},
                       {"stream", lane.stream},
                       {"role", lane.role}});
  // Stages of which no rank is shown.
  std::set<int> unseen(timeline.stages_left_out.begin(), timeline.stages_left_out.end());
  for (const simulate::Lane& lane : timeline.lanes)
    unseen.insert(lane.stage);
  for (const simulate::Lane& lane : timeline.lanes)
    if (shown(lane.rank)) unseen.erase(lane.stage);
  Json curves = Json::array();
  for (const simulate::MemoryCurve& curve : timeline.memory)
    if (shown(curve.rank))
      curves.push_back({{"rank", curve.rank}, {"capacity", curve.capacity.count()}});
  return {{"end_ps", timeline.end.count()},
          {"until_ps", selection.until.count()},
          {"ranks_total", timeline.ranks_total},
          {"ranks_simulated", timeline.ranks_shown.size() + timeline.ranks_left_out.size()},
          {"slices", selection.slices},
          {"slices_left_out", selection.left_out + timeline.ops_left_out},
          {"stages_left_out", unseen},
          {"names", timeline.names},
          {"lanes", std::move(lanes)},
          {"memory", std::move(curves)},
          {"columns", base64(deflate_raw(pack(timeline, selection)))}};
}

// `title`: of a category.
template <class Category, class Title>
Json words(std::size_t count, const Title& title) {
  Json list = Json::array();
  for (std::size_t i = 0; i < count; ++i) {
    const auto category = static_cast<Category>(i);
    Json entry = {{"name", name(category)}};
    if constexpr (!std::is_same_v<Category, simulate::SliceKind>) entry["title"] = title(category);
    if constexpr (std::is_same_v<Category, simulate::TimeCategory>)
      entry["meaning"] = meaning(category);
    list.push_back(std::move(entry));
  }
  return list;
}

Json settings_json(const std::vector<Setting>& settings) {
  Json list = Json::array();
  for (const Setting& setting : settings)
    list.push_back({setting.pointer, setting.value});
  return list;
}

// What all are, in one word.
std::string device_of(std::span<const simulate::StepReport> reports) {
  const bool alike = std::all_of(reports.begin(), reports.end(), [&](const auto& report) {
    return report.device == reports.front().device;
  });
  return alike ? reports.front().device : "device";
}

// `reports`: of the variants.
std::string page_json(std::string_view title, std::span<const ReportVariant> variants,
                      std::span<const simulate::StepReport> reports, std::size_t baseline,
                      const HtmlOptions& options) {
  const auto most_stages =
      std::max_element(reports.begin(), reports.end(),
                       [](const auto& a, const auto& b) { return a.pipeline < b.pipeline; });
  const auto title_of_time = [&](simulate::TimeCategory category) {
    return most_stages == reports.end() ? simulate::title(category)
                                        : simulate::title(category, *most_stages);
  };
  const auto title_of_memory = [](plan::MemoryKind kind) { return simulate::title(kind); };
  Json page = {
      {"title", title},
      {"baseline", baseline},
      {"fastest_first", simulate::fastest_first(reports)},
      {"compares_tokens", simulate::compares_tokens(reports)},
      {"device", device_of(reports)},
      {"command", options.command},
      {"time_categories", words<simulate::TimeCategory>(simulate::kTimeCategories, title_of_time)},
      {"memory_categories", words<plan::MemoryKind>(plan::kMemoryKinds, title_of_memory)},
      {"slice_kinds", words<simulate::SliceKind>(simulate::kSliceKinds, nullptr)},
      {"variants", Json::array()}};
  const std::vector<std::size_t> room = shares(variants, options.slice_cap);
  for (std::size_t i = 0; i < variants.size(); ++i)
    page["variants"].push_back({{"sentence", describe(variants[i].report)},
                                {"basis", describe_basis(variants[i].report)},
                                {"settings", settings_json(variants[i].settings)},
                                {"timeline", timeline_json(variants[i].timeline, room[i])}});
  return page.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Replaces {{name}} once per name; the values are not searched again.
std::string fill(std::string_view shell,
                 std::span<const std::pair<std::string_view, std::string_view>> values) {
  std::string out;
  while (true) {
    const std::size_t open = shell.find("{{");
    out += shell.substr(0, open);
    if (open == std::string_view::npos) return out;
    const std::size_t close = shell.find("}}", open);
    const std::string_view key = shell.substr(open + 2, close - open - 2);
    const auto entry = std::find_if(values.begin(), values.end(),
                                    [&](const auto& value) { return value.first == key; });
    TRAINYARD_CHECK(entry != values.end(), "page.html asks for {}", key);
    out += entry->second;
    shell.remove_prefix(close + 2);
  }
}

}  // namespace

std::string html_report(std::string_view title, std::span<const ReportVariant> variants,
                        std::size_t baseline, const HtmlOptions& options) {
  TRAINYARD_CHECK(baseline < variants.size(), "baseline {} of {} variants", baseline,
                  variants.size());
  std::vector<simulate::StepReport> reports;
  for (const ReportVariant& variant : variants) {
    reports.push_back(variant.report);
    if (!variant.label.empty()) reports.back().label = variant.label;
  }
  const std::string result = for_script(compare_json(title, reports, baseline, -1));
  const std::string page = for_script(page_json(title, variants, reports, baseline, options));
  const std::string heading = for_html(title);
  const std::pair<std::string_view, std::string_view> values[] = {
      {"title", heading},         {"style", assets::style},
      {"script", assets::script}, {"script-hash", assets::script_hash},
      {"result", result},         {"page", page}};
  return fill(assets::page, values);
}

}  // namespace trainyard::report
