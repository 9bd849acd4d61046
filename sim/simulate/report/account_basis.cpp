#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "sim/simulate/report/actor_spans.h"

namespace trainyard::simulate {

using cost::Profile;
using cost::Provenance;
using engine::OpKind;
using lower::TransferEstimate;

namespace {

using Totals = std::array<double, 4>;  // seconds by Basis

double& at(Totals& totals, Basis basis) {
  return totals[static_cast<std::size_t>(basis)];
}

// Predicted seconds, and those of them that lie beyond what a law was fitted on.
struct Account {
  explicit Account(const lower::Lowered& lowered) {
    for (const std::vector<cost::Estimate>& kind : lowered.kernels)
      of_kernels.emplace_back(kind.size(), nullptr);
    for (const std::vector<TransferEstimate>& table : lowered.transfers)
      of_transfers.emplace_back(table.size(), nullptr);
  }

  // `place`: where those of this estimate are added to; null: not known yet.
  template <class What>
  void add(double seconds, Basis basis, const std::string& why, double*& place, const What& what) {
    at(totals, basis) += seconds;
    if (basis != Basis::extrapolated || !(seconds > 0)) return;
    if (place == nullptr) place = &beyond[{what(), why}];
    *place += seconds;
  }

  Totals totals{};
  std::map<std::pair<std::string, std::string>, double> beyond;  // by what, why
  // Into `beyond`: every class has the same few estimates, and their names are long.
  std::vector<std::vector<double*>> of_kernels;    // like Lowered::kernels
  std::vector<std::vector<double*>> of_transfers;  // like Lowered::transfers
};

// Kernels that share a law and a reason are told apart only by a size that the reason does not
// name.
std::string name_of(const models::Kernel& kernel) {
  if (const auto* memory = std::get_if<models::MemoryBound>(&kernel))
    return std::string(name(memory->op));
  if (const auto* convolution = std::get_if<models::Convolution>(&kernel))
    return fmt::format("convolution {}", name(convolution->dtype));
  return to_text(kernel);
}

std::string name_of(const TransferEstimate& estimate) {
  const cost::GroupShape& shape = estimate.shape;
  if (estimate.host) return std::string(name(*estimate.host));
  if (estimate.point_to_point)
    return fmt::format("message {}", shape.servers == 1 ? "inside a server" : "between servers");
  return fmt::format("{}, {} ranks on {} server{}", name(estimate.spec.kind), shape.ranks,
                     shape.servers, shape.servers == 1 ? "" : "s");
}

std::vector<std::uint64_t> calls_of_blocks(const engine::Program& program) {
  std::vector<std::uint64_t> calls(program.blocks.size(), 0);
  for (const engine::Call& call : program.calls)
    ++calls[call.block];
  return calls;
}

// Seconds of each kernel and of each transfer over one run of the stage's program, by basis.
void add_program(const Step& step, const lower::RankClass& rank_class,
                 const engine::Program& program, Account& account) {
  const lower::Lowered& lowered = step.lowered;
  const engine::Actor& actor = lowered.machine.actors[rank_class.actor];
  const auto kind = static_cast<std::size_t>(rank_class.gpu_kind);
  const std::vector<cost::Estimate>& kernels = lowered.kernels[kind];
  const std::vector<std::uint64_t> calls = calls_of_blocks(program);
  for (std::size_t b = 0; b < program.blocks.size(); ++b) {
    const double times = static_cast<double>(calls[b]) * rank_class.ranks;
    for (const engine::Op& op : program.blocks[b].ops) {
      if (op.kind == OpKind::compute) {
        const engine::Segment& segment = program.segments[op.subject];
        for (std::uint32_t k = 0; k < segment.kernels; ++k) {
          const std::uint32_t kernel = program.kernels[segment.first_kernel + k];
          const cost::Estimate& estimate = kernels[kernel];
          const double load = step.plan.cast.routed[kernel] ? rank_class.expert_load : 1;
          account.add(times * estimate.time.count() * rank_class.slowdown * load, estimate.basis,
                      estimate.reach, account.of_kernels[kind][kernel],
                      [&] { return name_of(step.plan.cast.kernels[kernel]); });
        }
        continue;
      }
      if (op.kind == OpKind::receive || op.kind == OpKind::hear) continue;
      const std::uint32_t table =
          op.kind == OpKind::collective
              ? lowered.machine.communicators[actor.communicators[op.port]].transfers
              : lowered.machine.channels[actor.channels[op.port]].transfers;
      const TransferEstimate& estimate = lowered.transfers[table][op.subject];
      if (estimate.meeting) continue;
      const cost::MessageTerms& terms = estimate.terms;
      double seconds = terms.latency.count();
      if (terms.wire_bytes > Bytes(0)) seconds += (terms.wire_bytes / terms.bandwidth).count();
      account.add(times * seconds, terms.basis, terms.reach,
                  account.of_transfers[table][op.subject], [&] { return name_of(estimate); });
    }
  }
}

class Notes {
 public:
  // `gpu`: whose they are, said where there are several kinds.
  explicit Notes(std::string gpu) : gpu_(std::move(gpu)) {}

  void add(const std::string& what, const Provenance& from, Basis basis) {
    if (!seen_.emplace(what, true).second) return;
    const std::string of = gpu_.empty() ? what : fmt::format("{} ({})", what, gpu_);
    notes_.push_back({of, from.source, from.machine, from.residual, basis});
  }
  std::vector<SourceNote> take() { return std::move(notes_); }

 private:
  std::string gpu_;
  std::map<std::string, bool> seen_;
  std::vector<SourceNote> notes_;
};

void note_kernel(const Profile& profile, const models::Kernel& kernel,
                 const cost::Estimate& estimate, Notes& notes) {
  Provenance none;
  none.source = "datasheet roofline";
  if (const auto* gemm = std::get_if<models::Gemm>(&kernel)) {
    const cost::GemmLaw* used = profile.gemm.empty() ? nullptr : &profile.gemm.front();
    for (const cost::GemmLaw& law : profile.gemm)
      if (law.dtype == gemm->dtype) used = &law;
    notes.add(fmt::format("GEMM {}", name(gemm->dtype)), used != nullptr ? used->from : none,
              estimate.basis);
  } else if (const auto* memory = std::get_if<models::MemoryBound>(&kernel)) {
    const cost::MemoryLaw* used = profile.memory.empty() ? nullptr : &profile.memory.front();
    for (const cost::MemoryLaw& law : profile.memory)
      if (law.op == memory->op) used = &law;
    notes.add(fmt::format("memory-bound: {}", name(memory->op)),
              used != nullptr ? used->from : none, estimate.basis);
  } else if (std::holds_alternative<models::Timed>(kernel)) {
    Provenance given;
    given.source = "the scenario";
    notes.add("given times", given, estimate.basis);
  } else if (const auto* attention = std::get_if<models::Attention>(&kernel)) {
    const cost::AttentionLaw* used = attention_law(profile, *attention);
    const bool is_named = attention->kernel != models::AttentionKernel::usual;
    notes.add(
        fmt::format("attention{}{}", is_named ? " " : "", is_named ? name(attention->kernel) : ""),
        used != nullptr ? used->from : none, estimate.basis);
  } else {
    notes.add("convolution", profile.convolution.empty() ? none : profile.convolution.front().from,
              estimate.basis);
  }
}

void note_transfer(const Profile* profile, const TransferEstimate& estimate, Notes& notes) {
  const cost::GroupShape& shape = estimate.shape;
  Provenance from;
  from.source = "closed form of ring and tree on datasheet bandwidths";
  std::string what;
  if (estimate.host) {
    what = name_of(estimate);
    from.source = "datasheet bandwidth";
    const cost::HostCopyLaw* law =
        profile != nullptr ? host_copy_law(*estimate.host, profile->host_copies) : nullptr;
    if (law != nullptr) from = law->from;
  } else if (estimate.point_to_point) {
    what = name_of(estimate);
    if (profile != nullptr) {
      for (const cost::PointToPointLaw& law : profile->point_to_point)
        if (law.same_server == (shape.servers == 1)) from = law.from;
    }
  } else {
    what = name_of(estimate);
    // Between servers the closed form adds to what a law says of one server.
    const cost::CollectiveLaw* law = nullptr;
    if (profile != nullptr) {
      for (const cost::CollectiveLaw& candidate : profile->collectives) {
        if (law == nullptr || candidate.servers == shape.servers) law = &candidate;
      }
    }
    if (law != nullptr) {
      from = law->from;
      if (law->servers != shape.servers) from.source += "; closed form between servers";
    }
  }
  notes.add(what, from, estimate.terms.basis);
}

// What its kernels, and messages by its laws, are priced by.
void note_gpu(const Job& job, const Step& step, int kind, Notes& notes) {
  const Profile none;
  const Profile* profile = job.profile_of(kind);
  const std::vector<cost::Estimate>& kernels = step.lowered.kernels[static_cast<std::size_t>(kind)];
  for (std::size_t k = 0; k < kernels.size(); ++k)
    note_kernel(profile != nullptr ? *profile : none, step.plan.cast.kernels[k], kernels[k], notes);
  for (const std::vector<TransferEstimate>& table : step.lowered.transfers) {
    for (const TransferEstimate& estimate : table)
      if (estimate.shape.gpu_kind == kind) note_transfer(profile, estimate, notes);
  }
  if (profile != nullptr && !job.recipe.launch_time && profile->launch.count() > 0)
    notes.add("kernel launch", profile->launch_from, profile->launch_from.basis);
}

void note_extrapolations(const Account& account, double sum, StepReport& report) {
  for (const auto& [key, seconds] : account.beyond)
    report.extrapolated.push_back({key.first, key.second, seconds / sum});
  std::stable_sort(
      report.extrapolated.begin(), report.extrapolated.end(),
      [](const Extrapolation& a, const Extrapolation& b) { return a.fraction > b.fraction; });
}

}  // namespace

void account_basis(const Job& job, const Step& step, StepReport& report) {
  Account account(step.lowered);
  for (const lower::RankClass& rank_class : step.lowered.classes) {
    const plan::Role& stage = step.plan.cast.roles[static_cast<std::size_t>(rank_class.role)];
    // Workers that prepare input take what the scenario says, and no GPU waits for most of it.
    if (stage.beside.empty()) add_program(step, rank_class, stage.program, account);
  }
  const Totals& totals = account.totals;
  double sum = 0;
  for (const double seconds : totals)
    sum += seconds;
  for (std::size_t b = 0; b < totals.size(); ++b) {
    if (totals[b] > 0) report.basis.push_back({static_cast<Basis>(b), totals[b] / sum});
  }

  note_extrapolations(account, sum, report);
  const std::vector<topologies::GpuKind> kinds = gpu_kinds(job.cluster);
  const std::vector<bool> in_use = gpu_kinds_used(job.cluster);
  const bool several = std::count(in_use.begin(), in_use.end(), true) > 1;
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    if (!in_use[kind]) continue;
    Notes notes(several ? kinds[kind].gpu->name : "");
    note_gpu(job, step, static_cast<int>(kind), notes);
    for (SourceNote& note : notes.take())
      report.sources.push_back(std::move(note));
    const Profile* profile = job.profile_of(static_cast<int>(kind));
    if (profile != nullptr && !several) report.calibration = profile->calibration;
  }
}

}  // namespace trainyard::simulate
