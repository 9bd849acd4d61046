#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "sim/cost/profile.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::literals;

namespace {

CollectiveLaw law(CollectiveKind kind, int ranks, int servers, double a_us, double gigabytes,
                  double c_us) {
  CollectiveLaw made;
  made.kind = kind;
  made.ranks = ranks;
  made.servers = servers;
  made.start = Seconds(a_us * 1e-6);
  made.bandwidth = BytesPerSecond(gigabytes * 1e9);
  made.per_sqrt_MB = Seconds(c_us * 1e-6);
  made.from.basis = Basis::interpolated;
  return made;
}

Profile a100() {
  Profile profile;
  profile.collectives = {law(CollectiveKind::all_reduce, 8, 1, 43, 143, 25.8)};
  profile.collective_channels = 24;
  profile.point_to_point_channels = 2;
  PointToPointLaw near;
  near.start = Seconds(13.7e-6);
  near.bandwidth = 289_GBps;
  near.from.basis = Basis::measured;
  profile.point_to_point = {near};
  return profile;
}

GroupShape shape(int ranks, int servers = 1) {
  return {.ranks = ranks,
          .servers = servers,
          .ranks_per_server = ranks / servers,
          .intra_bandwidth = 300_GBps,
          .inter_bandwidth = 90_GBps,
          .intra_latency = Duration(2'000'000),
          .inter_latency = Duration(5'000'000)};
}

double seconds(const MessageTerms& terms) {
  return (terms.latency + terms.wire_bytes / terms.bandwidth).count();
}

double seconds(const Profile& profile, CollectiveKind kind, std::int64_t bytes,
               const GroupShape& group) {
  return seconds(fitted_message_cost(profile)->collective(kind, Bytes(bytes), group));
}

bool near(double a, double b) {
  return std::abs(a - b) <= 1e-14 * std::abs(b);
}

}  // namespace

TEST_CASE("latency and wire bytes are exactly the law") {
  const auto cost = fitted_message_cost(a100());
  for (const std::int64_t bytes :
       {1LL, 7LL, 4'096LL, 1'000'003LL, 100'000'000LL, 17'179'869'184LL}) {
    const double size = static_cast<double>(bytes);
    const MessageTerms terms = cost->collective(CollectiveKind::all_reduce, Bytes(bytes), shape(8));
    CHECK(near(seconds(terms), 43e-6 + size / 143e9 + 25.8e-6 * std::sqrt(size / 1e6)));
    CHECK(near(terms.latency.count(), 43e-6 + 25.8e-6 * std::sqrt(size / 1e6)));
    CHECK(terms.wire_bytes == Bytes((14 * bytes + 7) / 8));
    CHECK(terms.basis == Basis::interpolated);
    CHECK(terms.channels == 24);
  }
}

TEST_CASE("an empty buffer takes the start of the law, one rank takes nothing") {
  const auto cost = fitted_message_cost(a100());
  CHECK(near(seconds(cost->collective(CollectiveKind::all_reduce, Bytes(0), shape(8))), 43e-6));
  const MessageTerms alone = cost->collective(CollectiveKind::all_reduce, 1_GiB, GroupShape{});
  CHECK(seconds(alone) == 0);
  CHECK(alone.wire_bytes == Bytes(0));
  CHECK(alone.channels == 0);
}

TEST_CASE("another group size keeps the start and scales with the bytes on the wire") {
  const MessageTerms four = fitted_message_cost(a100())->collective(CollectiveKind::all_reduce,
                                                                    Bytes(8'000'000), shape(4));
  // 1.5 S cross an edge instead of 1.75 S.
  const double ratio = 1.5 / 1.75;
  CHECK(near(seconds(four), 43e-6 + ratio * 8e6 / 143e9 + std::sqrt(ratio * 8) * 25.8e-6));
  CHECK(four.wire_bytes == Bytes(12'000'000));
  CHECK(four.basis == Basis::analytic);
}

TEST_CASE("the nearest group size is taken, the larger of two") {
  Profile profile = a100();
  profile.collectives.push_back(law(CollectiveKind::all_reduce, 4, 1, 20, 200, 0));
  CHECK(near(seconds(profile, CollectiveKind::all_reduce, 0, shape(4)), 20e-6));
  CHECK(near(seconds(profile, CollectiveKind::all_reduce, 0, shape(5)), 20e-6));
  CHECK(near(seconds(profile, CollectiveKind::all_reduce, 0, shape(6)), 43e-6));
  CHECK(near(seconds(profile, CollectiveKind::all_reduce, 0, shape(2)), 20e-6));
}

TEST_CASE("all-gather and reduce-scatter without a law are the halves of a ring all-reduce") {
  const Profile profile = a100();
  for (const int ranks : {2, 4, 8}) {
    for (const std::int64_t bytes : {0LL, 65'536LL, 800'000'000LL}) {
      const double whole = seconds(profile, CollectiveKind::all_reduce, bytes, shape(ranks));
      const double gather = seconds(profile, CollectiveKind::all_gather, bytes, shape(ranks));
      CHECK(near(2 * gather, whole));
      CHECK(seconds(profile, CollectiveKind::reduce_scatter, bytes, shape(ranks)) == gather);
    }
  }
  const MessageTerms terms =
      fitted_message_cost(profile)->collective(CollectiveKind::all_gather, Bytes(800), shape(8));
  CHECK(terms.wire_bytes == Bytes(700));
  CHECK(terms.basis == Basis::analytic);
}

TEST_CASE("a broadcast without a law runs at the rate of the ring all-reduce's wire") {
  // 1.75 S take S / 143 GB/s on the wire, so S takes S / 250.25 GB/s.
  const MessageTerms terms = fitted_message_cost(a100())->collective(CollectiveKind::broadcast,
                                                                     Bytes(1'000'000), shape(8));
  CHECK(near(terms.bandwidth.count(), 250.25e9));
  CHECK(terms.wire_bytes == Bytes(1'000'000));
  CHECK(near(terms.latency.count(), 21.5e-6 + 25.8e-6 / 1.75));
}

TEST_CASE("a law of its own goes before half of an all-reduce") {
  Profile profile = a100();
  profile.collectives.push_back(law(CollectiveKind::all_gather, 8, 1, 10, 250, 1));
  const MessageTerms terms = fitted_message_cost(profile)->collective(CollectiveKind::all_gather,
                                                                      Bytes(1'000'000), shape(8));
  CHECK(near(seconds(terms), 10e-6 + 1e6 / 250e9 + 1e-6));
  CHECK(terms.basis == Basis::interpolated);
}

TEST_CASE("a law stands in for its twin, and before it what was measured on as many ranks") {
  Profile profile = a100();
  profile.collectives.push_back(law(CollectiveKind::reduce_scatter, 8, 1, 10, 250, 0));
  CHECK(near(seconds(profile, CollectiveKind::all_gather, 1'000'000, shape(8)), 10e-6 + 4e-6));
  profile.collectives.push_back(law(CollectiveKind::all_reduce, 4, 1, 20, 100, 0));
  CHECK(near(seconds(profile, CollectiveKind::all_gather, 1'000'000, shape(4)), 10e-6 + 5e-6));
}

TEST_CASE("an all-to-all without a law runs at the rate of the rings") {
  // 1.75 S take S / 143 GB/s on the wire of a ring, 0.875 S half of it.
  const double size = 1e9;
  const double inside = 25.8e-6 / 2 * std::sqrt(1e3);
  CHECK(near(seconds(a100(), CollectiveKind::all_to_all, 1'000'000'000, shape(8)),
             21.5e-6 + inside + size / 286e9));
  // Over two servers half of it stays inside, 1/2 S leaves a rank at an eighth of 90 GB/s.
  CHECK(near(seconds(a100(), CollectiveKind::all_to_all, 1'000'000'000, shape(16, 2)),
             21.5e-6 + inside / std::sqrt(2) + 8 * 5e-6 + size / 2 / (90e9 / 8)));
}

TEST_CASE("below the sizes of a law a collective starts no faster than any") {
  Profile profile;
  profile.collectives = {law(CollectiveKind::all_gather, 8, 1, 1, 200, 0)};
  profile.collectives[0].least = Bytes(1'000'000);
  profile.collective_start = CollectiveStart{Seconds(20e-6), Seconds(0), {}};
  CHECK(near(seconds(profile, CollectiveKind::all_gather, 1000, shape(8)), 20e-6 + 1e3 / 200e9));
  CHECK(near(seconds(profile, CollectiveKind::all_gather, 1'000'000, shape(8)), 1e-6 + 5e-6));
}

TEST_CASE("a tree of reducing switches joins servers, a ring the others") {
  Profile profile = a100();
  const double size = 1e9;
  // Two hops of 5 us for either; 30/16 S at 90 GB/s.
  const double start = 43e-6 + 25.8e-6 * std::sqrt(1e3);
  CHECK(near(seconds(profile, CollectiveKind::all_reduce, 1'000'000'000, shape(16, 2)),
             start + 10e-6 + 1.875 * size / 90e9));
  profile.collectives[0].in_switch = true;
  CHECK(near(seconds(profile, CollectiveKind::all_reduce, 1'000'000'000, shape(16, 2)),
             start + 10e-6 + size / 90e9 / 0.92));
  CHECK(near(seconds(profile, CollectiveKind::all_reduce, 1'000'000'000, shape(32, 4)),
             start + 20e-6 + 2 * size / 90e9 / 0.92));
}

TEST_CASE("a reduction in the switch moves (n+1)/n of the buffer and has no halves") {
  Profile profile;
  profile.collectives = {law(CollectiveKind::all_reduce, 8, 1, 36, 200, 0)};
  profile.collectives[0].in_switch = true;
  const auto cost = fitted_message_cost(profile);
  const MessageTerms eight = cost->collective(CollectiveKind::all_reduce, Bytes(8'000), shape(8));
  CHECK(eight.wire_bytes == Bytes(9'000));
  CHECK(near(eight.bandwidth.count(), 225e9));
  const MessageTerms two = cost->collective(CollectiveKind::all_reduce, Bytes(8'000), shape(2));
  CHECK(near(seconds(two), 36e-6 + 12e3 / 225e9));
  // The closed form: 7 hops of 2 us, 7/8 S at 300 GB/s.
  CHECK(near(seconds(cost->collective(CollectiveKind::all_gather, Bytes(8'000), shape(8))),
             14e-6 + 7e3 / 300e9));
}

TEST_CASE("bus bandwidth never exceeds the links of the server at hand") {
  GroupShape slow = shape(8);
  slow.intra_bandwidth = 50_GBps;
  const Profile profile = a100();
  for (const CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::all_gather}) {
    for (const BytesPerSecond links : {50_GBps, 300_GBps}) {
      GroupShape group = shape(8);
      group.intra_bandwidth = links;
      for (double size = 1e3; size < 1e11; size *= 10) {
        const auto bytes = static_cast<std::int64_t>(size);
        const double wire = (kind == CollectiveKind::all_reduce ? 2 : 1) * 7.0 / 8 * size;
        CHECK(wire / seconds(profile, kind, bytes, group) <= links.count());
      }
    }
  }
  const MessageTerms limited =
      fitted_message_cost(profile)->collective(CollectiveKind::all_reduce, 1_GiB, slow);
  CHECK(near(limited.bandwidth.count(), 50e9));
  CHECK(limited.basis == Basis::analytic);
}

TEST_CASE("over several servers the law prices the inside and the closed form the rest") {
  const Profile profile = a100();
  const double size = 1e9;
  const double start = 43e-6 + 25.8e-6 * std::sqrt(1e3);
  // Two servers: a ring with two hops of 5 us; 30/16 S / 90 GB/s between beats S / 143 GB/s inside.
  CHECK(near(seconds(profile, CollectiveKind::all_reduce, 1'000'000'000, shape(16, 2)),
             start + 10e-6 + 1.875 * size / 90e9));
  GroupShape fast = shape(16, 2);
  fast.inter_bandwidth = 1000_GBps;
  CHECK(near(seconds(profile, CollectiveKind::all_reduce, 1'000'000'000, fast),
             start + 10e-6 + size / 143e9));
  // One rank per server: nothing inside but the start.
  CHECK(near(seconds(profile, CollectiveKind::all_reduce, 1'000'000'000, shape(2, 2)),
             start + 10e-6 + size / 90e9));
}

// As H800 beside an H100's law: NVLink of 50 GB/s, and NICs that would carry 90.
TEST_CASE("over several servers the inside is no faster than the links at hand, either") {
  GroupShape group = shape(16, 2);
  group.intra_bandwidth = 50_GBps;
  for (const CollectiveKind kind : {CollectiveKind::all_gather, CollectiveKind::reduce_scatter}) {
    const MessageTerms terms =
        fitted_message_cost(a100())->collective(kind, Bytes(1'600'000'000), group);
    CHECK((terms.wire_bytes / terms.bandwidth).count() == about(1.5e9 / 50e9));
  }
  const MessageTerms reduced = fitted_message_cost(a100())->collective(CollectiveKind::all_reduce,
                                                                       Bytes(1'600'000'000), group);
  CHECK((reduced.wire_bytes / reduced.bandwidth).count() == about(2.8e9 / 50e9));
}

TEST_CASE("a law of several servers goes before the rules") {
  Profile profile = a100();
  profile.collectives.push_back(law(CollectiveKind::all_reduce, 16, 2, 41, 128, 31.5));
  CHECK(near(seconds(profile, CollectiveKind::all_reduce, 4'000'000, shape(16, 2)),
             41e-6 + 4e6 / 128e9 + 63e-6));
}

TEST_CASE("a profile without laws is the closed form") {
  const auto fitted = fitted_message_cost(Profile{});
  const auto closed = closed_form_message_cost();
  for (const CollectiveKind kind :
       {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::broadcast,
        CollectiveKind::all_to_all, CollectiveKind::reduce_scatter}) {
    for (const GroupShape& group : {shape(8), shape(16, 2), shape(4, 4), shape(24, 3)}) {
      CHECK(seconds(fitted->collective(kind, 64_MiB, group)) ==
            seconds(closed->collective(kind, 64_MiB, group)));
    }
  }
  CHECK(seconds(fitted->point_to_point(64_MiB, shape(2))) ==
        seconds(closed->point_to_point(64_MiB, shape(2))));
}

TEST_CASE("fitted messages never get faster as the buffer grows") {
  Profile profile = a100();
  profile.collectives.push_back(law(CollectiveKind::all_reduce, 16, 2, 41, 128, 31.5));
  const auto cost = fitted_message_cost(profile);
  for (const GroupShape& group : {shape(2), shape(8), shape(16, 2), shape(32, 4), shape(8, 8)}) {
    for (const CollectiveKind kind :
         {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::broadcast}) {
      double before = 0;
      for (std::int64_t bytes = 0; bytes < 3'000'000; bytes += 9'973) {
        const double now = seconds(cost->collective(kind, Bytes(bytes), group));
        CHECK(now > before);
        before = now;
      }
    }
  }
}

TEST_CASE("starting a collective is the least latency where no law of its kind was measured") {
  Profile profile;
  CollectiveStart start;
  start.start = Seconds(10e-6);
  start.per_step = Seconds(3e-6);
  start.from.basis = Basis::analytic;
  profile.collective_start = start;
  const auto latency = [&](CollectiveKind kind, const GroupShape& group) {
    return fitted_message_cost(profile)->collective(kind, Bytes(1024), group).latency.count();
  };
  // Hops of 2 us are less than steps of 3 us and a start of 10 us.
  CHECK(near(latency(CollectiveKind::all_gather, shape(8)), 10e-6 + 7 * 3e-6));
  CHECK(near(latency(CollectiveKind::all_reduce, shape(8)), 10e-6 + 14 * 3e-6));
  // Steps between servers are not known, those inside are.
  CHECK(near(latency(CollectiveKind::all_reduce, shape(16, 2)), 10e-6 + 14 * 3e-6));
  // A network that says its own start is believed: 2 hops of a tree between two servers beside it.
  GroupShape told = shape(16, 2);
  told.start = Duration(7'000'000);
  CHECK(near(latency(CollectiveKind::all_reduce, told),
             7e-6 + 2 * std::chrono::duration_cast<Seconds>(told.inter_latency).count()));
  // Slower links keep their hops.
  profile.collective_start->start = Seconds(1e-6);
  profile.collective_start->per_step = Seconds(1e-6);
  CHECK(near(latency(CollectiveKind::all_gather, shape(8)), 7 * 2e-6));
  // A law of the kind knows better; half of an all-reduce does not.
  profile = a100();
  profile.collective_start = start;
  const double root = 25.8e-6 * std::sqrt(1024 / 1e6);
  CHECK(near(latency(CollectiveKind::all_reduce, shape(8)), 43e-6 + root));
  profile.collective_start->start = Seconds(40e-6);
  CHECK(near(latency(CollectiveKind::all_gather, shape(8)), 40e-6 + 7 * 3e-6));
  CHECK(near(latency(CollectiveKind::all_gather, shape(1)), 0));
}

TEST_CASE("a send takes the law of its medium, and no more than the path has") {
  const auto cost = fitted_message_cost(a100());
  const MessageTerms near_by = cost->point_to_point(Bytes(289'000'000), shape(2));
  CHECK(near(seconds(near_by), 13.7e-6 + 1e-3));
  CHECK(near_by.channels == 2);
  CHECK(near_by.basis == Basis::measured);
  const MessageTerms far = cost->point_to_point(Bytes(90'000'000), shape(2, 2));
  CHECK(near(seconds(far), 5e-6 + 1e-3));
  CHECK(far.basis == Basis::analytic);
  GroupShape slow = shape(2);
  slow.intra_bandwidth = 100_GBps;
  CHECK(near(seconds(cost->point_to_point(Bytes(100'000'000), slow)), 13.7e-6 + 1e-3));
}

TEST_CASE("a protocol that was chosen takes longer by what NCCL expects of it") {
  const auto cost = fitted_message_cost(a100());
  GroupShape group = shape(8);
  group.nccl = nccl::Machine{};
  const auto time = [&](std::int64_t bytes, const collective::Choice& choice) {
    return seconds(cost->collective(CollectiveKind::all_reduce, choice, Bytes(bytes), group));
  };
  for (const std::int64_t bytes : {0, 64, 65'536, 4'194'304, 1'073'741'824}) {
    const auto choices = nccl_choices(CollectiveKind::all_reduce, nullptr, Bytes(bytes), group);
    const double own = time(bytes, {});
    CHECK(near(time(bytes, {nullptr, choices.front().protocol}), own));
    double longest = own;
    for (const nccl::Choice& choice : choices)
      longest = std::max(longest, time(bytes, {nullptr, choice.protocol}));
    CHECK(longest > own);
  }
  // 1 GiB by LL: 1/2 of the line, held to 87.7 of 300 GB/s.
  const double share = time(1 << 30, {nullptr, nccl::Protocol::ll}) / time(1 << 30, {});
  CHECK((share > 3.3 && share < 3.5));
  // Beside an algorithm, of that algorithm.
  const collective::AlgorithmEntry* tree = collective::find_algorithm("tree");
  CHECK(near(time(64, {tree, nccl::Protocol::ll}), time(64, {tree, {}})));
  CHECK(time(1 << 30, {tree, nccl::Protocol::ll}) > 2 * time(1 << 30, {tree, {}}));
}

TEST_CASE("a small buffer holds fewer multiprocessors") {
  const auto cost = fitted_message_cost(a100());
  GroupShape group = shape(8);
  const auto channels = [&](std::int64_t bytes) {
    return cost->collective(CollectiveKind::all_gather, Bytes(bytes), group).channels;
  };
  CHECK(channels(1024) == 24);  // of GPUs without NCCL the profile's
  group.nccl = nccl::Machine{};
  CHECK(channels(1024) == 1);
  CHECK(channels(1 << 30) == 24);
}
