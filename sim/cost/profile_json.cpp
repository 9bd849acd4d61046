// Profile files.
#include "sim/cost/profile_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/json/parse.h"
#include "sim/json/reader.h"
#include "sim/json/writer.h"

namespace trainyard::cost {

// Sections of the file whose fields lie flat in a Profile.
namespace {

struct BatchedGemm {
  double efficiency = 1;
  Provenance from;
};

void visit_fields(json::Fields& f, BatchedGemm& batched) {
  f.field("efficiency", batched.efficiency, json::required, kShare,
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
  LaunchDetails details;
  Provenance from;
};

void visit_fields(json::Fields& f, Launch& launch) {
  f.field("time", launch.time, json::required, kStart, "Host time of one launch.");
  f.field("graph_node", launch.details.graph_node, kStart,
          "GPU time per node of a graph of empty kernels.");
  f.field("event_record", launch.details.event_record, kStart, "Host time.");
  f.field("stream_wait", launch.details.stream_wait, kStart, "Host time.");
  f.field("empty_kernel", launch.details.empty_kernel, kStart,
          "GPU time of a kernel that does nothing, back to back.");
  f.section("from", launch.from, json::required, "Provenance.");
}

}  // namespace

namespace {

// A group of constants that lies flat in a Profile, if it is there.
template <class Group>
std::optional<Group> given(Group group) {
  if (group.from.source.empty()) return std::nullopt;
  return group;
}

void visit_laws(json::Fields& f, Profile& profile) {
  f.sections("gemm", profile.gemm, json::optional, "GEMM laws, one per type.");
  auto batched = given(BatchedGemm{profile.batched_gemm_efficiency, profile.batched_gemm_from});
  if (f.section("batched_gemm", batched, "Batches of GEMMs.")) {
    profile.batched_gemm_efficiency = batched->efficiency;
    profile.batched_gemm_from = batched->from;
  }
  f.section("grouped_gemm", profile.grouped_gemm,
            "Products of experts by the rows of each, over one product of all rows.");
  f.sections("attention", profile.attention, json::optional,
             "Attention by kernel, type, head size and masking.", true);
  f.section("attention_dropout", profile.attention_dropout,
            "Random numbers that a kernel of attention draws.");
  f.sections("convolution", profile.convolution, json::optional, "Convolution factors by type.");
  f.sections("memory", profile.memory, json::optional, "Memory-bound kernels by kind.");
  f.sections("collectives", profile.collectives, json::optional, "Collective laws.");
  f.section("collective_start", profile.collective_start,
            "Least latency of a collective that no law of its kind describes.");
  f.sections("point_to_point", profile.point_to_point, json::optional, "Send and receive.");
  f.sections("host_copies", profile.host_copies, json::optional, "Copies from and to the host.");
}

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

// The same for the rows of a table, of which there may be thousands.
void refuse_twin_rows(json::Fields& f, const std::vector<ConvolutionLaw>& laws) {
  for (std::size_t i = 0; i < laws.size(); ++i) {
    std::vector<std::array<std::int64_t, 11>> shapes;
    for (const ConvolutionResidual& row : laws[i].residuals) {
      const models::Convolution& c = row.shape;
      shapes.push_back({c.batch, c.in_channels, c.out_channels, c.in_height, c.in_width,
                        c.out_height, c.out_width, c.kernel_height, c.kernel_width, c.groups,
                        static_cast<std::int64_t>(c.pass)});
    }
    std::sort(shapes.begin(), shapes.end());
    const auto twin = std::adjacent_find(shapes.begin(), shapes.end());
    if (twin == shapes.end()) continue;
    f.problem("convolution",
              fmt::format("law {} has two residuals of batch {}, {} to {} channels, kernel {}x{}",
                          i, (*twin)[0], (*twin)[1], (*twin)[2], (*twin)[7], (*twin)[8]),
              "keep one of them");
  }
}

void refuse_twin_rows(json::Fields& f, const std::vector<GemmLaw>& laws) {
  for (std::size_t i = 0; i < laws.size(); ++i) {
    std::vector<std::array<std::int64_t, 4>> shapes;
    for (const GemmResidual& row : laws[i].residuals)
      shapes.push_back({row.m, row.n, row.k, row.batch});
    std::sort(shapes.begin(), shapes.end());
    const auto twin = std::adjacent_find(shapes.begin(), shapes.end());
    if (twin == shapes.end()) continue;
    const auto& [m, n, k, batch] = *twin;
    f.problem("gemm",
              fmt::format("law {} has two residuals of {}x{}x{}, batch {}", i, m, n, k, batch),
              "keep one of them");
  }
}

void refuse_twin_laws(json::Fields& f, const Profile& profile) {
  refuse_twins(f, "gemm", profile.gemm,
               [](const GemmLaw& a, const GemmLaw& b) { return a.dtype == b.dtype; });
  refuse_twin_rows(f, profile.gemm);
  refuse_twins(f, "attention", profile.attention, [](const AttentionLaw& a, const AttentionLaw& b) {
    return a.kernel == b.kernel && a.dtype == b.dtype && a.head_size == b.head_size &&
           a.causal == b.causal;
  });
  refuse_twins(f, "convolution", profile.convolution,
               [](const ConvolutionLaw& a, const ConvolutionLaw& b) { return a.dtype == b.dtype; });
  refuse_twin_rows(f, profile.convolution);
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
  refuse_twins(f, "host_copies", profile.host_copies,
               [](const HostCopyLaw& a, const HostCopyLaw& b) {
                 return a.to_device == b.to_device && a.pinned == b.pinned;
               });
}

}  // namespace

void visit_fields(json::Fields& f, Profile& profile) {
  f.accepted("$schema", "JSON Schema of the file, for editors.");
  f.field("name", profile.name, json::required, "The name by which scenarios ask for it.");
  f.field("gpu", profile.gpu, json::required, "The GPU it was made on; another one is refused.");
  f.field("settled_power", profile.settled_power, json::positive,
          "At which its products ran for seconds, its clock held down (optional).");
  visit_laws(f, profile);
  auto channels = given(Channels{profile.collective_channels, profile.point_to_point_channels,
                                 profile.channels_from});
  if (f.section("channels", channels, "What communication takes from compute.")) {
    profile.collective_channels = channels->collective;
    profile.point_to_point_channels = channels->point_to_point;
    profile.channels_from = channels->from;
  }
  f.section("overlap", profile.overlap, "How kernels and communication slow each other.");
  auto launch = given(Launch{profile.launch, profile.launch_details, profile.launch_from});
  if (f.section("launch", launch, "Host side of a kernel.")) {
    profile.launch = launch->time;
    profile.launch_details = launch->details;
    profile.launch_from = launch->from;
  }
  f.section("calibration", profile.calibration, "How `trainyard fit` made the profile.");
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

std::string profile_json(const Profile& profile) {
  Profile copy = profile;  // field tables name what they may fill; a writer fills nothing
  const json::Value value = json::object_of([&copy](json::Fields& f) { visit_fields(f, copy); });
  return json::to_text(value) + "\n";
}

std::vector<Diagnostic> profile_problems(const Profile& profile) {
  std::vector<Diagnostic> diagnostics;
  Profile read;
  const json::Value document = json::parse_text(profile_json(profile), profile.name, diagnostics);
  if (diagnostics.empty()) json::read_object(document, "", read, diagnostics);
  return diagnostics;
}

}  // namespace trainyard::cost
