// /collectives: which algorithm carries out each kind of collective.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/scenario/topics/assemble.h"
#include "sim/scenario/topics/sections.h"

namespace trainyard::scenario {

using collective::AlgorithmEntry;
using json::optional;

namespace {

constexpr std::string_view kAuto = "auto";

std::vector<std::string_view> names_of(const CollectiveChoice& choice) {
  std::vector<std::string_view> names = {kAuto};
  if (choice.of_group)
    for (const AlgorithmEntry& entry : collective::algorithms())
      names.push_back(entry.name);
  return names;
}

std::vector<std::string_view> protocols_of(const CollectiveChoice& choice) {
  std::vector<std::string_view> names = {kAuto};
  if (choice.of_group)
    for (const nccl::Protocol protocol : nccl::kProtocols)
      names.push_back(name(protocol));
  return names;
}

std::string_view key_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce: return "allreduce";
    case CollectiveKind::all_gather: return "allgather";
    case CollectiveKind::reduce_scatter: return "reduce_scatter";
    case CollectiveKind::broadcast: return "broadcast";
    case CollectiveKind::all_to_all: return "alltoall";
    case CollectiveKind::shift: return "p2p";
  }
  return "";
}

// NCCL's protocols are those of its rings and trees.
void check_protocol(CollectiveKind kind, const CollectiveChoice& choice, Findings& findings) {
  if (choice.protocol == kAuto) return;
  if (kind == CollectiveKind::all_to_all)
    findings.error(protocol_pointer(kind),
                   "an all-to-all is sends and receives in NCCL, whose "
                   "protocol nobody chooses",
                   "remove it");
  else if (choice.algorithm != kAuto && choice.algorithm != "ring" && choice.algorithm != "tree")
    findings.error(
        protocol_pointer(kind),
        fmt::format("NCCL has protocols for its rings and trees, not for {}", choice.algorithm),
        "remove it, or choose auto, ring or tree");
}

}  // namespace

void visit_fields(json::Fields& f, CollectiveChoice& s) {
  f.not_yet({"double_binary_tree", "nvls", "collnet", "direct"});
  f.name("algorithm", s.algorithm, names_of(s), optional,
         s.of_group ? "Algorithm; auto: the profile's law, or the closed form of what NCCL does."
                    : "Algorithm; auto: the profile's law, or latency and bandwidth.");
  f.name("protocol", s.protocol, protocols_of(s), optional,
         s.of_group ? "NCCL's protocol; auto: the one that its tuning takes."
                    : "NCCL's protocol; auto: its own choice.");
  f.unsupported("channels", "choosing channels; the profile says how many there are");
}

void visit_fields(json::Fields& f, CollectivesSection& s) {
  f.not_yet({"ideal", "custom"});
  f.name("library", s.library, std::array<std::string_view, 1>{"nccl"}, optional, "Library.");
  f.section("allreduce", s.all_reduce, optional, "All-reduce.");
  f.section("allgather", s.all_gather, optional, "All-gather.");
  f.section("reduce_scatter", s.reduce_scatter, optional, "Reduce-scatter.");
  f.section("broadcast", s.broadcast, "Broadcast.");
  f.section("alltoall", s.all_to_all, "All-to-all.");
  f.section("p2p", s.p2p, optional, "Sends and receives.");
}

std::string algorithm_pointer(CollectiveKind kind) {
  return fmt::format("/collectives/{}/algorithm", key_of(kind));
}

std::string protocol_pointer(CollectiveKind kind) {
  return fmt::format("/collectives/{}/protocol", key_of(kind));
}

collective::Choices assemble_collectives(const CollectivesSection& section, Findings& findings) {
  collective::Choices choices;
  const auto choose = [&](CollectiveKind kind, const CollectiveChoice& choice) {
    const AlgorithmEntry* algorithm = collective::find_algorithm(choice.algorithm);
    choices.choose(kind, {algorithm, nccl::find_protocol(choice.protocol)});
    check_protocol(kind, choice, findings);
    if (algorithm == nullptr) return;
    const std::vector<std::string_view> known = collective::algorithm_names(kind);
    if (std::find(known.begin(), known.end(), algorithm->name) == known.end())
      findings.error(algorithm_pointer(kind),
                     fmt::format("{} has no {}", algorithm->name, name(kind)),
                     fmt::format("available: auto, {}", fmt::join(known, ", ")));
  };
  choose(CollectiveKind::all_reduce, section.all_reduce);
  choose(CollectiveKind::all_gather, section.all_gather);
  choose(CollectiveKind::reduce_scatter, section.reduce_scatter);
  choose(CollectiveKind::broadcast, section.broadcast.value_or(CollectiveChoice{}));
  choose(CollectiveKind::all_to_all, section.all_to_all.value_or(CollectiveChoice{}));
  return choices;
}

}  // namespace trainyard::scenario
