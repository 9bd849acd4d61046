#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "sim/cost/profile_json.h"
#include "sim/json/parse.h"
#include "sim/json/reader.h"
#include "tests/support/about.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::literals;

namespace {

const std::string kFrom =
    R"("from": {"source": "a paper", "machine": "a GPU", "date": "2024", "samples": "three",
                "residual": "MAPE 5 %", "basis": "interpolated"})";

struct Read {
  Profile profile;
  std::vector<std::string> problems;  // "pointer: message"
};

// Reads a profile with these members.
Read read(const std::string& members) {
  std::vector<Diagnostic> diagnostics;
  const json::Value document = json::parse_text(
      R"({"name": "p", "gpu": "g")" + (members.empty() ? "" : ", " + members) + "}", "p.json",
      diagnostics);
  Read result;
  json::read_object(document, "", result.profile, diagnostics);
  for (const Diagnostic& d : diagnostics)
    result.problems.push_back(d.pointer + ": " + d.message);
  return result;
}

bool mentions(const Read& result, const std::string& text) {
  for (const std::string& problem : result.problems) {
    if (problem.find(text) != std::string::npos) return true;
  }
  return false;
}

std::string gemm(const std::string& dtype, const std::string& exponent = "1.5") {
  return R"({"dtype": ")" + dtype + R"(", "fixed": "5us", "compute_efficiency": 0.7,
             "memory_efficiency": 0.8, "exponent": )" +
         exponent + ", " + kFrom + "}";
}

std::string cost_of(const std::string& kind, const std::string& more = "") {
  return R"({"kind": ")" + kind + R"(", "ranks": 8, "servers": 1, "start": "43us",
             "bandwidth": "143GB/s", "per_sqrt_MB": "25.8us", )" +
         more + kFrom + "}";
}

}  // namespace

TEST_CASE("a profile of every kind of law is read") {
  const Read result = read(
      R"("gemm": [)" + gemm("fp16") + R"(], "batched_gemm": {"efficiency": 0.6, )" + kFrom +
      R"(}, "attention": {"forward": 0.7, "backward": 0.6, )" + kFrom +
      R"(}, "convolution": [{"dtype": "fp16", "efficiency": 0.5, "kernel_3x3": 1.5,
           "few_channels": 0.2, "data_gradient": 0.8, "weight_gradient": 0.9, )" +
      kFrom +
      R"(}], "memory": [{"op": "rms-norm", "fixed": "2us", "efficiency": 0.4, "l2_speedup": 2, )" +
      kFrom + R"(}], "collectives": [)" + cost_of("all-gather") +
      R"(], "point_to_point": [{"same_server": false, "start": "20.2us", "bandwidth": "36GB/s", )" +
      kFrom + R"(}], "channels": {"collective": 24, "point_to_point": 2, )" + kFrom +
      R"(}, "launch": {"time": "5.9us", )" + kFrom + "}");
  CHECK(result.problems.empty());
  const Profile& p = result.profile;
  CHECK(p.name == "p");
  CHECK(p.gpu == "g");
  REQUIRE(p.gemm.size() == 1);
  CHECK(p.gemm[0].dtype == Dtype::fp16);
  CHECK(p.gemm[0].fixed.count() == about(5e-6));
  CHECK(p.gemm[0].exponent == 1.5);
  CHECK(p.gemm[0].from.source == "a paper");
  CHECK(p.gemm[0].from.basis == Basis::interpolated);
  CHECK(p.batched_gemm_efficiency == 0.6);
  REQUIRE(p.attention.size() == 1);  // an object stands for a list of one
  CHECK(p.attention[0].backward == 0.6);
  CHECK(p.convolution.at(0).weight_gradient == 0.9);
  CHECK(p.memory.at(0).op == MemoryOp::rms_norm);
  CHECK(p.memory.at(0).l2_speedup == 2);
  CHECK(p.collectives.at(0).kind == CollectiveKind::all_gather);
  CHECK(p.collectives.at(0).bandwidth == 143_GBps);
  CHECK(p.collectives.at(0).per_sqrt_MB.count() == about(25.8e-6));
  CHECK_FALSE(p.point_to_point.at(0).same_server);
  CHECK(p.collective_channels == 24);
  CHECK(p.launch.count() == about(5.9e-6));
  CHECK(p.launch_from.samples == "three");
}

TEST_CASE("a profile may have no law at all") {
  const Read result = read("");
  CHECK(result.problems.empty());
  CHECK(result.profile.attention.empty());
}

TEST_CASE("a law without provenance is refused") {
  const Read result = read(R"("memory": [{"op": "softmax", "fixed": "2us", "efficiency": 0.4}])");
  CHECK(mentions(result, "/memory/0/from"));
  CHECK(mentions(read(R"("launch": {"time": "5us", "from": {"source": "", "machine": "m",
      "date": "2024", "samples": "s", "residual": "r", "basis": "measured"}})"),
                 "/launch/from/source: may not be empty"));
}

TEST_CASE("numbers out of their range, wrong units and wrong names are refused") {
  CHECK(mentions(read(R"("gemm": [)" + gemm("fp16", "0.5") + "]"), "/gemm/0/exponent"));
  CHECK(mentions(read(R"("gemm": [)" + gemm("fp16", "9") + "]"), "/gemm/0/exponent"));
  CHECK(mentions(read(R"("gemm": [)" + gemm("fp17") + "]"), "/gemm/0/dtype"));
  CHECK(mentions(read(R"("launch": {"time": 5, )" + kFrom + "}"), "/launch/time"));
  CHECK(mentions(read(R"("launch": {"time": "-5us", )" + kFrom + "}"), "/launch/time"));
  CHECK(mentions(read(R"("lauch": {})"), "/lauch: unknown key"));
  CHECK(
      mentions(read(R"("collectives": [)" + cost_of("all-reduced") + "]"), "/collectives/0/kind"));
}

TEST_CASE("two laws for one case and an in-switch gather are refused") {
  CHECK(mentions(read(R"("gemm": [)" + gemm("fp16") + "," + gemm("fp16") + "]"),
                 "/gemm: laws 0 and 1 are for the same case"));
  CHECK(read(R"("gemm": [)" + gemm("fp16") + "," + gemm("bf16") + "]").problems.empty());
  CHECK(
      mentions(read(R"("collectives": [)" + cost_of("all-gather", R"("in_switch": true, )") + "]"),
               "/collectives/0/in_switch"));
  CHECK(read(R"("collectives": [)" + cost_of("all-reduce", R"("in_switch": true, )") + "]")
            .problems.empty());
}

TEST_CASE("ranges the wrong way round and two residuals of one shape are refused") {
  const auto with = [](const std::string& more) {
    return R"("gemm": [{"dtype": "fp16", "fixed": "5us", "compute_efficiency": 0.7,
               "memory_efficiency": 0.8, "exponent": 2, )" +
           more + kFrom + "}]";
  };
  CHECK(mentions(read(with(R"("m": {"least": 9, "most": 8}, )")), "/gemm/0/m/least"));
  CHECK(mentions(read(with(R"("k": {"least": 8}, )")), "/gemm/0/k/most"));
  CHECK(mentions(read(with(R"("residuals": [{"m": 1, "n": 2, "k": 3, "factor": 11}], )")),
                 "/gemm/0/residuals/0/factor"));
  const std::string row = R"({"m": 1, "n": 2, "k": 3, "factor": 1.1})";
  CHECK(mentions(read(with(R"("residuals": [)" + row + ", " + row + "], ")),
                 "/gemm: law 0 has two residuals of 1x2x3, batch 1"));
  CHECK(mentions(read(R"("collectives": [)" +
                      cost_of("all-gather", R"("least": "2MB", "most": "1MB", )") + "]"),
                 "/collectives/0/least"));
}

TEST_CASE("attention laws of one case are refused, of several head sizes read") {
  const auto law = [](const std::string& more) {
    return R"({"forward": 0.7, "backward": 0.6, )" + more + kFrom + "}";
  };
  const Read several = read(R"("attention": [)" + law("") + ", " + law(R"("head_size": 64, )") +
                            ", " + law(R"("dtype": "bf16", "causal": false, )") + "]");
  CHECK(several.problems.empty());
  REQUIRE(several.profile.attention.size() == 3);
  CHECK(several.profile.attention[1].head_size == 64);
  CHECK(several.profile.attention[2].dtype == Dtype::bf16);
  CHECK(several.profile.attention[2].causal == false);
  CHECK_FALSE(several.profile.attention[1].causal);
  CHECK(mentions(read(R"("attention": [)" + law("") + ", " + law("") + "]"),
                 "/attention: laws 0 and 1 are for the same case"));
}

TEST_CASE("a profile file that is not there is the user's mistake") {
  CHECK_THROWS_AS(read_profile("no/such/profile.json"), ScenarioError);
}
