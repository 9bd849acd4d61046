// Whatever number stands in a profile, it is refused by its name or every cost of it can be
// simulated.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "sim/cost/host_copies.h"
#include "sim/cost/profile_json.h"
#include "sim/json/parse.h"
#include "sim/json/reader.h"
#include "tests/support/rooms.h"

using namespace trainyard;
using namespace trainyard::literals;

namespace {

// Reads a profile; problems as "pointer: message".
Profile read(const json::Value& document, std::vector<std::string>& problems) {
  std::vector<Diagnostic> diagnostics;
  Profile profile;
  json::read_object(document, "", profile, diagnostics);
  for (const Diagnostic& d : diagnostics)
    problems.push_back(d.pointer + ": " + d.message);
  return profile;
}

// A shipped profile, and beside it what only calibrated ones have.
json::Value document() {
  std::ifstream file(fmt::format("{}/configs/profiles/h100-sxm5-80gb.json", TRAINYARD_SOURCE_DIR));
  std::stringstream text;
  text << file.rdbuf();
  std::vector<Diagnostic> diagnostics;
  json::Value shipped = json::parse_text(text.str(), "p.json", diagnostics);
  const json::Value from = *json::find(shipped, "/launch/from");
  const auto add = [&](const char* pointer, const char* members) {
    json::Value value = json::parse_text(members, "p.json", diagnostics);
    if (value.is(json::Kind::object) && value.find("start") != nullptr) value.set("from", from);
    REQUIRE(json::set(shipped, pointer, std::move(value)));
  };
  add("/gemm/0/tiles", R"({"multiprocessors": 132, "half": 0.8, "smaller": 0.9, "prologue": 200})");
  add("/gemm/0/residuals", R"([{"m": 4096, "n": 4096, "k": 4096, "factor": 1.1}])");
  add("/attention/0/forward_fixed", R"("4us")");
  add("/attention/0/backward_fixed", R"("9us")");
  add("/launch/graph_node", R"("1us")");
  add("/launch/event_record", R"("1us")");
  add("/launch/stream_wait", R"("1us")");
  add("/launch/empty_kernel", R"("1us")");
  add("/collective_start", R"({"start": "7us", "per_step": "1us"})");
  add("/host_copies", R"([{"to_device": true, "pinned": true, "start": "9us",
      "bandwidth": "50GB/s"}])");
  REQUIRE(json::set(shipped, "/host_copies/0/from", from));
  REQUIRE(diagnostics.empty());
  return shipped;
}

using Visit = std::function<void(const std::string& pointer, const json::Value& value)>;
void each_leaf(const json::Value& value, const std::string& pointer, const Visit& visit) {
  for (std::size_t i = 0; i < value.items.size(); ++i)
    each_leaf(value.items[i], pointer + "/" + std::to_string(i), visit);
  for (const json::Member& member : value.members)
    each_leaf(member.value, pointer + "/" + member.key, visit);
  if (value.items.empty() && value.members.empty()) visit(pointer, value);
}

// What the costs of a profile say of work of every kind.
std::vector<Seconds> times(const Profile& profile) {
  const MachinePeaks peaks{.fp32 = 67_TFLOPs,
                           .tf32 = 495_TFLOPs,
                           .fp16 = 989_TFLOPs,
                           .bf16 = 989_TFLOPs,
                           .fp8 = {},
                           .memory_bandwidth = 3350_GBps,
                           .l2 = 50_MiB};
  const auto compute = fitted_compute_cost(profile, peaks);
  std::vector<Seconds> out;
  for (const Kernel& kernel :
       {Kernel(Gemm{.m = 4096, .n = 4096, .k = 4096}),
        Kernel(Gemm{.m = 512, .n = 512, .k = 64, .batch = 96}),
        Kernel(Convolution{32, 8, 64, 56, 56, 56, 56, 3, 3, 1, ConvolutionPass::data_gradient}),
        Kernel(MemoryBound{MemoryOp::softmax, Bytes(1 << 20), Bytes(1 << 20)}),
        Kernel(MemoryBound{MemoryOp::rope, Bytes(1 << 30), Bytes(1 << 30)})}) {
    out.push_back(compute->time(kernel).time);
  }
  const auto messages = fitted_message_cost(profile);
  const auto add = [&out](const MessageTerms& terms) {
    out.push_back(terms.latency + terms.wire_bytes / terms.bandwidth);
  };
  for (const int servers : {1, 2}) {
    const GroupShape group{8 * servers,       servers,          8, 450_GBps, 50_GBps,
                           Duration(1000000), Duration(1000000)};
    for (const auto kind : {CollectiveKind::all_reduce, CollectiveKind::all_gather,
                            CollectiveKind::reduce_scatter, CollectiveKind::all_to_all})
      add(messages->collective(kind, 1_GiB, group));
    add(messages->point_to_point(1_GiB, group));
  }
  add(host_transfer_terms(HostTransfer::to_device, 1_GiB, 50_GBps, profile.host_copies));
  out.push_back(profile.launch);
  return out;
}

}  // namespace

TEST_CASE("every number of a profile at its extremes is refused by name, or can be simulated") {
  const json::Value whole = document();
  std::vector<std::string> none;
  read(whole, none);
  REQUIRE(none == std::vector<std::string>{});
  constexpr std::array kNumbers = {"0",    "-1",  "1e308", "1e-320", "1e-300",     "1e-9",
                                   "1e-3", "1.5", "1e9",   "1e18",   "2147483647", "9e18"};
  int refused = 0, taken = 0;
  each_leaf(whole, "", [&](const std::string& pointer, const json::Value& value) {
    const bool is_quantity = value.is(json::Kind::string) && !value.text.empty() &&
                             value.text[0] >= '0' && value.text[0] <= '9';
    if (!is_quantity && !value.is(json::Kind::number)) return;
    if (pointer.find("/from/") != std::string::npos) return;
    for (const std::string number : kNumbers) {
      const std::size_t unit = value.text.find_first_not_of("0123456789.");
      json::Value changed = whole, other = value;
      other.text = number + (is_quantity ? value.text.substr(unit) : "");
      REQUIRE(json::set(changed, pointer, other));
      CAPTURE(pointer);
      CAPTURE(other.text);
      std::vector<std::string> problems;
      const Profile profile = read(changed, problems);
      const std::string section = pointer.substr(0, pointer.rfind('/'));
      for (const std::string& problem : problems)
        CHECK(problem.rfind(section, 0) == 0);
      ++(problems.empty() ? taken : refused);
      if (!problems.empty()) continue;
      for (const Seconds time : times(profile)) {
        CHECK(time.count() >= 0);
        CHECK(time.count() < 2e6);  // simulated time ends at 4e6
      }
    }
  });
  CHECK(refused > 300);
  CHECK(taken > 100);
}

TEST_CASE("a quantity out of its range is told in its unit") {
  json::Value changed = document();
  REQUIRE(json::set(changed, "/launch/time", json::Value::of("2000h")));
  REQUIRE(json::set(changed, "/collectives/0/bandwidth", json::Value::of("1e30GB/s")));
  std::vector<std::string> problems;
  read(changed, problems);
  CHECK(problems ==
        std::vector<std::string>{
            "/collectives/0/bandwidth: expected at least 1KB/s and at most 1000000TB/s, got "
            "\"1e30GB/s\"",
            "/launch/time: expected at least 0 and at most 1s, got \"2000h\""});
}

TEST_CASE("two residuals of one convolution are refused") {
  const char* row = R"({"pass": "forward", "batch": 4, "in_channels": 64, "out_channels": 32,
      "in_height": 56, "in_width": 56, "out_height": 56, "out_width": 56, "kernel_height": 3,
      "kernel_width": 1, "factor": 1.2})";
  std::vector<Diagnostic> diagnostics;
  const json::Value value = json::parse_text(row, "p.json", diagnostics);
  json::Value rows = json::Value::array();
  rows.append(value);
  json::Value changed = document();
  std::vector<std::string> problems;
  REQUIRE(json::set(changed, "/convolution/0/residuals", rows));
  read(changed, problems);
  CHECK(problems == std::vector<std::string>{});
  rows.append(value);
  REQUIRE(json::set(changed, "/convolution/0/residuals", rows));
  read(changed, problems);
  CHECK(problems == std::vector<std::string>{
                        "/convolution: law 0 has two residuals of batch 4, 64 to 32 channels, "
                        "kernel 3x1"});
}
