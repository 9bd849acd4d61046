// What profile_json writes, read_profile reads back equal.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "sim/cost/profile_json.h"
#include "sim/json/parse.h"
#include "sim/json/reader.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

Profile read_text(const std::string& text) {
  std::vector<Diagnostic> diagnostics;
  const json::Value document = json::parse_text(text, "p.json", diagnostics);
  Profile profile;
  json::read_object(document, "", profile, diagnostics);
  for (const Diagnostic& diagnostic : diagnostics)
    FAIL_CHECK(to_text(diagnostic));
  return profile;
}

Provenance from() {
  return {"a \"paper\"",   "8x NVIDIA H200", "2026-01-31",
          "1,234 kernels", "MAPE 6.1 %",     Basis::interpolated};
}

// A profile in which no field has its default.
Profile full() {
  Profile p;
  p.name = "h200";
  p.gpu = "h200-sxm5-141gb";
  GemmLaw gemm;
  gemm.dtype = Dtype::bf16, gemm.fixed = Seconds(5.91234e-6), gemm.exponent = 1.4;
  gemm.compute_efficiency = 0.712345, gemm.memory_efficiency = 0.812345;
  gemm.tiles = GemmTiles{132, 0.812345, 0.91, 214.5};
  gemm.unaligned = GemmUnaligned{0.2, 0.3, 0.4, from()};
  gemm.row_scaled = 1.16, gemm.block_scaled = 1.24, gemm.micro_scaled = 1.05;
  gemm.m = {1, 65536}, gemm.n = {8, 131072}, gemm.k = {16, 32768};
  gemm.from = from();
  gemm.residuals = {{4096, 8192, 1024, 1, 1.03}, {512, 512, 64, 96, 0.912345}};
  p.gemm = {gemm};
  p.batched_gemm_efficiency = 0.61;
  p.batched_gemm_from = from();
  p.grouped_gemm = GroupedGemmLaw{80.5, 330, from()};
  p.attention_dropout = AttentionDropoutLaw{AttentionKernel::fa2, 0.02, 0.05, from()};
  p.attention = {{AttentionKernel::fa3,
                  Dtype::bf16,
                  128,
                  true,
                  Seconds(4.1e-6),
                  Seconds(9.3e-6),
                  0.71,
                  0.62,
                  210.5,
                  330,
                  {256, 32768},
                  from()},
                 {std::nullopt,
                  std::nullopt,
                  0,
                  std::nullopt,
                  std::nullopt,
                  std::nullopt,
                  0.6,
                  0.5,
                  0,
                  0,
                  {},
                  from()}};
  ConvolutionLaw convolution{Dtype::fp16,           0.56, 1.49,  0.15, 0.77, 0.91, 0.7, true, 13.8,
                             WinogradUse::separate, {},   from()};
  Convolution shape{32, 64, 128, 56, 57, 28, 29, 3, 5, 2, ConvolutionPass::data_gradient};
  convolution.residuals = {{shape, 1.25}};
  p.convolution = {convolution};
  p.memory = {{MemoryOp::rms_norm, Seconds(2.2e-6), 0.87, 0.31, 1.9, 0.0071, Bytes(4096),
               Bytes(std::int64_t{4} << 30), from()}};
  p.collectives = {{CollectiveKind::all_reduce, 8, 1, Seconds(43.2e-6), BytesPerSecond(143.21e9),
                    Seconds(25.8e-6), true, Bytes(1024), Bytes(8589934592), from()}};
  p.collective_start = CollectiveStart{Seconds(7.5e-6), Seconds(1.25e-6), from()};
  p.point_to_point = {
      {false, Seconds(20.2e-6), BytesPerSecond(36.1e9), Bytes(8), Bytes(1'000'000), from()}};
  p.host_copies = {{false, true, Seconds(9.1e-6), BytesPerSecond(52.3e9), from()}};
  p.collective_channels = 24;
  p.point_to_point_channels = 2;
  p.channels_from = from();
  p.overlap = OverlapLaw{1.2, 0.4, 0.93, from()};
  p.launch = Seconds(5.9e-6);
  p.launch_details = {Seconds(1.1e-6), Seconds(0.7e-6), Seconds(0.3e-6), Seconds(1.9e-6)};
  p.launch_from = from();
  p.calibration = Calibration{"trainyard fit 1.0",
                              "8x NVIDIA H200",
                              "2026-01-31",
                              "580.1",
                              "13.0",
                              4321,
                              {{"gemm bf16", "flops >= 1e9", 700, 300, 3, 0.061, 0.04, 0.31}},
                              {"convolution: no samples"}};
  return p;
}

}  // namespace

TEST_CASE("a profile with every field is written so that it reads back equal") {
  const Profile profile = full();
  const std::string text = profile_json(profile);
  CHECK(read_text(text) == profile);
  CHECK(profile_json(read_text(text)) == text);
  // A table has a line per row, or a file of thousands could not be read by people.
  CHECK(text.find(R"({"m": 4096, "n": 8192, "k": 1024, "batch": 1, "factor": 1.03},)") !=
        std::string::npos);
}

TEST_CASE("an empty profile is written without any law") {
  Profile profile;
  profile.name = "p";
  profile.gpu = "g";
  CHECK(read_text(profile_json(profile)) == profile);
  CHECK(profile_json(profile) == "{\n  \"name\": \"p\",\n  \"gpu\": \"g\"\n}\n");
}

TEST_CASE("every shipped profile is written so that it reads back equal") {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(TRAINYARD_SOURCE_DIR) / "configs" / "profiles")) {
    if (entry.path().extension() != ".json") continue;
    CAPTURE(entry.path());
    const Profile profile = read_profile(entry.path().string());
    CHECK(read_text(profile_json(profile)) == profile);
    ++count;
  }
  CHECK(count >= 5);
}
