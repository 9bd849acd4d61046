// Every profile that ships is read, has provenance on every law, and plausible numbers.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "sim/cost/profile.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

std::vector<std::filesystem::path> shipped() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(TRAINYARD_SOURCE_DIR) / "configs" / "profiles")) {
    if (entry.path().extension() == ".json") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

void check_complete(const Provenance& from) {
  CHECK_FALSE(from.source.empty());
  CHECK_FALSE(from.machine.empty());
  CHECK_FALSE(from.date.empty());
  CHECK_FALSE(from.samples.empty());
  CHECK_FALSE(from.residual.empty());
}

bool between(double low, double value, double high) {
  return low <= value && value <= high;
}

struct Range {
  double least, most;
  bool holds(double value) const { return between(least, value, most); }
};

// What laws of one kind of device may be, beside what all have.
struct Plausible {
  Range product_fixed_us, product_memory, few_channels, memory_fixed_us, memory, l2_speedup;
  double rows_by_number;  // the least share of memory of kernels that look rows up one by one
};
constexpr Plausible kGpu = {.product_fixed_us = {1, 30},
                            // Operands that the L2 still holds come faster than from memory.
                            .product_memory = {0.5, 2},
                            .few_channels = {0.05, 1},
                            .memory_fixed_us = {0.5, 10},
                            // The least is that of SwiGLU's backward pass as Megatron-LM compiles
                            // it, .19.
                            .memory = {0.15, 1},
                            .l2_speedup = {1, 3},
                            .rows_by_number = 0.05};
// Of a core, whose calls are inside of the laws' rates or negligible beside them.
constexpr Plausible kProcessor = {.product_fixed_us = {0, 100},
                                  .product_memory = {0.02, 1},
                                  .few_channels = {0.5, 1.5},
                                  .memory_fixed_us = {0, 30},
                                  // The least are those of random numbers and of windows, which a
                                  // core computes one by one.
                                  .memory = {0.01, 1},
                                  .l2_speedup = {1, 1},
                                  .rows_by_number = 0.01};

void check_kernels(const Profile& profile, const Plausible& plausible) {
  CHECK_FALSE(profile.gemm.empty());
  for (const GemmLaw& law : profile.gemm) {
    check_complete(law.from);
    CHECK(plausible.product_fixed_us.holds(microseconds(law.fixed)));
    CHECK(between(0.4, law.compute_efficiency, 1));
    CHECK(plausible.product_memory.holds(law.memory_efficiency));
    CHECK(between(1, law.exponent, 4));
  }
  check_complete(profile.batched_gemm_from);
  CHECK(between(0.3, profile.batched_gemm_efficiency, 1));
  if (const auto& law = profile.attention_dropout) {
    check_complete(law->from);
    CHECK(between(0.005, law->forward, 0.1));
    CHECK(between(law->forward, law->backward, 0.2));
  }
  for (const AttentionLaw& law : profile.attention) {
    check_complete(law.from);
    REQUIRE(law.kernel.has_value());
    const bool keeps_scores = *law.kernel == AttentionKernel::sdpa_math;
    CHECK(between(keeps_scores ? 0.03 : 0.09, law.forward, keeps_scores ? 0.2 : 0.8));
    CHECK(between(keeps_scores ? 0.03 : 0.09, law.backward, keeps_scores ? 0.2 : 0.8));
    CHECK(between(0, law.forward_keys, 600));
    CHECK(between(0, law.backward_keys, 600));
  }
  for (const ConvolutionLaw& law : profile.convolution) {
    check_complete(law.from);
    // In fp32, of the GEMM law's own rate, which Winograd's algorithm and others may pass.
    CHECK(between(0.3, law.efficiency, 1.2));
    CHECK(plausible.few_channels.holds(law.few_channels));
    CHECK(between(0.5, law.data_gradient, 1.1));
    CHECK(between(0.3, law.strided_data_gradient, 1));
    CHECK(between(0, law.half_rate_tiles, 60));
    CHECK(between(0.5, law.weight_gradient, 1));
  }
  for (const MemoryLaw& law : profile.memory) {
    check_complete(law.from);
    // Its blocks add to one another at the end.
    const double slack = law.op == MemoryOp::column_sum ? 2 : 1;
    CHECK(plausible.memory_fixed_us.holds(microseconds(law.fixed) / slack));
    Range share = plausible.memory;
    if (law.op == MemoryOp::embedding || law.op == MemoryOp::permutation)
      share.least = plausible.rows_by_number;
    CHECK(share.holds(law.efficiency));
    CHECK(share.holds(law.backward_efficiency.value_or(1)));
    CHECK(plausible.l2_speedup.holds(law.l2_speedup));
    CHECK(between(0.002, law.element_rate.value_or(0.01), 0.02));
  }
}

// What a network of images needs is measured, and nothing that ranks send.
void check_processor(const Profile& profile) {
  CHECK_FALSE(profile.convolution.empty());
  CHECK(profile.memory.size() >= 8);
  CHECK(profile.collectives.empty());
  CHECK(profile.point_to_point.empty());
  CHECK(profile.launch == Seconds(0));
}

// As its preset says.
bool is_processor(const Profile& profile) {
  std::ifstream file(fmt::format("{}/configs/gpus/{}.json", TRAINYARD_SOURCE_DIR, profile.gpu));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  REQUIRE_FALSE(text.empty());
  return text.find("\"kind\": \"cpu\"") != std::string::npos;
}

void check_messages(const Profile& profile) {
  for (const CollectiveLaw& law : profile.collectives) {
    check_complete(law.from);
    // Large buffers say nothing of the start; below them it is held to that of any collective.
    const double least = law.least > Bytes(1 << 20) ? 0 : 5;
    CHECK(between(least, microseconds(law.start), 500));
    CHECK(between(5e9, law.bandwidth.count(), 1e12));
    CHECK(between(0, microseconds(law.per_sqrt_MB), 200));
  }
  for (const PointToPointLaw& law : profile.point_to_point) {
    check_complete(law.from);
    CHECK(between(2, microseconds(law.start), 100));
    CHECK(between(1e9, law.bandwidth.count(), 1e12));
  }
  check_complete(profile.channels_from);
  CHECK(between(0, profile.collective_channels, 32));
  CHECK(between(0, profile.point_to_point_channels, profile.collective_channels));
  check_complete(profile.launch_from);
  CHECK(between(1, microseconds(profile.launch), 20));
}

}  // namespace

TEST_CASE("every shipped profile has provenance and plausible numbers on every law") {
  CHECK(shipped().size() >= 5);
  for (const std::filesystem::path& path : shipped()) {
    CAPTURE(path);
    const Profile profile = read_profile(path.string());
    CHECK(profile.name == path.stem().string());
    const bool processor = is_processor(profile);
    check_kernels(profile, processor ? kProcessor : kGpu);
    if (processor)
      check_processor(profile);
    else
      check_messages(profile);
  }
}

TEST_CASE("shipped laws stay inside their machines") {
  // An NVSwitch link of A100 carries 300 GB/s per direction, of H100 450 GB/s.
  for (const auto& [name, link] : {std::pair<std::string, double>{"a100-sxm4-80gb", 300e9},
                                   std::pair<std::string, double>{"h100-sxm5-80gb", 450e9}}) {
    const Profile profile =
        read_profile(fmt::format("{}/configs/profiles/{}.json", TRAINYARD_SOURCE_DIR, name));
    const auto cost = fitted_message_cost(profile);
    for (const int ranks : {2, 3, 4, 5, 6, 7, 8}) {
      const GroupShape shape{.ranks = ranks,
                             .servers = 1,
                             .ranks_per_server = ranks,
                             .intra_bandwidth = BytesPerSecond(link),
                             .inter_bandwidth = {},
                             .intra_latency = Duration(1'000'000),
                             .inter_latency = {}};
      for (const CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::all_gather,
                                        CollectiveKind::reduce_scatter}) {
        const MessageTerms terms = cost->collective(kind, Bytes(1'000'000'000), shape);
        CAPTURE(ranks);
        CHECK(terms.bandwidth.count() < 0.97 * link);  // no law needs the clamp
        CHECK(terms.bandwidth.count() > 0.5 * link);
      }
    }
  }
}
