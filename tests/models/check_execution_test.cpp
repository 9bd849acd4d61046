#include <doctest/doctest.h>

#include <algorithm>

#include "models/transformer/transformer.h"
#include "tests/models/work_support.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

std::vector<std::string> members(const Network& network, const Execution& how) {
  std::vector<std::string> found;
  for (const ExecutionProblem& problem : check_execution(network, how)) {
    found.push_back(problem.member);
  }
  return found;
}

using Members = std::vector<std::string>;

}  // namespace

TEST_CASE("what divides is accepted") {
  CHECK(check_execution(gpt(96, 12288, 96, 50257), execution(1, 2048, 8, true)).empty());
  CHECK(check_execution(llama(126, 16384, 128, 8, 53248, 128256), execution(1, 8192, 8)).empty());
}

// PaLM 540B has one head of keys and values, and twelve tensor-parallel ranks.
TEST_CASE("fewer heads of keys and values than tensor-parallel ranks are held by several") {
  const Transformer network = llama(1, 96, 12, 2, 192, 100);
  CHECK(check_execution(network, execution(1, 16, 4)).empty());
  const auto columns = [&](int tensor) {
    Transformer other = network;
    other.kv_heads = 12;
    return models::layer_parameters(other, tensor) - models::layer_parameters(network, tensor);
  };
  // Twelve heads less those that a rank has, queries aside, of 96 x 8 numbers for each of two.
  CHECK(columns(1) == 2 * (12 - 2) * 8 * 96);
  CHECK(columns(2) == 2 * (6 - 1) * 8 * 96);
  CHECK(columns(4) == 2 * (3 - 1) * 8 * 96);
}

TEST_CASE("a problem names the member to change and both numbers") {
  const auto problems = check_execution(gpt(2, 960, 96, 1000), execution(1, 64, 5));
  REQUIRE(problems.size() == 2);
  CHECK(problems[0].member == "tensor");
  CHECK(problems[0].message ==
        "attention heads (96) must be divisible by the tensor-parallel degree (5)");
  CHECK(problems[1].message ==
        "key/value heads (96) must be divisible by the tensor-parallel degree (5)");
}

TEST_CASE("what cannot be cut is refused, all reasons at once") {
  CHECK(members(llama(2, 96, 12, 3, 192, 100), execution(1, 16, 2)) == Members{"tensor"});
  CHECK(members(gpt(2, 64, 8, 100), execution(1, 18, 4, true)) == Members{"sequence_length"});
  CHECK(members(gpt(2, 64, 8, 100), execution(1, 18, 4, false)).empty());
  CHECK(members(gpt(2, 64, 8, 100), execution(0, 16)) == Members{"micro_batch"});
  CHECK(members(gpt(2, 64, 8, 100), execution(1, 0)) == Members{"sequence_length"});
  CHECK(members(gpt(2, 64, 8, 100), execution(0, 16, 0)) == Members{"micro_batch", "tensor"});
  Transformer network = gpt(2, 64, 8, 100);
  network.max_positions = 8;
  CHECK(members(network, execution(1, 16)) == Members{"sequence_length"});
  network.kv_heads = 3;
  CHECK(members(network, execution(1, 8)) == Members{""});
}

TEST_CASE("sizes whose products leave 64 bits are refused, not wrapped") {
  CHECK(members(gpt(1, std::int64_t{1} << 40, 8, 100), execution(1, 16)) == Members{""});
  CHECK(members(gpt(1, 64, 8, 100), execution(1, std::int64_t{1} << 40)) == Members{""});
  CHECK(members(gpt(std::int64_t{1} << 60, 64, 8, 100), execution(1, 16)) == Members{""});
}
