// Bytes and time of exchanges whose rows share their way, against their closed forms.
#include "sim/cost/routed_exchange.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "sim/cost/profile.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

using namespace trainyard;

namespace {

GroupShape servers_of(int servers, int ranks_per_server) {
  GroupShape shape;
  shape.ranks = servers * ranks_per_server;
  shape.servers = servers;
  shape.ranks_per_server = ranks_per_server;
  shape.intra_bandwidth = BytesPerSecond(200e9);
  shape.inter_bandwidth = BytesPerSecond(45e9 * ranks_per_server);
  shape.intra_latency = std::chrono::microseconds(1);
  shape.inter_latency = std::chrono::microseconds(3);
  return shape;
}

double seconds(const MessageTerms& terms) {
  return (terms.latency + terms.wire_bytes / terms.bandwidth).count();
}

}  // namespace

TEST_CASE("every token sends a row to each other server, and rows move inside for each rank") {
  const auto messages = closed_form_message_cost();
  const Routing routing{256, 8, 8, 4};
  constexpr double kTokens = 4096, kRow = 7168 * 2;
  const Bytes rows(static_cast<std::int64_t>(kTokens * 8 * kRow));
  const GroupShape shape = servers_of(8, 8);
  const SharedRows shared = shared_rows(routing, rows, shape);
  const double servers = parts_visited(routing, 8), ranks = parts_visited(routing, 64);
  CHECK(static_cast<double>(shared.between.count()) ==
        about(kTokens * servers * kRow).within(1e-8));
  CHECK(static_cast<double>(shared.inside.count()) == about(kTokens * ranks * kRow).within(1e-8));

  const MessageTerms terms = hierarchical_all_to_all(*messages, shared, shape);
  // One of a token's servers is the own one in N.
  const double between = kTokens * servers * 7 / 8 * kRow;
  const double inside = kTokens * ranks * 7 / 8 * kRow;
  CHECK(static_cast<double>(terms.wire_bytes.count()) == about(between).within(1e-8));
  CHECK(terms.latency.count() == about(7 * 3e-6).within(1e-12));
  CHECK(seconds(terms) == about(7 * 3e-6 + std::max(between / 45e9, inside / 200e9)));
  // Rows by themselves: 8 x 7/8 of them leave the server.
  const double separate = kTokens * 8 * 7 / 8 * kRow;
  const MessageTerms plain = messages->collective(CollectiveKind::all_to_all, rows, shape);
  CHECK(static_cast<double>(plain.wire_bytes.count()) == about(separate).within(1e-8));
  CHECK(separate / between == about(8 / servers));
}

TEST_CASE("slow links inside a server set the pace when more bytes move there") {
  const auto messages = closed_form_message_cost();
  GroupShape shape = servers_of(2, 8);
  shape.intra_bandwidth = BytesPerSecond(10e9);
  const SharedRows shared{Bytes(16'000'000), Bytes(80'000'000)};
  const MessageTerms terms = hierarchical_all_to_all(*messages, shared, shape);
  CHECK(terms.wire_bytes.count() == 8'000'000);
  CHECK(terms.latency.count() == about(7e-6));
  CHECK(seconds(terms) == about(7e-6 + 70e6 / 10e9));
}

TEST_CASE("one expert per token and one rank per server is the plain all-to-all") {
  const auto messages = closed_form_message_cost();
  const GroupShape shape = servers_of(8, 1);
  const Bytes rows(64 << 20);
  const MessageTerms terms =
      hierarchical_all_to_all(*messages, shared_rows({64, 1, 1, 1}, rows, shape), shape);
  const MessageTerms plain = messages->collective(CollectiveKind::all_to_all, rows, shape);
  CHECK(terms.wire_bytes == plain.wire_bytes);
  CHECK(terms.latency == plain.latency);
  CHECK(terms.bandwidth == plain.bandwidth);
}

TEST_CASE("on one server rows for one rank share their way") {
  const auto messages = closed_form_message_cost();
  const GroupShape shape = servers_of(1, 8);
  const Bytes rows(8 << 20);
  const Routing routing{8, 8, 1, 1};  // every token goes everywhere, once
  const MessageTerms terms =
      hierarchical_all_to_all(*messages, shared_rows(routing, rows, shape), shape);
  CHECK(terms.wire_bytes ==
        messages->collective(CollectiveKind::all_to_all, rows, shape).wire_bytes);
  // Twice as many experts on the same ranks: rows for both of a rank's experts travel once.
  const Routing both{16, 16, 1, 1};
  CHECK(2 * shared_rows(both, rows, shape).inside == rows);
}
