// Profile files. Every group of constants carries its provenance under "from"; a law without one is
// refused.
#include "sim/cost/profile_json.h"

#include <array>

#include "sim/base/text.h"
#include "sim/json/parse.h"
#include "sim/json/reader.h"

namespace trainyard {
namespace {

using json::Choice;

constexpr std::array<Choice<Basis>, 4> kBases = {{{"measured", Basis::measured},
                                                  {"interpolated", Basis::interpolated},
                                                  {"extrapolated", Basis::extrapolated},
                                                  {"analytic", Basis::analytic}}};
constexpr std::array<Choice<Dtype>, 5> kDtypes = {{{"fp32", Dtype::fp32},
                                                   {"tf32", Dtype::tf32},
                                                   {"bf16", Dtype::bf16},
                                                   {"fp16", Dtype::fp16},
                                                   {"fp8", Dtype::fp8}}};
constexpr std::array<Choice<MemoryOp>, 12> kMemoryOps = {
    {{"elementwise", MemoryOp::elementwise},
     {"dropout", MemoryOp::dropout},
     {"activation", MemoryOp::activation},
     {"layer-norm", MemoryOp::layer_norm},
     {"rms-norm", MemoryOp::rms_norm},
     {"batch-norm", MemoryOp::batch_norm},
     {"softmax", MemoryOp::softmax},
     {"rope", MemoryOp::rope},
     {"pooling", MemoryOp::pooling},
     {"embedding", MemoryOp::embedding},
     {"cross-entropy", MemoryOp::cross_entropy},
     {"optimizer", MemoryOp::optimizer}}};
constexpr std::array<Choice<CollectiveKind>, 5> kCollectives = {
    {{"all-reduce", CollectiveKind::all_reduce},
     {"all-gather", CollectiveKind::all_gather},
     {"reduce-scatter", CollectiveKind::reduce_scatter},
     {"broadcast", CollectiveKind::broadcast},
     {"all-to-all", CollectiveKind::all_to_all}}};

// Kernels that read from caches reach more than the datasheet bandwidth, but not several times it.
constexpr json::Bounds kMemoryShare{0, 3, true};
// Convolution factors: an algorithm with fewer multiplications gains at most a few times.
constexpr json::Bounds kFactor{0, 4, true};

// Reports a second law where `same` may hold for one only.
template <class Law, class Same>
void refuse_twins(json::Fields& f, std::string_view key, const std::vector<Law>& laws, Same same) {
  for (std::size_t i = 0; i < laws.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (!same(laws[i], laws[j])) continue;
      f.problem(
          key, "laws " + std::to_string(j) + " and " + std::to_string(i) + " are for the same case",
          "keep one of them");
    }
  }
}

}  // namespace

static void visit_fields(json::Fields& f, Provenance& from) {
  f.field("source", from.source, json::required, "Paper, data set or program.");
  f.field("machine", from.machine, json::required, "What it was measured on.");
  f.field("date", from.date, json::required, "Year, or year-month-day.");
  f.field("samples", from.samples, json::required, "What was measured, and how many.");
  f.field("residual", from.residual, json::required, "Error on what it was not fitted on.");
  f.choice("basis", from.basis, kBases, json::required, "How far the numbers may be trusted.");
  if (from.source.empty())
    f.problem("source", "may not be empty", "say where the numbers are from");
}

static void visit_fields(json::Fields& f, GemmLaw& law) {
  f.choice("dtype", law.dtype, kDtypes, json::required, "Type of the operands.");
  f.field("fixed", law.fixed, json::required, json::not_negative,
          "t0, time of a kernel of no work.");
  f.field("compute_efficiency", law.compute_efficiency, json::required, json::ratio,
          "e, reached share of the dense peak.");
  f.field("memory_efficiency", law.memory_efficiency, json::required, kMemoryShare,
          "u, reached share of the memory bandwidth.");
  f.field("exponent", law.exponent, json::required, json::between(1, 8),
          "p of the norm that joins the two; large: a sharp roofline.");
  f.section("from", law.from, json::required, "Provenance.");
}

static void visit_fields(json::Fields& f, AttentionLaw& law) {
  f.field("forward", law.forward, json::required, json::ratio, "Reached share of the dense peak.");
  f.field("backward", law.backward, json::required, json::ratio, "The same of the backward pass.");
  f.section("from", law.from, json::required, "Provenance.");
}

static void visit_fields(json::Fields& f, ConvolutionLaw& law) {
  f.choice("dtype", law.dtype, kDtypes, json::required, "Type of the operands.");
  f.field("efficiency", law.efficiency, json::required, kFactor,
          "Factor on the GEMM law's compute efficiency, of every convolution.");
  f.field("kernel_3x3", law.kernel_3x3, json::required, kFactor, "Factor of 3x3 kernels.");
  f.field("few_channels", law.few_channels, json::required, kFactor,
          "Factor of fewer than 16 input channels.");
  f.field("data_gradient", law.data_gradient, json::required, kFactor, "Factor of the pass.");
  f.field("weight_gradient", law.weight_gradient, json::required, kFactor, "Factor of the pass.");
  f.section("from", law.from, json::required, "Provenance.");
}

static void visit_fields(json::Fields& f, MemoryLaw& law) {
  f.choice("op", law.op, kMemoryOps, json::required, "Kind of kernel.");
  f.field("fixed", law.fixed, json::required, json::not_negative, "Time of a kernel of no bytes.");
  f.field("efficiency", law.efficiency, json::required, kMemoryShare,
          "Reached share of the memory bandwidth.");
  f.field("l2_speedup", law.l2_speedup, json::optional, json::between(1, 10),
          "How many times faster what fits into the L2 moves.");
  f.section("from", law.from, json::required, "Provenance.");
}

static void visit_fields(json::Fields& f, CollectiveLaw& law) {
  f.choice("kind", law.kind, kCollectives, json::required, "Which collective.");
  f.field("ranks", law.ranks, json::required, json::at_least(2), "Size of the measured group.");
  f.field("servers", law.servers, json::required, json::at_least(1), "Servers it spanned.");
  f.field("start", law.start, json::required, json::not_negative,
          "a of a + S/B + c sqrt(S / 1 MB).");
  f.field("bandwidth", law.bandwidth, json::required, json::positive, "B, bytes of the buffer.");
  f.field("per_sqrt_MB", law.per_sqrt_MB, json::required, json::not_negative, "c.");
  f.field("in_switch", law.in_switch, json::optional, "Whether the switch reduces.");
  f.section("from", law.from, json::required, "Provenance.");
  if (law.in_switch && law.kind != CollectiveKind::all_reduce) {
    f.problem("in_switch", "only an all-reduce is reduced in the switch", "leave it out");
  }
  if (law.servers > law.ranks) f.problem("servers", "more servers than ranks");
}

static void visit_fields(json::Fields& f, PointToPointLaw& law) {
  f.field("same_server", law.same_server, json::required, "Whether both ranks share a server.");
  f.field("start", law.start, json::required, json::not_negative, "Time of an empty message.");
  f.field("bandwidth", law.bandwidth, json::required, json::positive, "Bytes per second.");
  f.section("from", law.from, json::required, "Provenance.");
}

// Sections of the file whose fields lie flat in a Profile.
namespace {

struct BatchedGemm {
  double efficiency = 1;
  Provenance from;
};

void visit_fields(json::Fields& f, BatchedGemm& batched) {
  f.field("efficiency", batched.efficiency, json::required, json::ratio,
          "Factor on the compute efficiency of a batch of GEMMs.");
  f.section("from", batched.from, json::required, "Provenance.");
}

struct Channels {
  int collective = 0;
  int point_to_point = 0;
  Provenance from;
};

void visit_fields(json::Fields& f, Channels& channels) {
  f.field("collective", channels.collective, json::required, json::not_negative,
          "Multiprocessors that a running collective holds.");
  f.field("point_to_point", channels.point_to_point, json::required, json::not_negative,
          "Multiprocessors that a running send or receive holds.");
  f.section("from", channels.from, json::required, "Provenance.");
}

struct Launch {
  Seconds time{};
  Provenance from;
};

void visit_fields(json::Fields& f, Launch& launch) {
  f.field("time", launch.time, json::required, json::not_negative, "Host time of one launch.");
  f.section("from", launch.from, json::required, "Provenance.");
}

}  // namespace

static void visit_laws(json::Fields& f, Profile& profile) {
  f.sections("gemm", profile.gemm, json::optional, "GEMM laws, one per type.");
  BatchedGemm batched{profile.batched_gemm_efficiency, profile.batched_gemm_from};
  if (f.section("batched_gemm", batched, json::optional, "Batches of GEMMs.")) {
    profile.batched_gemm_efficiency = batched.efficiency;
    profile.batched_gemm_from = batched.from;
  }
  AttentionLaw attention = profile.attention.value_or(AttentionLaw{});
  if (f.section("attention", attention, json::optional, "Fused attention.")) {
    profile.attention = attention;
  }
  f.sections("convolution", profile.convolution, json::optional, "Convolution factors by type.");
  f.sections("memory", profile.memory, json::optional, "Memory-bound kernels by kind.");
  f.sections("collectives", profile.collectives, json::optional, "Collective laws.");
  f.sections("point_to_point", profile.point_to_point, json::optional, "Send and receive.");
}

static void refuse_twin_laws(json::Fields& f, const Profile& profile) {
  refuse_twins(f, "gemm", profile.gemm,
               [](const GemmLaw& a, const GemmLaw& b) { return a.dtype == b.dtype; });
  refuse_twins(f, "convolution", profile.convolution,
               [](const ConvolutionLaw& a, const ConvolutionLaw& b) { return a.dtype == b.dtype; });
  refuse_twins(f, "memory", profile.memory,
               [](const MemoryLaw& a, const MemoryLaw& b) { return a.op == b.op; });
  refuse_twins(f, "collectives", profile.collectives,
               [](const CollectiveLaw& a, const CollectiveLaw& b) {
                 return a.kind == b.kind && a.ranks == b.ranks && a.servers == b.servers;
               });
  refuse_twins(f, "point_to_point", profile.point_to_point,
               [](const PointToPointLaw& a, const PointToPointLaw& b) {
                 return a.same_server == b.same_server;
               });
}

void visit_fields(json::Fields& f, Profile& profile) {
  f.accepted("$schema", "JSON Schema of the file, for editors.");
  f.field("name", profile.name, json::required, "The name by which scenarios ask for it.");
  f.field("gpu", profile.gpu, json::required, "The GPU it was made on; another one is refused.");
  visit_laws(f, profile);
  Channels channels{profile.collective_channels, profile.point_to_point_channels,
                    profile.channels_from};
  if (f.section("channels", channels, json::optional, "What communication takes from compute.")) {
    profile.collective_channels = channels.collective;
    profile.point_to_point_channels = channels.point_to_point;
    profile.channels_from = channels.from;
  }
  Launch launch{profile.launch, profile.launch_from};
  if (f.section("launch", launch, json::optional, "Host side of a kernel.")) {
    profile.launch = launch.time;
    profile.launch_from = launch.from;
  }
  refuse_twin_laws(f, profile);
}

Profile read_profile(const std::string& path) {
  std::vector<Diagnostic> diagnostics;
  const json::Value document = json::parse_file(path, diagnostics);
  Profile profile;
  if (diagnostics.empty()) json::read_object(document, "", profile, diagnostics);
  for (const Diagnostic& diagnostic : diagnostics) {
    if (diagnostic.severity == Severity::error) throw ScenarioError(std::move(diagnostics));
  }
  return profile;
}

}  // namespace trainyard
