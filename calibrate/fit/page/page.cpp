// The calibration page. It stands here and not with the report's writers because it shows records
// of a fit, which a simulation knows nothing of; it has no script, so that it needs none of theirs.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "calibrate/fit/fitting.h"
#include "calibrate/fit/page/page_charts.h"
#include "calibrate/fit/page/page_style.h"
#include "sim/base/html.h"

namespace trainyard::fit {
namespace {

// The panels of the page, in their order, and the first words of the groups that they show.
struct Panel {
  std::string_view title, about;
  std::vector<std::string_view> groups;
};

const std::vector<Panel>& panels() {
  static const std::vector<Panel> kPanels = {
      {"Matrix products",
       "Held-out shapes are of other families (n, k) than the fitted ones.",
       {"gemm"}},
      {"Attention", "Fused kernels, by type, head size and masking.", {"attention"}},
      {"Convolutions",
       "Held-out shapes are not in the profile's table of known networks.",
       {"convolution"}},
      {"Memory-bound kernels",
       "Cold: nothing in the L2. Warm: operands there, if they fit.",
       {"memory"}},
      {"Messages and copies",
       "Collectives, send and receive, copies to and from the host.",
       {"all-reduce", "all-gather", "reduce-scatter", "broadcast", "all-to-all", "collective",
        "send", "copy"}},
      {"Overlap", "Kernels while other blocks hold multiprocessors.", {"overlap"}},
      {"Launch", "What starting work costs.", {"launch"}}};
  return kPanels;
}

bool belongs(const Panel& panel, const std::string& group) {
  const std::string_view first = std::string_view(group).substr(0, group.find_first_of(" ,"));
  return std::find(panel.groups.begin(), panel.groups.end(), first) != panel.groups.end();
}

std::vector<const FitRecord*> records_of(const FitResult& result, const Panel& panel) {
  std::vector<const FitRecord*> found;
  for (const FitRecord& r : result.records)
    if (belongs(panel, r.group) && r.fate != SampleFate::unused) found.push_back(&r);
  return found;
}

std::string_view judgement(double mape) {
  if (mape <= 0.05) return "good";
  return mape <= 0.15 ? "warn" : "bad";
}

// The error of a whole panel: held-out cases, or fitted ones where none are held out.
Errors panel_errors(const std::vector<const FitRecord*>& records, bool& held_out) {
  std::vector<double> of_fit, of_rest;
  for (const FitRecord* r : records) {
    if (r->fate == SampleFate::fitted) of_fit.push_back(r->fitted_us / r->measured_us - 1);
    if (r->fate == SampleFate::held_out) of_rest.push_back(r->fitted_us / r->measured_us - 1);
  }
  held_out = !of_rest.empty();
  return errors_of(held_out ? of_rest : of_fit);
}

std::string cards(const FitResult& result) {
  std::string html;
  for (const Panel& panel : panels()) {
    const std::vector<const FitRecord*> records = records_of(result, panel);
    if (records.empty() || panel.title == "Launch") continue;
    bool held_out = false;
    const Errors e = panel_errors(records, held_out);
    html += fmt::format(R"(<div class="card"><h3>{}</h3><div class="big {}">{:.1f} %</div>)"
                        "<small>mean error on {} {} cases<br>median {:.1f}&nbsp;%, worst "
                        "{:.0f}&nbsp;%</small></div>",
                        panel.title, judgement(e.mape / 100), e.mape, e.count,
                        held_out ? "held-out" : "fitted", e.median, e.worst);
  }
  return fmt::format(R"(<div class="cards">{}</div>)", html);
}

std::string legend() {
  return R"(<ul class="legend"><li><svg viewBox="0 0 16 16"><circle class="fitted" cx="8" )"
         R"(cy="8" r="4"/></svg>fitted</li>)"
         R"(<li><svg viewBox="0 0 16 16"><circle class="held-out" cx="8" cy="8" )"
         R"(r="4"/></svg>held out: never seen by the fit</li>)"
         R"(<li><svg viewBox="0 0 16 16"><path class="rejected" d="M4 4l8 8m0 -8l-8 )"
         R"(8"/></svg>rejected</li>)"
         R"(<li><svg viewBox="0 0 16 16"><rect class="band" width="16" )"
         R"(height="16"/></svg>within 10 %</li></ul>)";
}

std::string figures(const FitResult& result) {
  std::string html;
  for (const Panel& panel : panels()) {
    const std::vector<const FitRecord*> records = records_of(result, panel);
    if (records.size() < 2 || panel.title == "Launch") continue;
    const std::string scatter = scatter_chart(records);
    const std::string residual = residual_chart(records);
    if (scatter.empty()) continue;
    html += fmt::format(R"(<div class="panel"><h3>{}</h3><p class="quiet">{}</p><div class="two">)",
                        panel.title, panel.about);
    html += fmt::format("<figure>{}<figcaption>Fitted against measured time.</figcaption></figure>",
                        scatter);
    if (!residual.empty())
      html += fmt::format("<figure>{}<figcaption>What is left, by size.</figcaption></figure>",
                          residual);
    html += "</div></div>";
  }
  return html;
}

std::string error_row(const cost::HeldOutError& e) {
  const bool whole = e.size == "all";
  return fmt::format(
      R"(<tr class="{}"><th scope="row">{}</th><td class="number">{}</td><td )"
      R"(class="number">{}</td>)"
      R"(<td class="number">{}</td><td class="number">{:.1f}</td><td class="meter"><i class="{}" )"
      R"(style="width:{:.0f}%"></i></td><td class="number">{:.1f}</td><td )"
      R"(class="number">{:.0f}</td></tr>)",
      whole ? "group" : "part", for_html(whole ? e.what : e.size), e.fitted,
      e.held_out > 0 ? std::to_string(e.held_out) : "none", e.rejected, 100 * e.mape,
      judgement(e.mape), std::clamp(400 * e.mape, 1.0, 100.0), 100 * e.median, 100 * e.worst);
}

std::string error_table(const FitResult& result) {
  std::string rows;
  for (const cost::HeldOutError& e : result.profile.calibration->errors)
    if (!e.what.starts_with("launch")) rows += error_row(e);
  return R"(<div class="scroll"><table><thead><tr><th>What</th><th class="number">fitted</th>)"
         R"(<th class="number">held out</th><th class="number">rejected</th><th )"
         R"(class="number">MAPE %</th>)"
         R"(<th>to 25 %</th><th class="number">median %</th><th class="number">worst )"
         R"(%</th></tr></thead><tbody>)" +
         rows + "</tbody></table></div>";
}

std::string rejected_table(const FitResult& result) {
  std::string rows;
  for (const FitRecord& r : result.records) {
    if (r.fate != SampleFate::rejected) continue;
    rows += fmt::format(R"(<tr><th scope="row">{}</th><td>{}</td><td class="number">{}</td>)"
                        R"(<td class="number">{}</td><td>{}</td></tr>)",
                        for_html(r.group), for_html(r.shape), time_text(r.measured_us),
                        time_text(r.fitted_us), for_html(r.reason));
  }
  if (rows.empty()) return "<p>None.</p>";
  return R"(<div class="scroll"><table><thead><tr><th>What</th><th>case</th><th )"
         R"(class="number">measured</th>)"
         R"(<th class="number">fitted</th><th>why</th></tr></thead><tbody>)" +
         rows + "</tbody></table></div>";
}

// Cases that no law uses, by group and reason.
std::string unused_text(const FitResult& result) {
  std::map<std::pair<std::string, std::string>, int> counts;
  for (const FitRecord& r : result.records)
    if (r.fate == SampleFate::unused) ++counts[{r.group, r.reason}];
  if (counts.empty()) return "";
  std::string items;
  for (const auto& [what, count] : counts)
    items +=
        fmt::format("<li>{}: {} ({})</li>", for_html(what.first), count, for_html(what.second));
  return "<h3>Measured, but not used</h3><ul>" + items + "</ul>";
}

std::string carried_table(const FitResult& result) {
  std::string rows;
  for (const CarriedLaw& law : result.carried)
    rows += fmt::format(R"(<tr><th scope="row">{}</th><td>{}</td><td>{}</td><td>{}</td></tr>)",
                        for_html(law.what), for_html(origin(law.from)), name(law.from.basis),
                        for_html(law.from.residual));
  std::string html;
  if (!rows.empty())
    html += R"(<div class="scroll"><table><thead><tr><th>What</th><th>from</th>)"
            "<th>trust</th><th>its error</th></tr></thead><tbody>" +
            rows + "</tbody></table></div>";
  std::string items;
  for (const std::string& what : result.missing)
    items += "<li>" + for_html(what) + "</li>";
  if (!items.empty()) html += "<h3>Not in the profile</h3><ul>" + items + "</ul>";
  return html;
}

// The rows of the table of constants: a law, its constants, its error.
class ConstantsTable {
 public:
  explicit ConstantsTable(const cost::Profile& profile) {
    add_kernels(profile);
    add_transfers(profile);
    add_machine(profile);
  }

  const std::string& rows() const { return rows_; }

 private:
  void add_kernels(const cost::Profile& profile);
  void add_transfers(const cost::Profile& profile);
  void add_machine(const cost::Profile& profile);

  void row(const std::string& law, const std::string& constants, const cost::Provenance& from) {
    rows_ += fmt::format(R"(<tr><th scope="row">{}</th><td>{}</td><td>{}</td></tr>)", for_html(law),
                         for_html(constants), for_html(from.residual));
  }

  static std::string us(Seconds s) { return s.count() > 0 ? time_text(microseconds(s)) : "0"; }

  std::string rows_;
};

void ConstantsTable::add_kernels(const cost::Profile& profile) {
  for (const cost::GemmLaw& l : profile.gemm)
    row(fmt::format("gemm {}", name(l.dtype)),
        fmt::format(
            "t0 {}, {:.3g} of the peak, {:.3g} of the bandwidth, p {:.3g}{}{}, {} residuals",
            us(l.fixed), l.compute_efficiency, l.memory_efficiency, l.exponent,
            l.tiles ? fmt::format(", tiles half {:.3g}, smaller {:.3g}, prologue {:.3g}",
                                  l.tiles->half, l.tiles->smaller, l.tiles->prologue)
                    : "",
            l.unaligned
                ? fmt::format(", rows of 2, 4, 8 bytes {:.3g}, {:.3g}, {:.3g}",
                              l.unaligned->bytes_2, l.unaligned->bytes_4, l.unaligned->bytes_8)
                : "",
            l.residuals.size()),
        l.from);
  if (!profile.batched_gemm_from.source.empty())
    row("batched gemm", fmt::format("{:.3g} of the single one", profile.batched_gemm_efficiency),
        profile.batched_gemm_from);
  for (const cost::AttentionLaw& l : profile.attention)
    row(fmt::format("attention{}{} {} {} {}", l.kernel ? " " : "", l.kernel ? name(*l.kernel) : "",
                    l.dtype ? name(*l.dtype) : "", l.head_size,
                    !l.causal   ? "causal and full"
                    : *l.causal ? "causal"
                                : "full"),
        fmt::format("forward {:.3g}, backward {:.3g} of the peak, {:.3g} and {:.3g} keys a query",
                    l.forward, l.backward, l.forward_keys, l.backward_keys),
        l.from);
  if (const auto& l = profile.attention_dropout)
    row(fmt::format("dropout of attention {}", name(l->kernel)),
        fmt::format("{:.3g} and {:.3g} numbers per FLOP of fp32", l->forward, l->backward),
        l->from);
  for (const cost::ConvolutionLaw& l : profile.convolution)
    row(fmt::format("convolution {}", name(l.dtype)),
        fmt::format(
            "{:.3g} of the GEMM law, 3x3 {:.3g}, few channels {:.3g}, data gradient {:.3g}, "
            "weight gradient {:.3g}, strided data gradient {:.3g}, half its rate at {:.3g} tiles, "
            "{} "
            "shapes",
            l.efficiency, l.kernel_3x3, l.few_channels, l.data_gradient, l.weight_gradient,
            l.strided_data_gradient, l.half_rate_tiles, l.residuals.size()),
        l.from);
  for (const cost::MemoryLaw& l : profile.memory)
    row(fmt::format("memory {}", name(l.op)),
        fmt::format("{} + {:.3g} of the bandwidth, in the L2 {:.3g} times that", us(l.fixed),
                    l.efficiency, l.l2_speedup),
        l.from);
}

void ConstantsTable::add_transfers(const cost::Profile& profile) {
  for (const cost::CollectiveLaw& l : profile.collectives)
    row(fmt::format("{} on {} ranks, {} servers", name(l.kind), l.ranks, l.servers),
        fmt::format("{} + S / {:.4g} GB/s + {} sqrt(S / MB)", us(l.start),
                    l.bandwidth.count() / 1e9, us(l.per_sqrt_MB)),
        l.from);
  if (profile.collective_start)
    row("collective start",
        fmt::format("{} + {} per step of a ring", us(profile.collective_start->start),
                    us(profile.collective_start->per_step)),
        profile.collective_start->from);
  for (const cost::PointToPointLaw& l : profile.point_to_point)
    row(fmt::format("send and receive, {}", l.same_server ? "one server" : "two servers"),
        fmt::format("{} + S / {:.4g} GB/s", us(l.start), l.bandwidth.count() / 1e9), l.from);
  for (const cost::HostCopyLaw& l : profile.host_copies)
    row(fmt::format("copy {} {}", l.to_device ? "to the device" : "to the host",
                    l.pinned ? "pinned" : "pageable"),
        fmt::format("{} + S / {:.4g} GB/s", us(l.start), l.bandwidth.count() / 1e9), l.from);
}

void ConstantsTable::add_machine(const cost::Profile& profile) {
  if (profile.launch.count() > 0)
    row("launch", us(profile.launch) + " of host time per kernel", profile.launch_from);
  if (!profile.channels_from.source.empty())
    row("channels",
        fmt::format("a collective holds {} multiprocessors, a send {}", profile.collective_channels,
                    profile.point_to_point_channels),
        profile.channels_from);
  if (profile.overlap)
    row("overlap",
        fmt::format("weights: gemm {:.3g}, memory-bound {:.3g}; communication keeps {:.3g}",
                    profile.overlap->gemm, profile.overlap->memory_bound,
                    profile.overlap->communication),
        profile.overlap->from);
}

std::string constants_table(const cost::Profile& profile) {
  return R"(<div class="scroll"><table><thead><tr><th>Law</th><th>constants</th>)"
         "<th>error</th></tr></thead><tbody>" +
         ConstantsTable(profile).rows() + "</tbody></table></div>";
}

std::string machine_list(const FitResult& result) {
  std::string items;
  for (const auto& [key, value] : result.machine)
    items += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", for_html(key), for_html(value));
  return fmt::format(R"(<div class="panel"><dl>{}</dl></div>)", items);
}

std::string warnings_list(const FitResult& result) {
  std::string items;
  for (const Diagnostic& warning : result.warnings)
    items += "<li>" + for_html(warning.message) + "</li>";
  return items.empty() ? "" : "<section><h2>Warnings</h2><ul>" + items + "</ul></section>";
}

std::string section(std::string_view title, const std::string& inside) {
  return fmt::format("<section><h2>{}</h2>{}</section>\n", title, inside);
}

}  // namespace

std::string calibration_html(const FitResult& result) {
  const cost::Calibration& calibration = *result.profile.calibration;
  const std::string title = for_html(result.profile.name);
  std::string html = fmt::format(
      R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><meta name="generator" content="trainyard">
<title>{} calibration</title><style>{}</style></head><body>
<header class="top wide"><p class="brand">trainyard<span> calibration</span></p><h1>{}</h1>
<p class="quiet">{} cases measured on {}, {}, by {}. Errors are those of the simulator's
own laws on cases that no constant was fitted to.</p></header>
<main class="wide">)",
      title, kPageStyle, title, calibration.samples, for_html(calibration.machine),
      for_html(calibration.date), for_html(calibration.program));
  html += section("How well it predicts", cards(result));
  html += section("Measured against fitted", legend() + figures(result));
  html += section("Errors by kind and size",
                  "<p class=\"quiet\">Held out are whole families: products of an (n, k), and "
                  "sizes or lengths, that nothing near to them was fitted on. The rows of other m "
                  "are the easier question, families that were fitted.</p>" +
                      error_table(result));
  html += section(
      "Rejected",
      fmt::format(
          "<p class=\"quiet\">A case is rejected if the middle half of its repeats spreads by "
          "more than {:.0f} %, or, among the fitted, if it is further than {:.0f} scaled median "
          "deviations and {:.0f} % from the law. Held-out cases are not rejected for "
          "their error.</p>",
          100 * kMostSpread, kOutlierMads, 50.0) +
          rejected_table(result) + unused_text(result));
  if (const std::string carried = carried_table(result); !carried.empty())
    html += section("Not measured here", carried);
  html += section("Constants", constants_table(result.profile));
  html += section("Machine", machine_list(result));
  html += warnings_list(result);
  html +=
      "</main>\n<footer class=\"wide\">Written by trainyard. Nothing on this page is loaded from "
      "or "
      "sent to a network.</footer></body></html>\n";
  return html;
}

}  // namespace trainyard::fit
