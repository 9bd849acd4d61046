// Works that jobs share: of one network executed alike, and of no other.
#include "models/families/network_works.h"

#include <doctest/doctest.h>

#include "models/recommender/recommender.h"
#include "tests/models/work_support.h"
#include "tests/support/rooms.h"

using namespace trainyard;

TEST_CASE("one network executed alike has one work, and what differs has its own") {
  NetworkWorks works;
  const Network network = gpt(2, 64, 4, 512), other = gpt(3, 64, 4, 512);
  const auto first = works.of(network, execution(1, 16));
  CHECK(works.of(network, execution(1, 16)) == first);
  CHECK(works.of(network, execution(2, 16)) != first);
  CHECK(works.of(network, execution(1, 16, 2)) != first);
  Execution fused = execution(1, 16);
  fused.kernels.fusion = Fusion::eager;  // no part of the key by which works are sought
  CHECK(works.of(network, fused) != first);
  CHECK(works.of(network, fused) == works.of(network, fused));
  CHECK(works.of(other, execution(1, 16))->chain.size() == first->chain.size() + 1);
  CHECK(works.of(network, execution(1, 16)) == first);
}

TEST_CASE("who does not train drops nothing, and has a work of its own") {
  NetworkWorks works;
  const Network network = gpt(2, 64, 4, 512);
  Execution how = execution(1, 16);
  const auto trained = works.of(network, how);
  how.trains = false;
  const auto run = works.of(network, how);
  CHECK(run != trained);
  CHECK(bytes_of(layer(*trained).forward, MemoryOp::dropout) > 0);
  CHECK(bytes_of(layer(*run).forward, MemoryOp::dropout) == 0);
}

TEST_CASE("replicas share a transformer's work, and divide a recommender's tables") {
  NetworkWorks works;
  Recommender tables;
  tables.dense_features = 13;
  tables.dimension = 16;
  tables.tables = {{.rows = 1000, .count = 8, .lookups = 3}};
  tables.bottom_mlp = {32, 16};
  tables.top_mlp = {64, 1};
  const Network stack = gpt(2, 64, 4, 512), recommender = tables;
  const auto on = [](int replicas) {
    Execution how = execution(8, 16);
    how.replicas = replicas;
    return how;
  };
  CHECK(works.of(stack, on(1)) == works.of(stack, on(4)));
  CHECK(works.of(recommender, on(1)) != works.of(recommender, on(4)));
}
