// Activations that wait on the host for their backward pass.
#include <doctest/doctest.h>

#include "tests/simulate/offload_toy.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace toy;

TEST_CASE("activations go down and come up once in every micro-batch") {
  for (const int microbatches : {1, 4}) {
    OffloadSetup setup("allreduce", 1, microbatches);
    setup.recipe.offload.activations = true;
    const auto all = simulated(setup, offload_network({1, 2, 0}));
    CHECK(moved(all->plan, "copy to the host") == microbatches * kLayers * kActivations);
    CHECK(moved(all->plan, "copy to the device") == microbatches * kLayers * kActivations);
    CHECK(all->plan.cast.roles[0].host.activations == Bytes(kLayers * kActivations));
    setup.recipe.offload.fraction = 0.5;
    const auto half = simulated(setup, offload_network({1, 2, 0}));
    CHECK(moved(half->plan, "copy to the host") == microbatches * kLayers * kActivations / 2);
  }
}

TEST_CASE("activation offload over a fast link takes no time") {
  const toy::Times times{1000, 2000, 0};
  for (const int prefetch : {0, 1}) {
    OffloadSetup setup("allreduce", 1, 3);
    setup.set_links(4e18);
    const std::int64_t plain = nanoseconds(*simulated(setup, offload_network(times)));
    setup.recipe.offload.activations = true;
    setup.recipe.offload.prefetch_layers = prefetch;
    CHECK(nanoseconds(*simulated(setup, offload_network(times))) == plain);
  }
}

TEST_CASE("activation offload is hidden but for the last copy down and the first up, or bounds") {
  constexpr int kMicrobatches = 3;
  constexpr std::int64_t kCopy = kActivations, kStep = 28 * kParameters;
  const auto take = [&](const toy::Times& times, int layers, int prefetch) {
    OffloadSetup setup("allreduce", 1, kMicrobatches);
    setup.recipe.offload.activations = true;
    setup.recipe.offload.prefetch_layers = prefetch;
    return nanoseconds(*simulated(setup, offload_network(times, layers))) - layers * kStep;
  };
  const toy::Times fast{kCopy + 1, kCopy + 2, 0}, slow{kCopy / 7, kCopy / 5, 0};
  for (const int layers : {1, 2, kLayers}) {
    CAPTURE(layers);
    CHECK(take(fast, layers, 1) ==
          kMicrobatches * (layers * (fast.forward + fast.backward) + 2 * kCopy));
    CHECK(take(slow, layers, 1) ==
          kMicrobatches * (slow.forward + 2 * layers * kCopy + slow.backward));
    // Nothing overlaps.
    for (const toy::Times& times : {fast, slow})
      CHECK(take(times, layers, 0) ==
            kMicrobatches * layers * (times.forward + times.backward + 2 * kCopy));
  }
}

TEST_CASE("with n layers of prefetch n + 1 layers of activations are on the GPU") {
  for (const std::int64_t speed : {1, 10, 1000}) {
    for (const int prefetch : {0, 1}) {
      CAPTURE(speed);
      CAPTURE(prefetch);
      OffloadSetup setup("allreduce", 1, 2);
      setup.recipe.offload.activations = true;
      setup.recipe.offload.prefetch_layers = prefetch;
      const auto result = simulated(setup, offload_network({10 * speed, 20 * speed, 0}));
      CHECK(most(*result, MemoryKind::activations) == (prefetch + 1) * kActivations);
    }
  }
}

TEST_CASE("pipelines hold one layer more and hide the first fetch of a pass") {
  const toy::Times times{2 * kActivations, 3 * kActivations, 0};
  const auto result = [&](bool offloads) {
    OffloadSetup setup("allreduce", 1, 8);
    setup.plan.degrees.pipeline = 2;
    setup.cluster = toy::cluster(2, 1);
    setup.set_links(1e9);
    setup.recipe.offload.activations = offloads;
    return simulated(setup, offload_network(times));
  };
  const auto offloaded = result(true), plain = result(false);
  CHECK(most(*offloaded, MemoryKind::activations) <= 3 * kActivations);
  CHECK(most(*plain, MemoryKind::activations) == 2 * 3 * kActivations);
  CHECK(offloaded->plan.cast.roles[0].host.activations == Bytes(2 * 3 * kActivations));
  // The last stage turns round at once, so it shows one copy down and one up; the first does not.
  CHECK(nanoseconds(*offloaded) - nanoseconds(*plain) <= 8 * 2 * kActivations);
}

TEST_CASE("activations come back in every schedule of whole passes") {
  int schedules_run = 0;
  for (const ScheduleEntry& entry : schedules()) {
    Job own = offload_job("allreduce", 1, 4, 8, 4);
    own.plan.pipeline.schedule = entry.name;
    own.plan.pipeline.chunks = entry.chunks;
    const PipelineShape shape = pipeline_shape(own.recipe, own.plan);
    if (entry.unsupported(shape)) continue;
    const StageOrders orders = build_stages(entry, shape);
    const bool whole = std::all_of(orders.begin(), orders.end(), [](const auto& order) {
      return std::all_of(order.begin(), order.end(), [](const Slot& slot) {
        return !slot.paired && (slot.pass == Pass::forward || slot.pass == Pass::backward);
      });
    });
    if (!whole) continue;
    ++schedules_run;
    CAPTURE(entry.name);
    const auto plain = simulate_step(own);
    own.recipe.offload.activations = true;
    for (const int prefetch : {0, 1}) {
      own.recipe.offload.prefetch_layers = prefetch;
      const auto step = simulate_step(own);
      REQUIRE(std::holds_alternative<Trace>(step->outcome));
      for (const MemoryPeak& peak : step->trace().peaks)
        CHECK(peak.at_end == peak.resident);
      CHECK(step->trace().end >= plain->trace().end);
      CHECK(summarize(own, *step).memory.peak < summarize(own, *plain).memory.peak);
    }
  }
  CHECK(schedules_run >= 7);
}

// The k-th fetch of a layer brings back what its k-th copy took away.
TEST_CASE("no activations are fetched before they have been copied out") {
  for (const double bandwidth : {1e7, 1e9}) {
    OffloadSetup setup("allreduce", 1, 8);
    setup.plan.degrees.pipeline = 3;
    setup.cluster = toy::cluster(3, 1);
    setup.set_links(bandwidth);
    setup.recipe.offload.activations = true;
    const auto result = simulated(setup, offload_network({kActivations, kActivations, 0}, 3));
    const Trace& trace = std::get<Trace>(result->outcome);
    for (std::uint32_t stage = 0; stage < 3; ++stage) {
      const Program& program = result->plan.cast.roles[stage].program;
      std::vector<Duration> copied, fetched;
      for (const Span& span : trace.spans) {
        if (span.actor != ActorId(stage)) continue;
        const Op& op = program.op(span.call, span.op);
        if (op.stream == static_cast<std::uint8_t>(StreamKind::to_host)) copied.push_back(span.end);
        if (op.stream == static_cast<std::uint8_t>(StreamKind::to_device))
          fetched.push_back(span.begin);
      }
      REQUIRE(copied.size() == 8);
      REQUIRE(fetched.size() == 8);
      for (std::size_t i = 0; i < copied.size(); ++i)
        CHECK(copied[i] <= fetched[i]);
    }
  }
}

TEST_CASE("a wait for activations is a wait for copies, not for anybody else") {
  for (const int prefetch : {0, 1}) {
    Job own = offload_job("allreduce", 1, 1, 2, 1);
    own.recipe.offload.activations = true;
    own.recipe.offload.prefetch_layers = prefetch;
    const StepReport report = summarize(own, *simulate_step(own));
    const auto part = [&](TimeCategory category) {
      return report.breakdown[static_cast<std::size_t>(category)];
    };
    CHECK(part(TimeCategory::exposed_host_copy) > Duration(0));
    CHECK(part(TimeCategory::bubble) == Duration(0));
  }
}
