// What one GPU cannot measure comes from a base, visibly, or is named as missing.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "tests/calibrate/synthetic.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::test;

namespace {

Profile shipped(const std::string& name) {
  return read_profile(fmt::format("{}/configs/profiles/{}.json", TRAINYARD_SOURCE_DIR, name));
}

FitResult fit_on(const std::vector<std::string>& lines, FitOptions options) {
  const SampleFile file(lines);
  return fit_samples({file.path()}, options);
}

FitOptions with_base(const Profile& base) {
  FitOptions options = test_options();
  options.find_base = [base](const FitGpu&) { return base; };
  return options;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const CarriedLaw* carried(const FitResult& result, const std::string& what) {
  for (const CarriedLaw& law : result.carried)
    if (law.what.starts_with(what)) return &law;
  return nullptr;
}

std::string loopback(const std::string& kind, int ranks, std::int64_t bytes, double seconds) {
  return collective_line(kind, ranks, bytes, seconds, "loopback");
}

}  // namespace

TEST_CASE("Products alone are fitted, and everything else is named as missing") {
  const FitResult result = fit_lines(gemm_lines(test_gemm_law(), 0.02, 1, 60));
  CHECK(result.profile.gemm.size() == 1);
  CHECK(result.carried.empty());
  CHECK(result.warnings.empty());
  for (const char* what :
       {"attention", "convolutions", "memory-bound", "collectives", "send", "channels", "launch"})
    CHECK(std::any_of(result.missing.begin(), result.missing.end(),
                      [&](const std::string& m) { return m.starts_with(what); }));
  CHECK(contains(fit_text(result), "Not in the profile:"));
  CHECK(contains(calibration_html(result), "channels: communication slows no kernel"));
}

TEST_CASE("Laws without samples come from the profile of another GPU, and say so") {
  const Profile base = shipped("h100-sxm5-80gb");
  const FitResult result = fit_on(gemm_lines(test_gemm_law(), 0.02, 1, 60), with_base(base));
  const Profile& own = result.profile;
  CHECK(result.base == base.name);
  CHECK(own.gpu == "test-gpu");
  // Of its own products in bf16 it knows more than of the base's of 16 bits; others are the base's.
  REQUIRE(own.gemm.size() == base.gemm.size() - 1);
  CHECK(own.gemm.front().from.source == "trainyard calibrate");
  // It measured no unaligned products.
  REQUIRE(own.gemm.front().unaligned.has_value());
  CHECK(own.gemm.front().unaligned->from.basis == Basis::extrapolated);
  REQUIRE(own.attention_dropout.has_value());
  CHECK(own.attention_dropout->forward == base.attention_dropout->forward);
  CHECK(own.attention_dropout->from.basis == Basis::extrapolated);
  CHECK(carried(result, "dropout of attention") != nullptr);
  for (std::size_t i = 1; i < own.gemm.size(); ++i) {
    CHECK(own.gemm[i].dtype != Dtype::fp16);
    CHECK(own.gemm[i].from.basis == Basis::extrapolated);
  }
  REQUIRE(own.collectives.size() == base.collectives.size());
  REQUIRE(own.point_to_point.size() == 2);
  CHECK(own.memory.size() == base.memory.size());
  CHECK(own.collective_channels == 24);
  CHECK(own.point_to_point_channels == 2);
  CHECK(own.launch == base.launch);
  for (std::size_t i = 0; i < base.collectives.size(); ++i) {
    CHECK(own.collectives[i].bandwidth == base.collectives[i].bandwidth);
    CHECK(own.collectives[i].from.basis >= Basis::extrapolated);
    CHECK(own.collectives[i].from.source ==
          "profile h100-sxm5-80gb, made on h100-sxm5-80gb: " + base.collectives[i].from.source);
    CHECK(own.collectives[i].from.residual == base.collectives[i].from.residual);
  }
  CHECK(base.point_to_point.front().from.basis == Basis::interpolated);
  CHECK(own.point_to_point.front().from.basis == Basis::extrapolated);
  REQUIRE(carried(result, "channels") != nullptr);
  CHECK(carried(result, "channels")->from.basis == Basis::analytic);
  for (const std::string& text : {fit_text(result), calibration_html(result)}) {
    CHECK(contains(text, "all-reduce on 8 ranks, 1 server"));
    CHECK(contains(text, "dropout of attention"));
    CHECK(contains(text, "from profile h100-sxm5-80gb"));
  }
  CHECK(contains(fit_json(result), "\"base\": \"h100-sxm5-80gb\""));
  const SampleFile file(SampleFile::Raw{profile_json(own)});
  CHECK(read_profile(file.path()) == own);
  // Taken over once more, a law still names the profile that it is from.
  const FitResult again = fit_on(gemm_lines(test_gemm_law(), 0.02, 2, 60), with_base(own));
  CHECK(again.profile.collectives.front().from == own.collectives.front().from);
}

TEST_CASE("A profile of the same GPU keeps its trust, and what was measured replaces its laws") {
  Profile base = shipped("h100-sxm5-80gb");
  base.gpu = "test-gpu";
  std::vector<std::string> lines = gemm_lines(test_gemm_law(), 0.02, 1, 60);
  for (int power = 10; power <= 30; ++power)
    lines.push_back(
        collective_line("all-reduce", 4, std::int64_t{1} << power, 3e-5 + std::exp2(power) / 2e11));
  const FitResult result = fit_on(lines, with_base(base));
  CHECK(result.profile.point_to_point.front().from.basis == Basis::interpolated);
  CHECK(result.profile.point_to_point.front().from.source ==
        "profile h100-sxm5-80gb: " + base.point_to_point.front().from.source);
  // Its own four ranks say more of eight of its own than those of the base do.
  int all_reduces = 0;
  for (const CollectiveLaw& law : result.profile.collectives)
    all_reduces += law.kind == CollectiveKind::all_reduce ? 1 : 0;
  CHECK(all_reduces == 1);
  CHECK(carried(result, "all-reduce") == nullptr);
  CHECK(carried(result, "all-gather") != nullptr);
}

TEST_CASE("Channels given by hand stand before those of the base") {
  FitOptions options = with_base(shipped("h100-sxm5-80gb"));
  const std::vector<std::string> lines = gemm_lines(test_gemm_law(), 0.02, 1, 60);
  options.channels = 16;
  const FitResult one = fit_on(lines, options);
  CHECK(one.profile.collective_channels == 16);
  CHECK(one.profile.point_to_point_channels == 2);
  CHECK(one.profile.channels_from.basis == Basis::analytic);
  CHECK(contains(one.profile.channels_from.source,
                 "by hand: that of a collective; the other: "
                 "profile h100-sxm5-80gb"));
  options.point_to_point_channels = 0;
  options.find_base = nullptr;
  const FitResult both = fit_on(lines, options);
  CHECK(both.profile.collective_channels == 16);
  CHECK(both.profile.point_to_point_channels == 0);
  CHECK(both.profile.channels_from.source == "Given to trainyard fit by hand");
  CHECK(contains(fit_text(both), "a collective holds 16, a send 0 multiprocessors"));
}

TEST_CASE("The start of collectives and its steps are recovered from virtual ranks") {
  std::vector<std::string> lines;
  Noise noise(13);
  for (const int ranks : {2, 4, 8}) {
    const auto add = [&](const std::string& kind, int steps) {
      for (const std::int64_t bytes : {1024, 4096, 1 << 20, 1 << 24})
        lines.push_back(loopback(kind, ranks, bytes,
                                 (8e-6 + steps * 1.5e-6) * noise.factor(0.01) +
                                     static_cast<double>(bytes - 1024) / 1e11));
    };
    add("all-reduce", 2 * (ranks - 1));
    add("all-gather", ranks - 1);
    add("reduce-scatter", ranks - 1);
    add("broadcast", ranks - 1);
  }
  const FitResult result = fit_lines(lines);
  REQUIRE(result.profile.collective_start.has_value());
  const CollectiveStart& law = *result.profile.collective_start;
  CHECK(law.start.count() == about(8e-6).within(0.03));
  CHECK(law.per_step.count() == about(1.5e-6).within(0.03));
  CHECK(law.from.basis == Basis::analytic);
  CHECK(result.profile.collectives.empty());
  const HeldOutError error = error_of(result, "collective start");
  CHECK(error.fitted + error.held_out == 12);
  CHECK(error.mape < 0.03);
  CHECK(std::count_if(result.records.begin(), result.records.end(),
                      [](const FitRecord& r) { return r.fate == SampleFate::unused; }) == 36);
  // The simulator uses it.
  GroupShape shape;
  shape.ranks = shape.ranks_per_server = 8;
  shape.intra_bandwidth = BytesPerSecond(3e11);
  CHECK(fitted_message_cost(result.profile)
            ->collective(CollectiveKind::all_gather, Bytes(8), shape)
            .latency.count() == about(8e-6 + 7 * 1.5e-6).within(0.03));
}

TEST_CASE("Messages of gloo give laws, and those of the GPUs' library are taken before them") {
  const auto lines_of = [](const std::string& backend, double rate) {
    std::vector<std::string> lines;
    for (const std::int64_t bytes : {1 << 18, 1 << 19, 1 << 20, 1 << 21, 1 << 22, 1 << 23})
      lines.push_back(collective_line("all-reduce", 2, bytes,
                                      100e-6 + static_cast<double>(bytes) / rate, backend));
    return lines;
  };
  std::vector<std::string> lines = lines_of("gloo", 25e6);
  const FitResult alone = fit_lines(lines);
  REQUIRE(alone.profile.collectives.size() == 1);
  CHECK(alone.profile.collectives[0].bandwidth.count() == about(25e6).within(0.01));
  const std::vector<std::string> others = lines_of("nccl", 50e6);
  lines.insert(lines.end(), others.begin(), others.end());
  const FitResult both = fit_lines(lines);
  REQUIRE(both.profile.collectives.size() == 1);
  CHECK(both.profile.collectives[0].bandwidth.count() == about(50e6).within(0.01));
}

TEST_CASE("Too few cases of a kind are refused with a reason, and the base gives the law") {
  std::vector<std::string> lines = gemm_lines(test_gemm_law(), 0.3, 5, 7);
  // The same shape in other layouts is no other case.
  for (const char* layout : {"NN", "NT"})
    for (int i = 0; i < 7; ++i) {
      std::string line = lines[static_cast<std::size_t>(i)];
      line.replace(line.find("TN"), 2, layout);
      lines.push_back(line);
    }
  for (const std::int64_t bytes : {1000, 2000, 3000})
    lines.push_back(fmt::format(
        R"({{"kind": "memory", "op": "softmax", "variant": "forward", "read_bytes": {}, )"
        R"("written_bytes": 0, "time_us": 3}})",
        bytes));
  lines.push_back(collective_line("all-reduce", 8, 1024, 1e-5));
  lines.push_back(collective_line("all-reduce", 8, 4096, 2e-5));
  lines.push_back(collective_line("all-reduce", 8, 8192, 1e-5));
  lines.push_back(R"({"kind": "overlap", "victim": "gemm", "load": "hold", "channels": 4, )"
                  R"("multiprocessors": 132, "alone_us": 800, "time_us": 900})");
  const FitResult alone = fit_lines(lines);
  CHECK(alone.profile.gemm.empty());
  CHECK(alone.profile.memory.empty());
  CHECK(alone.profile.collectives.empty());
  CHECK_FALSE(alone.profile.overlap.has_value());
  CHECK(alone.warnings.size() == 4);
  for (const FitRecord& r : alone.records) {
    CHECK(r.fate == SampleFate::unused);
    CHECK(r.reason.starts_with("too few for a law: "));
  }
  const FitResult helped = fit_on(lines, with_base(shipped("h100-sxm5-80gb")));
  CHECK(helped.profile.gemm.size() == shipped("h100-sxm5-80gb").gemm.size());
  CHECK(carried(helped, "memory softmax") != nullptr);
  CHECK(carried(helped, "all-reduce on 8 ranks") != nullptr);
}

TEST_CASE("Other m of fitted families are a row of their own, and the headline has none of them") {
  Profile truth;
  truth.gemm = {test_gemm_law()};
  const auto cost = fitted_compute_cost(truth, test_gpu().peaks);
  Noise noise(21);
  std::vector<std::string> lines;
  for (int family = 0; family < 40; ++family) {
    const std::int64_t n = 8 * noise.size(4, 11), k = 8 * noise.size(4, 11);
    const double own = noise.factor(0.1);  // what a family has of its own
    for (const std::int64_t m : {64, 128, 256, 512, 1024, 2048, 4096, 8192}) {
      const Gemm g{m, n, k, 1, Dtype::bf16};
      lines.push_back(gemm_line(g, cost->time(g).time.count() * own * noise.factor(0.01)));
    }
  }
  const FitResult result = fit_lines(lines);
  const HeldOutError families = error_of(result, "gemm bf16");
  HeldOutError sizes;
  for (const HeldOutError& e : result.profile.calibration->errors)
    if (e.what == "gemm bf16" && e.size.find("(n, k)") != std::string::npos) sizes = e;
  CHECK(families.held_out >= 60);
  CHECK(sizes.held_out >= 20);
  CHECK(families.fitted + families.held_out + sizes.held_out + families.rejected == 320);
  const auto mean = [&](SampleFate fate) {
    double sum = 0;
    int count = 0;
    for (const FitRecord& r : result.records)
      if (r.fate == fate) sum += std::abs(r.fitted_us / r.measured_us - 1), ++count;
    return sum / count;
  };
  CHECK(families.mape == about(mean(SampleFate::held_out)).within(1e-4));
  CHECK(sizes.mape == about(mean(SampleFate::held_out_size)).within(1e-4));
  CHECK(sizes.mape != families.mape);
  const std::string& residual = result.profile.gemm.front().from.residual;
  CHECK(contains(residual, fmt::format("on {} held-out cases, median ", families.held_out)));
  CHECK(contains(residual,
                 fmt::format("on {} other sizes of fitted families, median ", sizes.held_out)));
  CHECK(contains(fit_text(result), sizes.size));
  // Classes of size part the whole.
  int classes = 0;
  for (const HeldOutError& e : result.profile.calibration->errors)
    if (e.size.starts_with("flops")) classes += e.held_out;
  CHECK(classes == families.held_out);
}
