// Sizes that no machine works on: time and bytes that outgrow 64 bits are said to the user, and the
// time that a plan takes to be simulated grows as its parts do.
#include <doctest/doctest.h>

#include <ctime>

#include "sim/base/out_of_range.h"
#include "sim/simulate/report/summarize.h"
#include "sim/simulate/simulate.h"
#include "tests/scenario/temporary.h"
#include "tests/simulate/toy.h"
#include "tests/support/networks.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

Job job(int layers, int data) {
  Job result;
  result.network = gpt(layers, 512, 8, 8192);
  result.cluster = toy::cluster(data, 1);
  result.recipe.global_batch = data;
  result.recipe.micro_batch.sequence_length = 256;
  result.plan.degrees = {.tensor = 1, .data = data, .pipeline = 1};
  return result;
}

// What is wrong with the small scenario after these changes; "" if it can be simulated.
std::string refusal(const std::vector<std::string>& sets) {
  const test::Folder folder("limits");
  try {
    const scenario::ScenarioSet set =
        scenario::load_scenario(folder.write("s.json", test::kSmall), sets);
    simulate::simulate(set.base);
  } catch (const ScenarioError& error) {
    return error.what();
  }
  return "";
}

double seconds(const Job& job) {
  const std::clock_t begin = std::clock();
  summarize(job, *simulate_step(job));
  return static_cast<double>(std::clock() - begin);
}

}  // namespace

TEST_CASE("a step that outlasts simulated time is refused where its sizes stand") {
  const std::string length = refusal({"training.sequence_length=100000000"});
  CHECK(length.find("s.json:6:15: error: /training: ") != std::string::npos);
  CHECK(length.find("53 days") != std::string::npos);
  CHECK(refusal({"training.micro_batch=32", "training.sequence_length=100000000",
                 "training.global_batch=64"})
            .find("/model: ") != std::string::npos);
  CHECK(refusal({"training.launch_time=\"40d\""}) != "");
  CHECK(refusal({}) == "");
}

TEST_CASE("rates at which nothing would ever arrive are refused by their key") {
  for (const char* fidelity : {"closed_form", "flow"}) {
    const std::string flow = std::string("simulation.fidelity=") + fidelity;
    for (const auto& [key, value] :
         {std::pair{"nic/bandwidth", "\"1bps\""}, std::pair{"intra/bandwidth_per_gpu", "\"1B/s\""},
          std::pair{"gpu/memory_bandwidth", "\"1B/s\""}, std::pair{"nic/efficiency", "1e-300"},
          std::pair{"gpu/peak/bf16", "\"1FLOP/s\""}}) {
      const std::string pointer = std::string("/cluster/node/") + key;
      CAPTURE(pointer);
      CHECK(refusal({flow, pointer + "=" + value}).find(pointer + ": ") != std::string::npos);
    }
  }
}

TEST_CASE("memory that no kernel of a block works on is taken all the same") {
  CHECK(refusal({"parallelism={\"pp\": 8, \"pipeline\": {\"schedule\": \"zb_auto\"}}",
                 "training.global_batch=1", "training.execution=eager", "model.dropout=false"}) ==
        "");
}

TEST_CASE("the time of a simulation grows as layers and buckets do") {
  for (const char* kind : {"allreduce", "zero3", "fsdp"}) {
    CAPTURE(kind);
    const auto of = [&](int layers) {
      Job deep = job(layers, 2);
      deep.plan.data_parallel.kind = kind;
      return seconds(deep);
    };
    // Four times as many: four times as long. Squares would be sixteen.
    CHECK(of(20000) < 9 * of(5000));
  }
  const auto with_buckets = [](int each) {
    Job cut = job(1, 2);
    cut.plan.data_parallel.bucket_size = cut.plan.data_parallel.first_bucket_size = Bytes(each);
    return seconds(cut);
  };
  CHECK(with_buckets(2500) < 9 * with_buckets(10000));
}

TEST_CASE("kernels of ten thousand shapes are found in proportion to their number") {
  const auto of = [](int shapes) {
    plan::Cast cast;
    const std::clock_t begin = std::clock();
    for (int again = 0; again < 2; ++again) {
      for (int i = 0; i < shapes; ++i) {
        models::NamedKernel named;
        named.kernel = Gemm{.m = 1 + i, .n = 8, .k = 8};
        CHECK(cast.kernel_index(named) == static_cast<std::uint32_t>(i));
      }
    }
    CHECK(cast.kernels.size() == static_cast<std::size_t>(shapes));
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  CHECK(of(20'000) < 40 * of(2'000) + 0.2);
}
