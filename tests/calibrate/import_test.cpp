// Logs of other tools become samples, or diagnostics that say which line is wrong.
#include "calibrate/import/import.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "sim/base/random.h"
#include "tests/calibrate/imported.h"
#include "tests/support/rooms.h"

namespace trainyard {
namespace {

using test::messages;

std::string recorded(const std::string& name) {
  std::ifstream file(std::string(TRAINYARD_SOURCE_DIR) + "/tests/calibrate/recorded/" + name);
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

ImportOptions options(const std::string& collective = "") {
  ImportOptions given;
  given.collective = collective;
  return given;
}

Imported nccl(const std::string& text, const ImportOptions& given) {
  return import_nccl_tests(text, "log", given);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

// Samples without the blanks of JSON.
std::vector<std::string> lines(const Imported& imported) {
  std::vector<std::string> texts;
  for (const json::Value& sample : imported.samples) {
    std::string text = json::to_text(sample, -1);
    for (const char* mark : {", ", ": "})
      for (std::size_t at = 0; (at = text.find(mark)) != std::string::npos;)
        text.erase(at + 1, 1);
    texts.push_back(std::move(text));
  }
  return texts;
}

// The row of an all-reduce of 8 ranks: 1 GiB in 4029.4 us.
const std::string kHead =
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time "
    "  "
    "algbw   busbw #wrong\n";
const std::string kFigures = "4029.40  266.48  466.33  0  4016.40  267.34  467.85  0";

ImportOptions eight() {
  ImportOptions given = options("all-reduce");
  given.ranks = 8;
  given.servers = 1;
  given.gpu = "GPU";
  return given;
}

TEST_CASE("A log of one server gives its machine and one sample per row") {
  const Imported imported = nccl(recorded("h100-all-reduce.txt"), options("all-reduce"));
  CHECK(messages(imported) == "");
  REQUIRE(imported.samples.size() == 7);
  const std::string gpu = R"({"name":"NVIDIA H100 80GB HBM3"})";
  std::string gpus = gpu;
  for (int i = 1; i < 8; ++i)
    gpus += "," + gpu;
  CHECK(lines(imported).front() ==
        R"({"kind":"machine","probe":"nccl-tests","gpus":[)" + gpus + "]}");
  CHECK(lines(imported).back() ==
        R"({"kind":"collective","collective":"all-reduce","ranks":8,"servers":1,)"
        R"("bytes":17179869184,"backend":"nccl","time_us":62648})");
}

TEST_CASE("Servers are the different hosts, and a version that NCCL prints is kept") {
  const Imported imported = nccl(recorded("h100-2x8-all-reduce.txt"), options("all-reduce"));
  CHECK(messages(imported) == "");
  REQUIRE(imported.samples.size() == 6);
  CHECK(lines(imported)[0].find(R"("nccl":"2.20.5")") != std::string::npos);
  CHECK(imported.samples[0].find("gpus")->items.size() == 8);
  CHECK(lines(imported)[1] ==
        R"({"kind":"collective","collective":"all-reduce","ranks":16,"servers":2,)"
        R"("bytes":1073741824,"backend":"nccl","time_us":4478.8})");
}

TEST_CASE("An old log without redop is read, and its empty operations are named") {
  const Imported imported = nccl(recorded("a100-broadcast.txt"), options("broadcast"));
  CHECK(imported.samples.size() == 6);
  CHECK(
      messages(imported) ==
      "log:16:1: warning: 1 rows of 0 bytes are left out, for which NCCL does nothing: lines 16\n");
}

TEST_CASE("A bare table needs to be told what it is of") {
  const std::string table = recorded("h100-2x8-all-gather.txt");
  CHECK(messages(nccl(table, {})) ==
        "log: error: the log does not say which collective was measured; add --collective NAME; "
        "the columns fit all-gather, all-to-all or hypercube\n"
        "log: warning: the log does not list its ranks; sizes and bandwidths are those of 16 ranks "
        "alone\n"
        "log: error: the log does not say how many servers took part; add --servers N\n");
  ImportOptions given = options("all-gather");
  given.ranks = 16;
  given.servers = 2;
  given.gpu = "NVIDIA H100 80GB HBM3";
  const Imported imported = nccl(table, given);
  CHECK(messages(imported) == "");
  CHECK(imported.samples.size() == 6);
  given.ranks = 8;
  CHECK(messages(nccl(table, given)).find("--ranks") == std::string::npos);
  CHECK_FALSE(nccl(table, given).ok());  // the bus bandwidth tells
}

TEST_CASE("What the log says and what the options say must agree") {
  ImportOptions given = options("all-reduce");
  given.ranks = 4;
  CHECK(messages(nccl(recorded("h100-all-reduce.txt"), given))
            .find("the log has 8 ranks, but --ranks says 4") != std::string::npos);
  given = options("all-gather");
  CHECK(messages(nccl(recorded("h100-all-reduce.txt"), given))
            .find("log:18:1: error: busbw is 67.04 GB/s") != std::string::npos);
}

TEST_CASE("All layouts of a row give the same sample") {
  const std::string size = "1073741824 268435456 float ";
  const std::string expected =
      R"({"kind":"collective","collective":"all-reduce","ranks":8,"servers":1,)"
      R"("bytes":1073741824,"backend":"nccl","time_us":4029.4})";
  const std::string unchecked = "4029.40 266.48 466.33 N/A 4016.40 267.34 467.85 N/A";
  for (const std::string& row :
       {size + "sum -1 " + kFigures, size + "sum " + kFigures, size + "-1 " + kFigures,
        size + kFigures, size + "sum -1 " + unchecked,
        size + "sum -1 " + kFigures + "  2025-07-01 12:00:00",
        size + "sum -1 4029.40 266.48 466.33 0 N/A N/A N/A N/A",
        size + "sum -1 4029.40 266.48 466.33 0",  // the other direction is blank
        "[1,0]<stdout>:" + size + "sum -1 " + kFigures, " 0:   " + size + "sum -1 " + kFigures,
        "\x1b[1m" + size + "\x1b[0m sum -1 " + kFigures + "\r"}) {
    CAPTURE(row);
    for (const std::string& text : {kHead + row + "\n", row}) {
      const Imported imported = nccl(text, eight());
      CHECK(messages(imported) == "");
      REQUIRE(imported.samples.size() == 2);
      CHECK(lines(imported)[1] == expected);
    }
  }
}

TEST_CASE("The name of the test is taken from where the log has it") {
  const std::string row = kHead + "1073741824 268435456 float sum -1 " + kFigures + "\n";
  ImportOptions given = eight();
  given.collective = "";
  for (const std::string line : {"# Collective test starting: all_reduce_perf\n",
                                 "+ srun ./build/all_reduce_perf_mpi -b 8\n# nThread 1 nGpus 1\n"})
    CHECK(nccl(line + row, given).samples.size() == 2);
  CHECK(messages(nccl("# Collective test starting: alltoallv_perf\n" + row, given))
            .find("samples have no collective for 'alltoallv_perf'") != std::string::npos);
}

TEST_CASE("Several tests in one log are told apart") {
  const std::string one = recorded("h100-all-reduce.txt");
  const std::string two = recorded("h100-2x8-all-reduce.txt");
  const Imported imported = nccl(one + two + one, options("all-reduce"));
  CHECK(messages(imported) == "");
  CHECK(imported.samples.size() == 7 + 6 + 7);
}

TEST_CASE("A row with wrong values is left out and named") {
  const std::string text =
      replaced(recorded("h100-all-reduce.txt"), "67.04      0", "67.04      3");
  const Imported imported = nccl(text, options("all-reduce"));
  CHECK(imported.ok());
  CHECK(imported.samples.size() == 6);
  CHECK(messages(imported) == "log:18:1: warning: left out: 3 wrong values\n");
}

TEST_CASE("Rows that cannot be right are errors with their lines") {
  const auto complaint = [](const std::string& row) {
    const Imported imported = nccl(kHead + row + "\n", eight());
    CHECK_FALSE(imported.ok());
    return messages(imported);
  };
  const std::string size = "1073741824 268435456 float sum -1 ";
  CHECK(complaint(size + "nan 266.48 466.33 0 4016.40 267.34 467.85 0")
            .find("log:2:1: error: 'nan'") == 0);
  CHECK(
      complaint(size + "-4029.40 266.48 466.33 0 4016.40 267.34 467.85 0").find("no measurement") !=
      std::string::npos);
  CHECK(complaint(size + "inf 266.48 466.33 0 4016.40 267.34 467.85 0").find("'inf'") !=
        std::string::npos);
  CHECK(complaint(size + "4029.40 266.48").find("cut off") != std::string::npos);
  CHECK(complaint("10737").find("damaged") != std::string::npos);
  CHECK(complaint("1073741824 268435456 string sum -1 " + kFigures).find("not known") !=
        std::string::npos);
  CHECK(complaint("99999999999999999999 268435456 float sum -1 " + kFigures).find("damaged") !=
        std::string::npos);
  CHECK(complaint("1073741824 1 float sum -1 " + kFigures).find("elements") != std::string::npos);
  CHECK(complaint(size + "0.00 266.48 466.33 0 4016.40 267.34 467.85 0").find("no time") !=
        std::string::npos);
}

TEST_CASE("The host's time is not taken for that of the operation") {
  std::string text = recorded("h100-all-reduce.txt");
  text = replaced(text, "   time   algbw", "cputime   algbw");
  CHECK(messages(nccl(text, options("all-reduce"))).find("--report_cputime") != std::string::npos);
}

TEST_CASE("Columns that have changed places are noticed") {
  const std::string row = "1073741824 268435456 float sum -1 " + kFigures;
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < row.size();) {
    const std::size_t end = std::min(row.find(' ', begin), row.size());
    if (end > begin) words.push_back(row.substr(begin, end - begin));
    begin = end + 1;
  }
  REQUIRE(words.size() == 13);
  for (std::size_t a = 0; a < 8; ++a)
    for (std::size_t b = a + 1; b < 8; ++b) {
      std::vector<std::string> swapped = words;
      std::swap(swapped[a], swapped[b]);
      const std::string text = fmt::format("{}", fmt::join(swapped, " "));
      CAPTURE(text);
      CHECK_FALSE(nccl(kHead + text + "\n", eight()).ok());
    }
  const std::string head =
      replaced(kHead, "time   algbw   busbw #wrong", "algbw time busbw #wrong");
  CHECK(messages(nccl(head + row, eight())).find("log:1:1: error: the columns") == 0);
}

// Nothing that a cut can do invents a sample.
void check_cuts(const std::string& text,
                Imported (*import)(std::string_view, const std::string&, const ImportOptions&),
                const ImportOptions& given) {
  const std::vector<std::string> whole = lines(import(text, "log", given));
  for (std::size_t size = 0; size < text.size(); ++size) {
    const Imported imported = import(std::string_view(text).substr(0, size), "log", given);
    if (!imported.ok()) continue;
    for (const std::string& sample : lines(imported)) {
      CAPTURE(size);
      REQUIRE(std::find(whole.begin(), whole.end(), sample) != whole.end());
    }
  }
}

TEST_CASE("A log that is cut off anywhere gives samples of the whole log, or an error") {
  check_cuts(recorded("h100-2x8-all-gather.txt"), import_nccl_tests, [] {
    ImportOptions given = options("all-gather");
    given.ranks = 16;
    given.servers = 2;
    given.gpu = "GPU";
    return given;
  }());
}

TEST_CASE("Damaged logs never end in a crash, and samples stay JSON") {
  SplitMix64 random(77);
  const std::string text = recorded("h100-all-reduce.txt");
  for (int i = 0; i < 2000; ++i) {
    std::string damaged = text;
    for (std::uint64_t k = 0; k <= random.below(4); ++k)
      damaged[random.below(damaged.size())] = static_cast<char>(random.below(256));
    const Imported imported = nccl(damaged, options("all-reduce"));
    CHECK((!imported.samples.empty() || !imported.ok()));
    for (const json::Value& sample : imported.samples)
      if (const json::Value* time = sample.find("time_us"))
        REQUIRE(json::find_number(*time).value_or(0) > 0);
  }
}

TEST_CASE("A GPU whose name is not UTF-8 is refused") {
  std::string text = recorded("h100-all-reduce.txt");
  text = replaced(text, "NVIDIA H100",
                  "NVIDIA \xff"
                  "100");
  CHECK(messages(nccl(text, options("all-reduce"))).find("not UTF-8") != std::string::npos);
}

TEST_CASE("A log without rows says so") {
  CHECK(
      messages(nccl("", options())) ==
      "log: error: the file has no rows of nccl-tests that can be used; give the file as the tool "
      "has written it (docs/samples.md)\n");
  CHECK(messages(nccl("hello\n\x00\xff", options())).find("no rows") != std::string::npos);
}

}  // namespace
}  // namespace trainyard
