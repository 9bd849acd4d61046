// What the samples do not say, from a base: the profile that is shipped for this GPU, or one for a
// GPU like it. A machine of one GPU cannot measure messages between GPUs, and no machine tells how
// many multiprocessors they hold. Each law keeps its provenance and names its profile.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "calibrate/fit/fitting.h"

namespace trainyard::fit {
namespace {

constexpr std::string_view kMark = "profile ";

class Carrier {
 public:
  Carrier(const Fitting& f, const cost::Profile& base)
      : f_(f), base_(base), other_gpu_(!base.gpu.empty() && base.gpu != f.gpu.name) {}

  cost::Provenance marked(cost::Provenance from) const {
    // What the base itself has from another profile says so already.
    if (!from.source.starts_with(kMark))
      from.source =
          fmt::format("{}{}{}: {}", kMark, base_.name,
                      other_gpu_ ? fmt::format(", made on {}", base_.gpu) : "", from.source);
    return from;
  }

  void note(std::string what, const cost::Provenance& from) const {
    f_.result.carried.push_back({std::move(what), from});
  }

  // The laws of the base whose case none of the fitted laws covers.
  template <class Law, class Covers, class Name>
  void laws(const std::vector<Law>& theirs, std::vector<Law>& ours, Covers covers,
            Name name_of) const {
    const std::vector<Law> fitted = ours;
    for (Law law : theirs) {
      if (std::any_of(fitted.begin(), fitted.end(),
                      [&](const Law& own) { return covers(own, law); }))
        continue;
      law.from = marked(law.from);
      note(name_of(law), law.from);
      ours.push_back(std::move(law));
    }
  }

  // The law of the base if nothing else was fitted.
  template <class Law>
  void law(const std::optional<Law>& theirs, std::optional<Law>& ours, std::string what) const {
    if (ours || !theirs) return;
    ours = theirs;
    ours->from = marked(theirs->from);
    note(std::move(what), ours->from);
  }

 private:
  const Fitting& f_;
  const cost::Profile& base_;
  bool other_gpu_;
};

// Both 16-bit types run on the same units.
bool same_unit(models::Dtype a, models::Dtype b) {
  const auto half = [](models::Dtype d) {
    return d == models::Dtype::fp16 || d == models::Dtype::bf16;
  };
  return a == b || (half(a) && half(b));
}

void carry_kernels(const Carrier& carrier, const cost::Profile& base, cost::Profile& own) {
  carrier.laws(
      base.gemm, own.gemm,
      [](const cost::GemmLaw& a, const cost::GemmLaw& b) { return same_unit(a.dtype, b.dtype); },
      [](const cost::GemmLaw& l) { return fmt::format("gemm {}", name(l.dtype)); });
  for (cost::GemmLaw& law : own.gemm) {
    for (const cost::GemmLaw& other : base.gemm) {
      if (same_unit(law.dtype, other.dtype))
        carrier.law(other.unaligned, law.unaligned,
                    fmt::format("gemm {} of unaligned rows", name(law.dtype)));
    }
  }
  if (own.batched_gemm_from.source.empty() && !base.batched_gemm_from.source.empty()) {
    own.batched_gemm_efficiency = base.batched_gemm_efficiency;
    own.batched_gemm_from = carrier.marked(base.batched_gemm_from);
    carrier.note("batched gemm", own.batched_gemm_from);
  }
  carrier.law(base.grouped_gemm, own.grouped_gemm, "grouped gemm");
  carrier.laws(
      base.attention, own.attention,
      [](const cost::AttentionLaw& a, const cost::AttentionLaw& b) {
        return !a.kernel || !b.kernel || a.kernel == b.kernel;
      },
      [](const cost::AttentionLaw& l) {
        return fmt::format("attention{}{}{}{}", l.kernel ? " " : "",
                           l.kernel ? name(*l.kernel) : "", l.dtype ? " " : "",
                           l.dtype ? name(*l.dtype) : "");
      });
  carrier.law(base.attention_dropout, own.attention_dropout, "dropout of attention");
  carrier.laws(
      base.convolution, own.convolution,
      [](const cost::ConvolutionLaw& a, const cost::ConvolutionLaw& b) {
        return same_unit(a.dtype, b.dtype);
      },
      [](const cost::ConvolutionLaw& l) { return fmt::format("convolution {}", name(l.dtype)); });
  carrier.laws(
      base.memory, own.memory,
      [](const cost::MemoryLaw& a, const cost::MemoryLaw& b) { return a.op == b.op; },
      [](const cost::MemoryLaw& l) { return "memory " + spelled(l.op); });
}

void carry_messages(const Carrier& carrier, const cost::Profile& base, cost::Profile& own) {
  // A law of another group size here knows more of these links than one of theirs.
  carrier.laws(
      base.collectives, own.collectives,
      [](const cost::CollectiveLaw& a, const cost::CollectiveLaw& b) {
        return a.kind == b.kind && a.servers == b.servers;
      },
      [](const cost::CollectiveLaw& l) { return title(name(l.kind), l.ranks, l.servers); });
  carrier.law(base.collective_start, own.collective_start, "collective start");
  carrier.laws(
      base.point_to_point, own.point_to_point,
      [](const cost::PointToPointLaw& a, const cost::PointToPointLaw& b) {
        return a.same_server == b.same_server;
      },
      [](const cost::PointToPointLaw& l) {
        return fmt::format("send and receive, {}", l.same_server ? "one server" : "two servers");
      });
  carrier.laws(
      base.host_copies, own.host_copies,
      [](const cost::HostCopyLaw& a, const cost::HostCopyLaw& b) {
        return a.to_device == b.to_device && a.pinned == b.pinned;
      },
      [](const cost::HostCopyLaw& l) {
        return fmt::format("copy {} {}", l.to_device ? "h2d" : "d2h",
                           l.pinned ? "pinned" : "pageable");
      });
}

void carry_rest(const Carrier& carrier, const cost::Profile& base, cost::Profile& own) {
  if (!base.channels_from.source.empty()) {
    own.collective_channels = base.collective_channels;
    own.point_to_point_channels = base.point_to_point_channels;
    own.channels_from = carrier.marked(base.channels_from);
    carrier.note(fmt::format("channels: a collective holds {}, a send {} multiprocessors",
                             own.collective_channels, own.point_to_point_channels),
                 own.channels_from);
  }
  carrier.law(base.overlap, own.overlap, "overlap");
  if (own.launch_from.source.empty() && !base.launch_from.source.empty()) {
    own.launch = base.launch;
    own.launch_details = base.launch_details;
    own.launch_from = carrier.marked(base.launch_from);
    carrier.note("launch", own.launch_from);
  }
}

// Numbers given by hand; the base keeps the other of the two.
void set_channels(const Fitting& f) {
  const FitOptions& options = f.options;
  if (!options.channels && !options.point_to_point_channels) return;
  cost::Profile& own = f.profile();
  const cost::Provenance before = own.channels_from;
  own.collective_channels = options.channels.value_or(own.collective_channels);
  own.point_to_point_channels =
      options.point_to_point_channels.value_or(own.point_to_point_channels);
  cost::Provenance& from = own.channels_from;
  from.source = "Given to trainyard fit by hand";
  const bool one = !options.channels || !options.point_to_point_channels;
  if (one)
    from.source +=
        fmt::format(": that of a {}; the other: {}", options.channels ? "collective" : "send",
                    before.source.empty() ? "none" : before.source);
  from.machine = f.result.device;
  from.date = "not measured";
  from.samples = "none: it cannot be measured from outside";
  from.residual = "unknown";
  from.basis = Basis::analytic;
  std::vector<CarriedLaw>& carried = f.result.carried;
  carried.erase(std::remove_if(carried.begin(), carried.end(),
                               [](const CarriedLaw& c) { return c.what.starts_with("channels"); }),
                carried.end());
  carried.push_back({fmt::format("channels: a collective holds {}, a send {} multiprocessors",
                                 own.collective_channels, own.point_to_point_channels),
                     from});
}

void name_missing(const cost::Profile& own, std::vector<std::string>& missing) {
  const auto add = [&missing](bool absent, std::string_view what) {
    if (absent) missing.emplace_back(what);
  };
  const bool gemm = !own.gemm.empty();
  add(!gemm, "matrix products: priced by the datasheet's rates");
  add(own.attention.empty(), gemm ? "attention: priced as batched products"
                                  : "attention: priced by the datasheet's rates");
  add(own.convolution.empty(), gemm ? "convolutions: priced as matrix products"
                                    : "convolutions: priced by the datasheet's rates");
  std::string ops;
  for (const models::MemoryOp op : models::kAllMemoryOps)
    if (std::none_of(own.memory.begin(), own.memory.end(),
                     [op](const cost::MemoryLaw& law) { return law.op == op; }))
      ops += (ops.empty() ? "" : ", ") + spelled(op);
  if (!ops.empty())
    missing.push_back("memory-bound kernels, priced by the datasheet's bandwidth: " + ops);
  add(own.collectives.empty(), "collectives between GPUs: closed forms, without what starts them");
  add(own.point_to_point.empty(), "send and receive: latency and bandwidth of the links");
  add(own.channels_from.source.empty(),
      "channels: communication slows no kernel; give --channels and --p2p-channels");
  add(own.launch_from.source.empty(), "launch: the host starts kernels in no time");
}

}  // namespace

std::string origin(const cost::Provenance& from) {
  if (!from.source.starts_with(kMark)) return from.source;
  return "from " + from.source.substr(0, from.source.find(':'));
}

void carry_over(const Fitting& f) {
  std::optional<cost::Profile> base;
  if (f.options.find_base) base = f.options.find_base(f.gpu);
  if (base) {
    if (base->gpu != f.gpu.name) *base = for_other_gpu(std::move(*base));
    f.result.base = base->name;
    const Carrier carrier(f, *base);
    carry_kernels(carrier, *base, f.profile());
    carry_messages(carrier, *base, f.profile());
    carry_rest(carrier, *base, f.profile());
  }
  set_channels(f);
  name_missing(f.profile(), f.result.missing);
}

}  // namespace trainyard::fit
