// One representative per class gives every rank's trace to the picosecond.
#include <doctest/doctest.h>

#include "sim/engine/engine.h"
#include "sim/simulate/report/actor_spans.h"
#include "sim/simulate/report/summarize.h"
#include "sim/simulate/step.h"
#include "tests/simulate/recommender_job.h"
#include "tests/simulate/toy.h"
#include "tests/support/about.h"
#include "tests/support/cast.h"
#include "tests/support/networks.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

Job small_job(int tensor, int data, int pipeline, int gpus_per_server) {
  Transformer network = gpt(8, 1024, 16, 32000);
  Job job;
  job.network = network;
  job.cluster = toy::cluster(gpus_per_server, tensor * data * pipeline / gpus_per_server);
  job.recipe.global_batch = 8 * data;
  job.recipe.micro_batch.sequence_length = 512;
  job.plan.degrees = {.tensor = tensor, .data = data, .pipeline = pipeline};
  job.plan.tensor_parallel.sequence = tensor > 1;
  job.plan.data_parallel.bucket_size = Bytes(4 << 20);
  return job;
}

// The same with eight experts in a layer, on four parts.
Job mixture_job(int tensor, int data, int pipeline, int gpus_per_server) {
  Job job = small_job(tensor, data, pipeline, gpus_per_server);
  job.network.change<Transformer>().biases = false;
  job.network.change<Transformer>().moe = {.experts = 8, .top_k = 2, .ffn_hidden = 512};
  job.plan.experts.ranks = 4;
  return job;
}

// Leaves of two hosts' NICs with half as much upwards.
FatTree oversubscribed(int ports_down) {
  FatTree fabric;
  fabric.tiers = 2;
  fabric.radix = ports_down + ports_down / 2;
  fabric.oversubscription = {2};
  fabric.switch_latency = std::chrono::nanoseconds(300);
  return fabric;
}

// Simulates every rank and one per class; every integer of every rank's trace must agree.
// Returns the number of classes.
std::size_t check_fold(const Job& job) {
  const auto folded = simulate_step(job, {.unfold = false, .run = false});
  const auto unfolded = simulate_step(job, {.unfold = true, .run = false});
  const Outcome folded_outcome = run(folded->lowered.machine, {.record = Record::kernels});
  const Outcome unfolded_outcome = run(unfolded->lowered.machine, {.record = Record::kernels});
  const Trace& few = std::get<Trace>(folded_outcome);
  const Trace& all = std::get<Trace>(unfolded_outcome);
  CHECK(few.end == all.end);
  CHECK(few.end > Duration(0));
  CHECK(unfolded->lowered.machine.actors.size() ==
        static_cast<std::size_t>(job.plan.degrees.world_size()));
  CHECK(folded->lowered.machine.actors.size() == folded->lowered.classes.size());
  for (std::uint32_t rank = 0; rank < unfolded->lowered.machine.actors.size(); ++rank) {
    const ActorId representative = ActorId(folded->lowered.class_of_rank[rank]);
    const auto own = spans_of(all, ActorId(rank));
    const auto class_spans = spans_of(few, representative);
    REQUIRE(own.size() == class_spans.size());
    REQUIRE(!own.empty());
    std::size_t different = 0;
    for (std::size_t i = 0; i < own.size(); ++i) {
      Span expected = class_spans[i];
      expected.actor = ActorId(rank);
      different += own[i] == expected ? 0 : 1;
    }
    CAPTURE(rank);
    CHECK(different == 0);
    const auto own_kernels = kernels_of(all, ActorId(rank));
    const auto class_kernels = kernels_of(few, representative);
    REQUIRE(own_kernels.size() == class_kernels.size());
    for (std::size_t i = 0; i < own_kernels.size(); ++i)
      different += own_kernels[i].begin != class_kernels[i].begin ||
                           own_kernels[i].end != class_kernels[i].end
                       ? 1
                       : 0;
    CHECK(different == 0);
    CHECK(all.peaks[ActorId(rank)].peak == few.peaks[representative].peak);
    CHECK(all.peaks[ActorId(rank)].at == few.peaks[representative].at);
  }
  return folded->lowered.classes.size();
}

}  // namespace

TEST_CASE("a symmetric job folds to one class per stage, exactly") {
  CHECK(check_fold(small_job(2, 4, 2, 4)) == 2);
  CHECK(check_fold(small_job(4, 2, 1, 8)) == 1);
  CHECK(check_fold(small_job(1, 8, 1, 4)) == 1);
  CHECK(check_fold(small_job(1, 2, 4, 8)) == 4);
}

TEST_CASE("encoders, encoder-decoders and vision transformers fold exactly") {
  for (const Network& network : {Network(testing::small_bert(8)), Network(testing::small_t5(4, 4)),
                                 Network(testing::small_vit(8))}) {
    CAPTURE(network.words());
    for (const int pipeline : {1, 2, 4}) {
      Job job = small_job(2, 2, pipeline, 4);
      job.network = network;
      job.recipe.micro_batch.sequence_length = reads_tokens(network) ? 128 : 1;
      if (network.is<EncoderDecoder>()) job.recipe.micro_batch.decoder_sequence_length = 64;
      CHECK(check_fold(job) == static_cast<std::size_t>(pipeline));
    }
  }
}

TEST_CASE("context parallel ranks fold exactly, whatever the method") {
  for (const ContextMethod method :
       {ContextMethod::ring, ContextMethod::all_gather, ContextMethod::ulysses}) {
    Job job = small_job(2, 2, 2, 8);
    job.cluster = toy::cluster(8, 2);
    job.plan.degrees.context = 2;
    job.plan.context_parallel.method = method;
    job.recipe.kernels.attention = AttentionKernel::fa2;
    CHECK(check_fold(job) == 2);
    job.fidelity = Fidelity::flow;
    CHECK(check_fold(job) == 2);
  }
}

TEST_CASE("expert parallel ranks fold exactly, one class for each load") {
  Job job = mixture_job(2, 4, 2, 8);
  job.plan.experts.tensor = 1;
  CHECK(check_fold(job) == 2);
  const auto even = simulate_step(job);
  // The first two parts of the experts are on one tensor-parallel pair, the others on the next.
  job.plan.expert_load = {1.25, 1.25, 0.75, 0.75};
  CHECK(check_fold(job) == 2 * 2);
  // The pairs of a part's neighbours in the data-parallel group tell all parts apart.
  job.plan.expert_load = {1.5, 1, 0.75, 0.75};
  CHECK(check_fold(job) == 2 * 4);
  const auto uneven = simulate_step(job);
  CHECK(std::get<Trace>(uneven->outcome).end > std::get<Trace>(even->outcome).end);
  job.fidelity = Fidelity::flow;
  check_fold(job);
}

TEST_CASE("each flow of an exchange carries the load of the rank it leads to") {
  Job job = mixture_job(1, 4, 1, 1);
  job.plan.expert_load = {1.5, 1, 0.75, 0.75};
  job.plan.data_parallel.overlap_backward = false;
  const Duration law = simulate_step(job)->trace().end;
  job.fidelity = Fidelity::flow;
  const auto step = simulate_step(job, {.unfold = true});
  const auto& machine = step->lowered.machine;
  const CommunicatorId exchange =
      machine.actors[ActorId{0}].communicators[port_on(step->plan.cast, "expert parallel")];
  std::vector<std::uint32_t> loads = machine.communicators[exchange].loads;
  std::sort(loads.begin(), loads.end());
  std::vector<std::uint32_t> expected;
  for (const auto& [load, paths] : {std::pair{0.75, 6}, {1.0, 3}, {1.5, 3}})
    expected.insert(expected.end(), static_cast<std::size_t>(paths),
                    static_cast<std::uint32_t>(load * kFullLoad));
  CHECK(loads == expected);
  // Where nobody is in the way they end with the busiest rank's, as the closed form says.
  CHECK(Seconds(step->trace().end).count() == about(Seconds(law).count()).within(1e-3));
}

TEST_CASE("experts take as long as their load says, and no other kernel does") {
  Job job = mixture_job(1, 4, 1, 4);
  const auto even = simulate_step(job, {.unfold = false, .run = false});
  job.plan.expert_load = {1.5, 1, 0.75, 0.75};
  const auto step = simulate_step(job, {.unfold = false, .run = false});
  REQUIRE(step->lowered.classes.size() == 3);
  int routed = 0;
  for (const RankClass& rank_class : step->lowered.classes) {
    const double load = job.plan.expert_load[static_cast<std::size_t>(rank_class.representative)];
    const KernelTimes& times = *step->lowered.machine.actors[rank_class.actor].times;
    for (std::size_t k = 0; k < times.kernel.size(); ++k) {
      const Seconds alone = step->lowered.kernels[0][k].time;
      CHECK(times.kernel[k] == to_duration(step->plan.cast.routed[k] ? load * alone : alone));
      routed += step->plan.cast.routed[k] ? 1 : 0;
    }
  }
  CHECK(routed > 0);
  // Exchanges carry what the busiest rank takes in.
  const CommunicatorId exchange = step->lowered.machine.actors[step->lowered.classes[0].actor]
                                      .communicators[port_on(step->plan.cast, "expert parallel")];
  const auto bytes = [&](const Step& of) {
    return of.lowered.transfers[of.lowered.machine.communicators[exchange].transfers][0]
        .terms.wire_bytes;
  };
  CHECK(2 * bytes(*step) == 3 * bytes(*even));
}

TEST_CASE("ranks with equal tables fold exactly, one class for each load") {
  for (const Fidelity fidelity : {Fidelity::closed_form, Fidelity::flow}) {
    for (const TableSharding how : {TableSharding::table_wise, TableSharding::column_wise,
                                    TableSharding::row_wise, TableSharding::replicated}) {
      Job job = recommender_job(4, 4, how);
      job.fidelity = fidelity;
      CHECK(check_fold(job) == 1);
    }
    Job uneven = recommender_job(8, 12, TableSharding::table_wise);
    uneven.cluster = toy::cluster(4, 2);
    uneven.fidelity = fidelity;
    CHECK(check_fold(uneven) >= 2);
  }
}

TEST_CASE("interleaved stages and blocking messages fold exactly") {
  Job job = small_job(2, 2, 4, 8);
  job.plan.pipeline.schedule = "interleaved_1f1b";
  job.plan.pipeline.chunks = 2;
  job.plan.pipeline.overlap_p2p = false;
  CHECK(check_fold(job) == 4);
}

TEST_CASE("one straggler splits its class and all others stay exact") {
  Job job = small_job(2, 4, 2, 4);
  job.stragglers = {{.rank = 5, .compute_slowdown = 1.25}};
  const std::size_t classes = check_fold(job);
  CHECK(classes > 2);
  CHECK(classes < 16);
}

TEST_CASE("sharded strategies fold exactly, closed form and flows") {
  for (const Fidelity fidelity : {Fidelity::closed_form, Fidelity::flow}) {
    for (const char* kind : {"zero2", "zero3", "fsdp", "hsdp", "distributed_optimizer"}) {
      CAPTURE(kind);
      Job job = small_job(1, 8, 1, 4);
      job.fidelity = fidelity;
      job.plan.data_parallel.kind = kind;
      job.plan.data_parallel.shard_size = 4;
      job.recipe.gradient_clipping = true;
      CHECK(check_fold(job) == 1);
      if (job.plan.data_parallel.kind == "zero3") continue;
      job = small_job(2, 4, 2, 4);
      job.fidelity = fidelity;
      job.plan.data_parallel.kind = kind;
      job.plan.data_parallel.shard_size = 2;
      job.recipe.gradient_clipping = true;
      job.stragglers = {{.rank = 5, .compute_slowdown = 1.25}};
      CHECK(check_fold(job) <= 16);
    }
  }
}

TEST_CASE("kernels that mind communication by different weights fold exactly") {
  Job job = small_job(2, 4, 2, 4);
  Profile profile;
  profile.collective_channels = job.cluster.server.gpu.multiprocessors / 3;
  profile.point_to_point_channels = 1;
  for (const double communication : {1.0, 0.7}) {
    profile.overlap = OverlapLaw{1.3, 0.4, communication, {}};
    job.prices = {{profile, ""}};
    job.stragglers = {};
    CHECK(check_fold(job) < 16);
    job.stragglers = {{.rank = 5, .compute_slowdown = 1.25}};
    check_fold(job);
  }
}

TEST_CASE("communication that kernels slow down takes longer, and no less than all of it could") {
  for (const Fidelity fidelity : {Fidelity::closed_form, Fidelity::flow}) {
    Job job = small_job(2, 4, 2, 4);
    job.fidelity = fidelity;
    Profile profile;
    const auto seconds = [&](double share) {
      profile.overlap = OverlapLaw{1, 1, share, {}};
      job.prices = {{profile, ""}};
      return Seconds(simulate_step(job)->trace().end).count();
    };
    const double alone = seconds(1), beside = seconds(0.5);
    CHECK(beside > alone);
    CHECK(beside < 2 * alone);
  }
}

TEST_CASE("flows on a non-blocking switch fold exactly") {
  Job job = small_job(2, 4, 2, 4);
  job.fidelity = Fidelity::flow;
  CHECK(check_fold(job) < 16);
}

TEST_CASE("flows on a 2:1 oversubscribed fabric fold exactly") {
  for (const auto& [tensor, data, pipeline] :
       {std::array{1, 16, 1}, std::array{2, 8, 1}, std::array{2, 4, 2}, std::array{4, 8, 1}}) {
    Job job = small_job(tensor, data, pipeline, 4);
    job.fidelity = Fidelity::flow;
    job.cluster.fabric = oversubscribed(8);
    CAPTURE(tensor);
    CAPTURE(data);
    CHECK(check_fold(job) <= static_cast<std::size_t>(tensor * data * pipeline));
  }
}

TEST_CASE("flows on a 2:1 oversubscribed fabric with a straggler fold exactly") {
  Job job = small_job(2, 8, 1, 4);
  job.fidelity = Fidelity::flow;
  job.cluster.fabric = oversubscribed(8);
  job.stragglers = {{.rank = 3, .compute_slowdown = 1.5}};
  check_fold(job);
}

TEST_CASE("a NIC's efficiency counts once, whatever the fidelity") {
  const auto exposed = [](double efficiency, Fidelity fidelity) {
    Job job = small_job(1, 2, 1, 1);
    job.cluster = toy::cluster(1, 2);
    job.cluster.server.nic_efficiency = efficiency;
    job.plan.data_parallel.overlap_backward = false;
    job.fidelity = fidelity;
    const std::unique_ptr<Step> step = simulate_step(job);
    return summarize(job, *step).breakdown[static_cast<std::size_t>(TimeCategory::exposed_dp)];
  };
  for (const double efficiency : {1.0, 0.9, 0.5}) {
    CAPTURE(efficiency);
    const Duration law = exposed(efficiency, Fidelity::closed_form);
    const Duration flows = exposed(efficiency, Fidelity::flow);
    CHECK(law > Duration(0));
    // Times are rounded once in each of two messages.
    CHECK(std::abs((law - flows).count()) <= 2);
  }
}

TEST_CASE("an oversubscribed fabric slows data parallelism down, and only under flow fidelity") {
  Job job = small_job(1, 16, 1, 4);
  job.fidelity = Fidelity::flow;
  const Duration open = simulate_step(job)->trace().end;
  job.cluster.fabric = oversubscribed(8);
  const Duration contended = simulate_step(job)->trace().end;
  CHECK(contended >= open);
}

// A few picoseconds of rounding per message apart.
TEST_CASE("on an uncontended fabric closed forms and flows agree") {
  Job job = small_job(4, 1, 2, 4);
  const Duration closed = simulate_step(job)->trace().end;
  job.fidelity = Fidelity::flow;
  const Duration flow = simulate_step(job)->trace().end;
  CHECK(std::abs((closed - flow).count()) < 2000);
}

TEST_CASE("folding is exact for the flows of every algorithm") {
  for (const AlgorithmEntry& entry : algorithms()) {
    Job job = small_job(2, 8, 1, 4);
    job.plan.tensor_parallel.sequence = false;
    job.fidelity = Fidelity::flow;
    for (const CollectiveKind kind : kCollectiveKinds)
      if (entry.supports(kind, {8, 2, 4}) && entry.supports(kind, 2))
        job.collectives.choose(kind, {&entry, {}});
    CAPTURE(entry.name);
    check_fold(job);
  }
}
