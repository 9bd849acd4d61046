// Which attention kernel runs where: what libraries were built for, and what frameworks take when
// nobody chooses. Source: docs/cost-attention.md.
#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "sim/scenario/runs_on.h"
#include "sim/scenario/topics/assemble.h"

namespace trainyard::scenario {

using models::AttentionKernel;

namespace {

constexpr int kAmpere = 8, kHopper = 9;

// Nothing if the GPU does not say.
std::optional<int> generation_of(const topologies::GpuSpec& gpu) {
  const std::string& capability = gpu.compute_capability;
  int major = 0;
  const auto [end, error] =
      std::from_chars(capability.data(), capability.data() + capability.size(), major);
  if (error != std::errc{}) return std::nullopt;
  return major;
}

AttentionKernel usual_attention(std::optional<int> generation) {
  if (!generation) return AttentionKernel::fa2;
  if (*generation >= kHopper) return AttentionKernel::cudnn;
  return *generation >= kAmpere ? AttentionKernel::fa2 : AttentionKernel::fa1;
}

// Why the kernel does not run on that generation; empty: it does.
std::string refusal(AttentionKernel kernel, int generation) {
  if (kernel == AttentionKernel::fa3 && generation != kHopper)
    return "FlashAttention-3 is written for compute capability 9.0";
  const bool needs_ampere = kernel == AttentionKernel::fa2 || kernel == AttentionKernel::cudnn;
  if (needs_ampere && generation < kAmpere)
    return fmt::format("{} needs compute capability 8.0",
                       kernel == AttentionKernel::fa2 ? "FlashAttention-2" : "cuDNN's attention");
  return {};
}

}  // namespace

NotOnGpu refuse_attention(AttentionKernel kernel, const topologies::GpuSpec& gpu) {
  const std::optional<int> generation = generation_of(gpu);
  const std::string why = generation ? refusal(kernel, *generation) : "";
  if (why.empty()) return {};
  return {fmt::format("{}, and {} has {}", why, gpu.name, gpu.compute_capability),
          fmt::format("\"{}\" runs there", name(usual_attention(generation)))};
}

AttentionKernel assemble_attention(AttentionKernel kernel, const topologies::GpuSpec& gpu,
                                   Findings& findings) {
  if (kernel == AttentionKernel::usual) return usual_attention(generation_of(gpu));
  const NotOnGpu refused = refuse_attention(kernel, gpu);
  if (!refused.why.empty()) findings.error("/training/fused_attention", refused.why, refused.cure);
  return kernel;
}

}  // namespace trainyard::scenario
