// What published logs of nccl-tests look like: indented, cut, pasted, without the name of the test.
// The tables here are made from a bandwidth, with the roundings of nccl-tests.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "calibrate/import/import.h"
#include "calibrate/import/nccl_kinds.h"
#include "tests/calibrate/imported.h"
#include "tests/support/rooms.h"

namespace trainyard {
namespace {

using test::messages;

std::string without(std::string text, const std::string& what) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos;)
    text.erase(at, what.size());
  return text;
}

ImportOptions on(int servers) {
  ImportOptions given;
  given.servers = servers;
  given.gpu = "GPU";
  return given;
}

const std::string kHead =
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time "
    "  "
    "algbw   busbw #wrong\n";

// A row of fp32 at `rate` GB/s as nccl-tests prints it; `bytes` must be shares of whole elements.
std::string row(const NcclKind& kind, int ranks, std::int64_t bytes, double rate) {
  const double time = static_cast<double>(bytes) / rate * 1e-3;
  const std::string figures = fmt::format("{:.2f} {:.2f} {:.2f} 0", time, rate,
                                          rate * nccl_bus_factor(kind.collective, ranks));
  return fmt::format("{} {} float {} {} {} {}\n", bytes, bytes / 4 / (kind.shares ? ranks : 1),
                     kind.reduces ? "sum" : "none", kind.rooted ? 0 : -1, figures, figures);
}

std::string table(const NcclKind& kind, int ranks) {
  std::string text = kHead;
  for (const double rate : {17.31, 120.07, 411.93})
    text += row(kind, ranks, std::int64_t{ranks} << (rate > 100 ? 24 : 14), rate);
  return text + "# Out of bounds values : 0 OK\n";
}

const NcclKind& kind_named(const std::string& collective) {
  for (const NcclKind& kind : nccl_kinds())
    if (kind.collective == collective) return kind;
  FAIL("no such test");
  return nccl_kinds().front();
}

std::string rank_line(int rank, const std::string& host) {
  return fmt::format("#  Rank {:2} Group  0 Pid {} on {} device {:2} [0x0f] NVIDIA Z1\n", rank,
                     1000 + rank, host, rank % 4);
}

std::string rank_lines(int ranks, int of_a_server) {
  std::string text;
  for (int i = 0; i < ranks; ++i)
    text += rank_line(i, fmt::format("host-{}", i / of_a_server));
  return text;
}

Imported import(const std::string& text, const ImportOptions& given) {
  return import_nccl_tests(text, "log", given);
}

std::string text_of(const json::Value& sample, const std::string& key) {
  const json::Value* value = sample.find(key);
  return value != nullptr ? value->text : "";
}

}  // namespace

TEST_CASE("Every test of nccl-tests becomes samples of its collective") {
  for (const NcclKind& kind : nccl_kinds()) {
    CAPTURE(kind.collective);
    const std::string command = fmt::format("$ ./build/{}_perf -g 8\n", kind.program);
    const Imported imported = import(command + rank_lines(8, 8) + table(kind, 8), {});
    CHECK(messages(imported) == "");
    REQUIRE(imported.samples.size() == 4);
    CHECK(text_of(imported.samples.back(), "collective") == kind.collective);
    CHECK(text_of(imported.samples.back(), "ranks") == "8");
  }
}

TEST_CASE("A table that only one test can have written names it") {
  int named = 0;
  for (const NcclKind& kind : nccl_kinds()) {
    CAPTURE(kind.collective);
    const Imported imported = import(rank_lines(8, 8) + table(kind, 8), {});
    // Which tables look alike: redop, root, and whether count is a share.
    std::string alike;
    int others = 0;
    for (const NcclKind& other : nccl_kinds()) {
      const bool same = other.reduces == kind.reduces && other.rooted == kind.rooted &&
                        other.shares == kind.shares &&
                        nccl_bus_factor(other.collective, 8) == nccl_bus_factor(kind.collective, 8);
      if (same && other.collective != kind.collective) ++others;
    }
    if (others == 0) {
      ++named;
      CHECK(imported.ok());
      CHECK(messages(imported).find(fmt::format("those of {} alone", kind.collective)) !=
            std::string::npos);
      CHECK(text_of(imported.samples.back(), "collective") == kind.collective);
    } else {
      CHECK_FALSE(imported.ok());
      CHECK(messages(imported).find("add --collective NAME; the columns fit ") !=
            std::string::npos);
      CHECK(messages(imported).find(kind.collective) != std::string::npos);
    }
  }
  CHECK(named == 5);
}

TEST_CASE("Two ranks leave all-reduce and send-recv the same bandwidths, so neither is taken") {
  const Imported imported = import(rank_lines(2, 2) + table(kind_named("all-reduce"), 2), {});
  CHECK(messages(imported).find("the columns fit all-reduce or send-recv") != std::string::npos);
}

TEST_CASE("The number of ranks follows from sizes, or from the bandwidths if they tell one apart") {
  for (const int ranks : {3, 4, 6, 8, 16, 24, 48, 72, 96, 128}) {
    CAPTURE(ranks);
    for (const std::string collective : {"all-reduce", "reduce-scatter"}) {
      const Imported imported = import(table(kind_named(collective), ranks), on(1));
      CHECK(imported.ok());
      CHECK(text_of(imported.samples.back(), "ranks") == std::to_string(ranks));
    }
  }
  // At 4,096 ranks one more changes the bandwidth less than its last digit.
  const Imported many = import(table(kind_named("all-reduce"), 4096), on(512));
  CHECK(messages(many).find("does not say how many ranks took part; add --ranks N") !=
        std::string::npos);
}

TEST_CASE("Bandwidths of another number of ranks are refused to the last digit") {
  ImportOptions given = on(1);
  given.collective = "all-reduce";
  given.ranks = 64;
  // 2 x 95/96 and 2 x 63/64 lie half a percent apart.
  CHECK(messages(import(table(kind_named("all-reduce"), 96), given))
            .find("busbw is 815.28 GB/s, but all-reduce of 64 ranks gives 810.99 GB/s") !=
        std::string::npos);
  given.ranks = 96;
  CHECK(messages(import(table(kind_named("all-reduce"), 96), given)) == "");
}

TEST_CASE("A list of ranks that was cut does not count, and --ranks overrules it") {
  const std::string figures = table(kind_named("all-reduce"), 12);
  // The last one alone: the bandwidths tell.
  const Imported last = import(rank_line(11, "c") + figures, on(3));
  CHECK(messages(last).find("the list of ranks is cut: 1 of them is listed; sizes and bandwidths "
                            "are those of 12 ranks alone") != std::string::npos);
  CHECK(text_of(last.samples.back(), "ranks") == "12");
  CHECK(last.samples.front().find("gpus")->items.size() == 4);
  // Servers that are not listed are not guessed.
  ImportOptions given = on(0);
  given.ranks = 12;
  CHECK(messages(import(rank_line(11, "c") + figures, given)).find("add --servers N") !=
        std::string::npos);
  // One that names ranks which the figures do not have.
  CHECK(
      messages(import(rank_line(15, "c") + figures, on(3)))
          .find("up to rank 15, but sizes and bandwidths are those of 12 ranks; add --ranks 12") !=
      std::string::npos);
  given.servers = 3;
  CHECK(import(rank_line(15, "c") + figures, given).ok());
  // Cut at its end: it looks whole.
  const Imported front = import(rank_lines(4, 4) + figures, given);
  CHECK(messages(front).find("lists 4 ranks and --ranks says 12: the list is taken as cut") !=
        std::string::npos);
  CHECK(text_of(front.samples.back(), "ranks") == "12");
  // Whole, and more than the option says.
  CHECK(messages(import(rank_lines(16, 4) + figures, given))
            .find("the log has 16 ranks, but --ranks says 12") != std::string::npos);
}

TEST_CASE("Blanks before what a launcher writes, and before the table, change nothing") {
  const std::string plain = rank_lines(8, 8) + table(kind_named("all-reduce"), 8);
  const std::string expected = samples_text(import(plain, {}).samples);
  REQUIRE(import(plain, {}).samples.size() == 4);
  for (const std::string before : {"   ", "\t", "   [1,0]<stdout>:", "[1,0]<stdout>: ", " 0: ",
                                   "[pod/a-launcher-x/main] ", "node-17: "}) {
    CAPTURE(before);
    std::string text;
    for (std::size_t begin = 0; begin < plain.size();) {
      const std::size_t end = plain.find('\n', begin) + 1;
      text += before + plain.substr(begin, end - begin);
      begin = end;
    }
    CHECK(samples_text(import(text, {}).samples) == expected);
  }
}

TEST_CASE("Comments whose first sign was lost are read") {
  const std::string text =
      "# nThread 1 nGpus 1 minBytes 8\n" + rank_lines(8, 8) + table(kind_named("all-reduce"), 8);
  CHECK(samples_text(import(without(text, "#  Rank  0").insert(31, "   Rank  0"), {}).samples) ==
        samples_text(import(text, {}).samples));
  CHECK(samples_text(import(without(text, "#"), {}).samples) ==
        samples_text(import(text, {}).samples));
}

TEST_CASE("A test that the text before the table names is that of the table") {
  const std::string figures = rank_lines(8, 8) + table(kind_named("all-to-all"), 8);
  for (const std::string line :
       {"$ mpirun -np 8 /opt/nccl-tests/build/alltoall_perf -b 8 -e 8G\n",
        "The result of the `alltoall_perf` benchmark:\n",
        "$ srun all_reduce_perf\nand then\n$ srun ./alltoall_perf_mpi\n\n"}) {
    CAPTURE(line);
    const Imported imported = import(line + figures, {});
    CHECK(messages(imported) == "");
    REQUIRE(imported.samples.size() == 4);
    CHECK(text_of(imported.samples.back(), "collective") == "all-to-all");
  }
  // It belongs to one table, and is no more than a hint.
  const Imported two = import("$ ./alltoall_perf\n" + figures + "# nThread 1\n" + figures, {});
  CHECK_FALSE(two.ok());
  ImportOptions given;
  given.collective = "all-gather";
  const Imported overruled = import("$ ./alltoall_perf\n" + figures, given);
  CHECK(overruled.ok());
  CHECK(text_of(overruled.samples.back(), "collective") == "all-gather");
  CHECK(messages(overruled).find("warning: the log measures all-to-all, but --collective says "
                                 "all-gather") != std::string::npos);
  CHECK_FALSE(import("# Collective test starting: alltoall_perf\n" + figures, given).ok());
}

TEST_CASE("An example whose figures are hidden is called one, once") {
  const std::string hidden(5, 'X'),
      row = fmt::format("268435456 4194304 float none -1 {0} {1} {1} N/A {0} {1} {1} 0\n", hidden,
                        "XX.XX");
  CHECK(messages(import(kHead + row + row + row, {})) ==
        "log:2:1: error: the figures are written over with X: this is an example, no "
        "measurement\n");
}

TEST_CASE("Rows that somebody left out are named") {
  const NcclKind& kind = kind_named("all-reduce");
  const Imported imported =
      import(rank_lines(8, 8) + "$ all_reduce_perf\n" + kHead + row(kind, 8, 1 << 20, 90) +
                 "   ...\n" + row(kind, 8, 1 << 28, 300),
             {});
  CHECK(messages(imported) == "log:12:1: warning: here somebody has left out rows\n");
  CHECK(imported.samples.size() == 3);
}

TEST_CASE("The first hundred mistakes of a file are listed, and that there are more") {
  std::string text = kHead;
  for (int i = 0; i < 5000; ++i)
    text += "1024 256 float sum -1 nan\n";
  const Imported imported = import(text, on(1));
  CHECK_FALSE(imported.ok());
  CHECK(imported.diagnostics.size() == 101);
  CHECK(messages(imported).find("more than 100 mistakes; the others are not listed") !=
        std::string::npos);
}

TEST_CASE("Numbers of ranks and counts that nothing can hold are refused without arithmetic") {
  const std::string figures = table(kind_named("all-reduce"), 8);
  CHECK_FALSE(
      import("# Rank 9223372036854775807 Group 0 Pid 1 on a device 0 [0x0f] Z\n" + figures, {})
          .ok());
  CHECK_FALSE(import(kHead + "9223372036854775807 9223372036854775807 double sum -1 1.0 1.00 1.00 "
                             "0 1.0 1.00 1.00 0\n",
                     on(1))
                  .ok());
}

}  // namespace trainyard
