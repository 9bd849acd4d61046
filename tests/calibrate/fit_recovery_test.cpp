// Data of a known law gives the law back; data of another law shows that it does not fit.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/calibrate/synthetic.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::test;

TEST_CASE("The constants of a GEMM law are recovered from noisy times") {
  const GemmLaw truth = test_gemm_law();
  const FitResult result = fit_lines(gemm_lines(truth, 0.02));
  REQUIRE(result.profile.gemm.size() == 1);
  const GemmLaw& law = result.profile.gemm.front();
  // 200 shapes of 2 % noise know the efficiencies to a few tenths of a percent; four times that.
  CHECK(law.fixed.count() == about(5e-6).within(0.05));
  CHECK(law.compute_efficiency == about(0.74).within(0.02));
  CHECK(law.memory_efficiency == about(0.9).within(0.04));
  CHECK(law.exponent == about(1.6).within(0.06));
  const HeldOutError error = error_of(result, "gemm bf16");
  CHECK(error.held_out >= 40);
  CHECK(error.held_out + error.fitted + error.rejected == 200);
  // The mean distance of normal noise from zero is 0.8 sigma, and no fit is better than its noise.
  CHECK(error.mape > 0.012);
  CHECK(error.mape < 0.022);
}

TEST_CASE("Exact times of a law are reproduced exactly") {
  const FitResult result = fit_lines(gemm_lines(test_gemm_law(), 0));
  CHECK(error_of(result, "gemm bf16").worst < 1e-3);
}

TEST_CASE("The factor of batches is recovered") {
  std::vector<std::string> lines = gemm_lines(test_gemm_law(), 0.01);
  Profile truth;
  truth.gemm = {test_gemm_law()};
  truth.batched_gemm_efficiency = 0.6;
  const auto cost = fitted_compute_cost(truth, test_gpu().peaks);
  Noise noise(7);
  for (int i = 0; i < 40; ++i) {
    const Gemm g{noise.size(9, 12), 8 * noise.size(6, 9), 8 * noise.size(6, 9), noise.size(3, 6),
                 Dtype::bf16};
    lines.push_back(gemm_line(g, cost->time(g).time.count() * noise.factor(0.01)));
  }
  const FitResult result = fit_lines(lines);
  CHECK(result.profile.batched_gemm_efficiency == about(0.6).within(0.02));
}

// Where cuDNN has kernels of their own for Winograd's algorithm nothing is left to fit of 3x3
// filters; where it is one kernel their gain is found again.
TEST_CASE("Convolutions in fp32 have Winograd's algorithm as their GPU does") {
  GemmLaw products = test_gemm_law();
  products.dtype = Dtype::fp32;
  for (const WinogradUse use : {WinogradUse::none, WinogradUse::fused, WinogradUse::separate}) {
    Profile truth;
    truth.gemm = {products};
    ConvolutionLaw law;
    law.dtype = Dtype::fp32;
    law.winograd = use;
    law.kernel_3x3 = use == WinogradUse::separate ? 1 : 1.6;
    truth.convolution = {law};
    const auto cost = fitted_compute_cost(truth, test_gpu().peaks);
    std::vector<std::string> lines = gemm_lines(products, 0);
    for (int i = 0; i < 60; ++i) {
      const std::int64_t filter = i % 2 == 0 ? 3 : 1, channels = 64 << i % 4;
      const std::int64_t side = 14 + 7 * (i % 5), images = 8 + 8 * (i % 3);
      const Convolution one{.batch = images,
                            .in_channels = channels,
                            .out_channels = 64 + 32 * i,
                            .in_height = side,
                            .in_width = side,
                            .out_height = side,
                            .out_width = side,
                            .kernel_height = filter,
                            .kernel_width = filter,
                            .dtype = Dtype::fp32};
      lines.push_back(convolution_line(one, cost->time(one).time.count()));
    }
    FitGpu gpu = test_gpu();
    gpu.winograd = use;
    const FitResult result = fit_lines(lines, gpu);
    REQUIRE(result.profile.convolution.size() == 1);
    const ConvolutionLaw& found = result.profile.convolution.front();
    CHECK(found.winograd == use);
    CHECK(found.kernel_3x3 == about(law.kernel_3x3).within(0.05));
  }
}

TEST_CASE("A collective's law is recovered and virtual ranks give none") {
  std::vector<std::string> lines;
  Noise noise(3);
  for (int power = 10; power <= 32; ++power) {
    const double bytes = std::exp2(power);
    const double seconds = 40e-6 + bytes / 280e9 + 20e-6 * std::sqrt(bytes / 1e6);
    lines.push_back(
        collective_line("all-reduce", 8, std::int64_t{1} << power, seconds * noise.factor(0.02)));
    lines.push_back(collective_line("all-gather", 4, std::int64_t{1} << power, 20e-6 + bytes / 1e10,
                                    "loopback"));
  }
  const FitResult result = fit_lines(lines);
  REQUIRE(result.profile.collectives.size() == 1);
  const CollectiveLaw& law = result.profile.collectives.front();
  CHECK(law.kind == CollectiveKind::all_reduce);
  CHECK(law.ranks == 8);
  CHECK(law.start.count() == about(40e-6).within(0.06));
  CHECK(law.bandwidth.count() == about(280e9).within(0.05));
  CHECK(law.per_sqrt_MB.count() == about(20e-6).within(0.15));
  CHECK(law.least.count() >= 1024);
  // One number of steps says nothing of a step.
  REQUIRE(result.warnings.size() == 1);
  CHECK(result.warnings.front().message.find("collective start: 1 different case is too few") !=
        std::string::npos);
  CHECK_FALSE(result.profile.collective_start.has_value());
}

TEST_CASE("Measured collectives that training does not have are listed and give no law") {
  std::vector<std::string> lines;
  for (int power = 10; power <= 20; ++power)
    for (const std::string collective : {"all-reduce", "reduce", "gather", "scatter", "hypercube"})
      lines.push_back(collective_line(collective, 8, std::int64_t{1} << power,
                                      40e-6 + std::exp2(power) / 280e9));
  const FitResult result = fit_lines(lines);
  REQUIRE(result.profile.collectives.size() == 1);
  CHECK(result.profile.collectives.front().kind == CollectiveKind::all_reduce);
  CHECK(std::count_if(result.records.begin(), result.records.end(), [](const FitRecord& record) {
          return record.reason.find("training has no such collective") != std::string::npos;
        }) == 4 * 11);
}

TEST_CASE("The law of a memory-bound kernel is recovered from cold and warm operands") {
  std::vector<std::string> lines;
  Noise noise(5);
  MemoryLaw truth;
  truth.op = MemoryOp::layer_norm;
  truth.fixed = Seconds(2.5e-6);
  truth.efficiency = 0.8;
  truth.backward_efficiency = 0.5;
  truth.l2_speedup = 2.2;
  Profile profile;
  profile.memory = {truth};
  MachinePeaks cold = test_gpu().peaks;
  cold.l2 = Bytes(0);
  for (const bool warm : {false, true}) {
    const auto cost = fitted_compute_cost(profile, warm ? test_gpu().peaks : cold);
    for (int i = 0; i < 40; ++i) {
      const std::int64_t bytes = noise.size(16, 30);
      const MemoryBound kernel{truth.op, Bytes(bytes), Bytes(bytes / 2), i % 2 != 0};
      lines.push_back(fmt::format(
          R"({{"kind": "memory", "op": "layer-norm", "variant": "{}{}", "dtype": "bf16", )"
          R"("rows": 1, "columns": 1, "read_bytes": {}, "written_bytes": {}, "time_us": )"
          R"({:.6g}}})",
          i % 2 == 0 ? "forward" : "backward", warm ? "-warm" : "", bytes, bytes / 2,
          cost->time(kernel).time.count() * noise.factor(0.02) * 1e6));
    }
  }
  const FitResult result = fit_lines(lines);
  REQUIRE(result.profile.memory.size() == 1);
  const MemoryLaw& law = result.profile.memory.front();
  CHECK(law.fixed.count() == about(2.5e-6).within(0.05));
  CHECK(law.efficiency == about(0.8).within(0.02));
  CHECK(law.backward_efficiency.value_or(0) == about(0.5).within(0.02));
  CHECK(law.l2_speedup == about(2.2).within(0.05));
  CHECK(error_of(result, "memory layer-norm forward").fitted > 0);
  CHECK(error_of(result, "memory layer-norm backward warm").fitted > 0);
}

TEST_CASE("Shares of attention are recovered, and cudnn is used where tiled was measured too") {
  std::vector<std::string> lines = gemm_lines(test_gemm_law(), 0.01);
  Noise noise(9);
  for (const bool backward : {false, true}) {
    for (const std::int64_t length : {512, 1024, 2048, 4096, 8192, 16384}) {
      for (const std::int64_t heads : {16, 32, 64}) {
        const Attention a{2, heads, heads, length, length, 128, true, backward, Dtype::bf16};
        const double seconds = 9e-6 + flops(a).count() / ((backward ? 0.45 : 0.6) * 1000e12);
        for (const char* of : {"cudnn", "tiled"})
          lines.push_back(fmt::format(
              R"({{"kind": "attention", "implementation": "{}", "dtype": "bf16", "batch": )"
              R"(2, "heads": {}, "kv_heads": {}, "query_length": {}, "key_length": {}, )"
              R"("head_size": 128, "causal": true, "backward": {}, "time_us": {:.6g}}})",
              of, heads, heads, length, length, backward,
              seconds * noise.factor(0.02) * 1e6 * (of[0] == 't' ? 3 : 1)));
      }
    }
  }
  const SampleFile file(lines);
  FitOptions options = test_options();
  const FitResult best = fit_samples({file.path()}, options);
  REQUIRE(best.profile.attention.size() == 1);
  CHECK(best.profile.attention.front().forward == about(0.6).within(0.03));
  CHECK(best.profile.attention.front().backward == about(0.45).within(0.03));
  CHECK(best.profile.attention.front().forward_fixed.value().count() == about(9e-6).within(0.06));
  options.attention = "tiled";
  const FitResult tiled = fit_samples({file.path()}, options);
  CHECK(tiled.profile.attention.front().forward == about(0.2).within(0.03));
}

TEST_CASE("Each attention kernel has a law of its own, of both maskings, with keys per query") {
  std::vector<std::string> lines;
  Noise noise(11);
  for (const auto& [named, share, keys] :
       {std::tuple{AttentionKernel::fa2, 0.4, 200.0}, std::tuple{AttentionKernel::fa3, 0.7, 350.0}})
    for (const bool backward : {false, true})
      for (const bool causal : {false, true})
        for (const std::int64_t length : {512, 1024, 2048, 4096, 8192, 16384})
          for (const std::int64_t heads : {16, 32, 64}) {
            Attention a{2, heads, heads, length, length, 128, causal, backward, Dtype::bf16};
            const double work = flops(a).count() * (1 + keys / visible_keys(a));
            const double seconds = 9e-6 + work / ((backward ? 0.8 : 1) * share * 1000e12);
            lines.push_back(fmt::format(
                R"({{"kind": "attention", "implementation": "{}", "dtype": "bf16", "batch": )"
                R"(2, "heads": {}, "query_length": {}, "head_size": 128, "causal": {}, )"
                R"("backward": {}, "time_us": {:.6g}}})",
                name(named), heads, length, causal, backward, seconds * noise.factor(0.02) * 1e6));
          }
  const SampleFile file(lines);
  const Profile found = fit_samples({file.path()}, test_options()).profile;
  REQUIRE(found.attention.size() == 2);
  CHECK(found.attention[0].kernel == AttentionKernel::fa2);
  CHECK(found.attention[0].forward == about(0.4).within(0.03));
  CHECK(found.attention[0].forward_keys == about(200).within(0.2));
  CHECK(found.attention[1].kernel == AttentionKernel::fa3);
  CHECK(found.attention[1].backward == about(0.56).within(0.03));
  CHECK(found.attention[1].backward_keys == about(350).within(0.2));
  for (const AttentionLaw& law : found.attention)
    CHECK_FALSE(law.causal.has_value());
}

TEST_CASE("Launch times, copies, messages and overlap reach the profile") {
  std::vector<std::string> lines = {R"({"kind": "launch", "what": "kernel", "time_us": 2.5})",
                                    R"({"kind": "launch", "what": "graph_node", "time_us": 0.9})",
                                    R"({"kind": "launch", "what": "round_trip", "time_us": 9})"};
  for (int power = 10; power <= 30; ++power) {
    const double bytes = std::exp2(power);
    lines.push_back(
        fmt::format(R"({{"kind": "copy", "direction": "d2h", "pinned": true, "bytes": {:.0f}, )"
                    R"("time_us": {:.6g}}})",
                    bytes, 3 + bytes / 50e3));
    lines.push_back(fmt::format(
        R"({{"kind": "p2p", "from": 0, "to": 1, "bytes": {:.0f}, "access": "peer", "mode": )"
        R"("alone", "time_us": {:.6g}}})",
        bytes, 7 + bytes / 380e3));
  }
  for (const int channels : {4, 8, 16, 24, 32})
    lines.push_back(fmt::format(
        R"({{"kind": "overlap", "victim": "gemm", "load": "stream", "channels": {}, )"
        R"("multiprocessors": 132, "alone_us": 800, "load_alone_us": 90, "load_us": 100, )"
        R"("time_us": {:.6g}}})",
        channels, 800 / (1 - 1.2 * channels / 132)));
  const Profile profile = fit_lines(lines).profile;
  CHECK(profile.launch.count() == about(2.5e-6));
  CHECK(profile.launch_details.graph_node.value().count() == about(0.9e-6));
  REQUIRE(profile.host_copies.size() == 1);
  CHECK_FALSE(profile.host_copies.front().to_device);
  CHECK(profile.host_copies.front().bandwidth.count() == about(50e9).within(1e-3));
  REQUIRE(profile.point_to_point.size() == 1);
  CHECK(profile.point_to_point.front().start.count() == about(7e-6).within(1e-3));
  CHECK(profile.point_to_point.front().bandwidth.count() == about(380e9).within(1e-3));
  REQUIRE(profile.overlap.has_value());
  CHECK(profile.overlap->gemm == about(1.2).within(1e-3));
  CHECK(profile.overlap->memory_bound == 1);
  CHECK(profile.overlap->communication == about(0.9));
}

TEST_CASE("Times of another law show as error, not as a good fit and not as outliers") {
  std::vector<std::string> lines;
  Noise noise(11);
  for (int i = 0; i < 200; ++i) {
    const Gemm g{noise.size(5, 14), 8 * noise.size(4, 11), 8 * noise.size(4, 11), 1, Dtype::bf16};
    // No machine of ours: times that know nothing of k, and scatter by a factor.
    const double seconds = 1e-5 * std::sqrt(static_cast<double>(g.m)) * noise.factor(0.7);
    lines.push_back(gemm_line(g, seconds));
  }
  const HeldOutError error = error_of(fit_lines(lines), "gemm bf16");
  CHECK(error.mape > 0.4);
  CHECK(error.rejected <= 20);
  CHECK(error.held_out >= 40);
}

TEST_CASE("Outliers are rejected, listed with both times, and do not move the constants") {
  std::vector<std::string> lines = gemm_lines(test_gemm_law(), 0.02);
  const FitResult clean = fit_lines(lines);
  // Every 25th case takes four times as long: 8 of 200.
  for (std::size_t i = 0; i < lines.size(); i += 25) {
    const std::size_t at = lines[i].find("\"time_us\": ") + 11;
    const double slow = 4 * std::stod(lines[i].substr(at));
    lines[i] = lines[i].substr(0, at) + fmt::format("{:.6g}}}", slow);
  }
  lines.push_back(
      R"({"kind": "gemm", "dtype": "bf16", "m": 512, "n": 512, "k": 512, "spread": 0.6, )"
      R"("time_us": 1})");
  const FitResult result = fit_lines(lines);
  int slow_held_out = 0, outliers = 0, scattered = 0;
  for (const FitRecord& r : result.records) {
    if (r.fate == SampleFate::held_out && r.measured_us > 3 * r.fitted_us) ++slow_held_out;
    if (r.fate != SampleFate::rejected) continue;
    if (r.reason.find("outlier: 4") != std::string::npos ||
        r.reason.find("outlier: 3.") != std::string::npos)
      ++outliers;
    if (r.reason.find("spread by 60 %") != std::string::npos) ++scattered;
  }
  CHECK(scattered == 1);
  CHECK(outliers > 0);
  CHECK(outliers + slow_held_out == 8);  // those held out stay in the error, as they must
  CHECK(result.profile.calibration->rejected.size() == static_cast<std::size_t>(outliers + 1));
  const GemmLaw &with = result.profile.gemm.front(), &without = clean.profile.gemm.front();
  CHECK(with.compute_efficiency == about(without.compute_efficiency).within(0.01));
}

TEST_CASE("Products with unaligned rows have shares of the law, which do not touch its constants") {
  GemmLaw truth = test_gemm_law();
  truth.unaligned = GemmUnaligned{0.2, 0.3, 0.4};
  std::vector<std::string> lines = gemm_lines(truth, 0.03);
  const FitResult alone = fit_lines(lines);
  CHECK_FALSE(alone.profile.gemm.front().unaligned.has_value());
  for (const std::string& line : gemm_lines(truth, 0.03, 2, 60, 1))
    lines.push_back(line);
  const GemmLaw law = fit_lines(lines).profile.gemm.front();
  REQUIRE(law.unaligned.has_value());
  CHECK(law.unaligned->bytes_2 == about(0.2).within(0.05));
  CHECK(law.unaligned->bytes_4 == about(0.3).within(0.1));
  CHECK(law.compute_efficiency ==
        about(alone.profile.gemm.front().compute_efficiency).within(0.02));
}

TEST_CASE("Tiles are found where they are, and not where they are not") {
  CHECK_FALSE(fit_lines(gemm_lines(test_gemm_law(), 0.03)).profile.gemm.front().tiles.has_value());
  GemmLaw truth = test_gemm_law();
  truth.exponent = 3;
  truth.tiles = GemmTiles{132, 0.8, 0.9, 200};
  const FitResult result = fit_lines(gemm_lines(truth, 0.02));
  const GemmLaw& law = result.profile.gemm.front();
  REQUIRE(law.tiles.has_value());
  CHECK(law.tiles->multiprocessors == 132);
  CHECK(law.tiles->half == about(0.8).within(0.05));
  CHECK(law.tiles->smaller == about(0.9).within(0.05));
  CHECK(law.tiles->prologue == about(200).within(0.15));
  CHECK(law.compute_efficiency == about(0.74).within(0.03));
}
