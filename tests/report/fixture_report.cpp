// Writes the fixture's reports into a folder: what the browser test and protoc read.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cli/report/compress.h"
#include "cli/report/html.h"
#include "cli/report/perfetto.h"
#include "cli/report/text.h"
#include "fixture.h"
#include "sim/simulate/report/summary.h"
#include "tests/support/rooms.h"

namespace {

using namespace trainyard;

void write(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// A pipeline whose lanes hold about `slices` slices, for the limits of the page.
std::vector<ReportVariant> large(int slices) {
  fixture::Shape shape{"large", "1f1b", 8, 8, 2, 1, true, 1 << 28};
  shape.microbatches = std::max(8, slices / (8 * 40));
  return {fixture::make(shape)};
}

// What nobody hopes for: no measurement, a deadlock, warnings, no lanes.
std::vector<ReportVariant> bleak() {
  std::vector<ReportVariant> variants = fixture::four_variants();
  variants.resize(2);
  for (ReportVariant& variant : variants) {
    variant.report.basis = {{Basis::analytic, 1.0}};
    variant.report.sources.clear();
    variant.report.profile = "datasheet";
    variant.report.warnings = {"tensor parallelism of 16 crosses servers of 8 GPUs"};
  }
  variants[1].report.deadlock = "rank 0 waits for rank 2: receive of micro-batch 3";
  variants[1].report.step_time.reset();
  variants[1].report.simulated_step = {};
  variants[1].report.breakdown = {};
  variants[1].timeline = {};
  return variants;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  const std::vector<ReportVariant> variants = fixture::four_variants();
  const std::vector<StepReport> reports = fixture::reports();
  HtmlOptions options;
  options.command = "trainyard compare gpt-1.3b-8gpu.json -o out";
  write(folder / "report.html",
        html_report("Four ways to train 1.3 B parameters on 8 GPUs", variants, 0, options));
  write(folder / "single.html", html_report("1F1B", std::span(variants).subspan(1, 1), 0, options));
  write(folder / "hostile.html",
        html_report(fixture::hostile_texts()[0], fixture::hostile_variants(), 0, {}));
  write(folder / "large.html",
        html_report("Many slices", large(argc > 2 ? std::stoi(argv[2]) : 20'000), 0, {}));
  write(folder / "bleak.html", html_report("A plan that does not work", bleak(), 0, {}));
  write(folder / "comparison.json", compare_json("fixture", reports, 0));
  write(folder / "trace.pftrace", perfetto_trace(variants[1].timeline, "1F1B"));
  write(folder / "trace.pftrace.gz", gzip(perfetto_trace(variants[1].timeline, "1F1B")));
  fmt::print("{}\n{}", to_text(reports[1]), compare_text("fixture", reports, 0));
  return 0;
}
