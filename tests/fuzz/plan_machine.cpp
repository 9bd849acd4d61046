// /cluster: shipped servers and described ones, whole and in part, and what joins them.
#include <array>
#include <vector>

#include "tests/fuzz/sketch.h"

namespace trainyard::fuzz {

using json::Value;

namespace {

struct ShippedServer {
  const char* name;
  const char* gpu;
  int gpus;
  bool bf16, fp8, host, resizable, joined;  // joined: it has NICs
};

constexpr std::array<ShippedServer, 6> kServers = {{
    {"dgx-a100-80gb", "a100-sxm4-80gb", 8, true, false, true, true, true},
    {"dgx-a100-40gb", "a100-sxm4-40gb", 8, true, false, true, true, true},
    {"dgx-h100", "h100-sxm5-80gb", 8, true, true, true, true, true},
    {"dgx-h200", "h200-sxm5-141gb", 8, true, true, true, true, true},
    {"dgx-1v", "v100-sxm2-16gb", 8, false, false, false, false, true},
    {"pcie-2x4090", "rtx-4090", 2, true, true, false, false, false},
}};

Value cooling(Sketch& s) {
  Value cooling = Value::object();
  cooling.set("inlet", Value::of(25));
  cooling.set("busy", Value::of(s.draw.between(60, 90)));
  cooling.set("time_constant", Value::of(s.draw.word({"30s", "2ms"})));
  if (!s.draw.chance(50)) return cooling;
  cooling.set("limit", Value::of(s.draw.between(50, 90)));
  cooling.set("throttle", Value::of(s.draw.chance(50)));
  return cooling;
}

Value gpu(Sketch& s) {
  if (s.draw.chance(50)) {
    const char* name = s.draw.word({"a100-sxm4-80gb", "h100-sxm5-80gb", "v100-sxm2-32gb"});
    s.has_fp8 = name[0] == 'h';
    s.has_bf16 = name[0] != 'v';
    return Value::of(name);
  }
  Value peak = Value::object();
  peak.set("fp32", Value::of(s.draw.word({"20TFLOP/s", "1.5TFLOP/s"})));
  peak.set("tf32", Value::of("150TFLOP/s"));
  peak.set("fp16", Value::of("300TFLOP/s"));
  peak.set("bf16", Value::of(s.draw.word({"300TFLOP/s", "70.25TFLOP/s"})));
  s.has_fp8 = s.draw.chance(40);
  if (s.has_fp8) peak.set("fp8", Value::of("600TFLOP/s"));
  if (s.draw.chance(25)) {  // a chip without units of a type
    const std::string without = s.draw.word({"fp32", "tf32", "fp16", "bf16"});
    peak.erase(without);
    s.has_bf16 = without != "bf16";
  }
  Value described = Value::object();
  if (s.draw.chance(50)) described.set("name", Value::of("fuzzer"));
  const bool cpu = s.draw.chance(10);
  if (cpu)
    described.set("kind", Value::of("cpu"));
  else if (s.draw.chance(30))
    described.set("compute_capability", Value::of(s.draw.word({"8.0", "9.0", "7.0"})));
  described.set("memory", Value::of(s.draw.word({"80GB", "24GiB", "8GiB"})));
  described.set("memory_bandwidth", Value::of(s.draw.word({"2TB/s", "900GB/s"})));
  if (s.draw.chance(30)) {
    Value sustained = Value::object();
    for (const json::Member& rate : peak.members)
      if (s.draw.chance(50)) sustained.set(rate.key, Value::of(s.draw.between(1, 8) / 8.0));
    described.set("sustained", std::move(sustained));
  }
  described.set("peak", std::move(peak));
  if (s.draw.chance(50)) described.set("multiprocessors", Value::of(s.draw.between(16, 160)));
  if (s.draw.chance(50)) described.set("l2", Value::of("40MiB"));
  s.has_power = s.draw.chance(50);
  if (s.has_power) {
    Value power = Value::object();
    power.set("idle", Value::of("50W"));
    power.set("busy", Value::of("0.4kW"));
    if (s.draw.chance(50)) power.set("limit", Value::of(s.draw.word({"400W", "250W"})));
    for (const char* kind : {"attention", "memory_bound", "communication"})
      if (s.draw.chance(40)) power.set(kind, Value::of(s.draw.word({"380W", "220W"})));
    described.set("power", power);
    if (s.draw.chance(50)) described.set("cooling", cooling(s));
  }
  if (s.draw.chance(40)) described.set("pcie_bandwidth", Value::of("25GB/s"));
  return described;
}

// GPUs in a circle, and some chords.
Value mesh(Sketch& s) {
  Value pairs = Value::array();
  const auto join = [&](int a, int b) {
    Value pair = Value::object();
    pair.set("a", Value::of(a));
    pair.set("b", Value::of(b));
    if (s.draw.chance(40)) pair.set("links", Value::of(s.draw.between(1, 3)));
    pairs.append(std::move(pair));
  };
  for (int a = 0; a + 1 < s.gpus; ++a)
    join(a, a + 1);
  if (s.gpus > 2) join(0, s.gpus - 1);
  if (s.gpus > 3 && s.draw.chance(50)) join(0, 2);
  return pairs;
}

// A grid of the server's GPUs.
Value dimensions(Sketch& s) {
  Value sizes = Value::array();
  int left = s.gpus;
  while (left % 2 == 0 && s.draw.chance(60)) {
    sizes.append(Value::of(2));
    left /= 2;
  }
  sizes.append(Value::of(left));
  return sizes;
}

void draw_links(Sketch& s) {
  const std::string kind =
      s.draw.word({"nvswitch", "nvswitch", "nvlink_mesh", "pcie", "none", "torus"});
  const bool is_mesh = kind == "nvlink_mesh" && s.gpus <= 8;
  if (kind == "nvlink_mesh" && !is_mesh) return s.set("/cluster/node/intra/kind", "pcie");
  s.set("/cluster/node/intra/kind", kind);
  if (kind != "none")
    s.set("/cluster/node/intra/bandwidth_per_gpu", s.draw.word({"300GB/s", "24GB/s", "50GB/s"}));
  if (s.draw.chance(60))
    s.set("/cluster/node/intra/latency", s.draw.word({"1.5us", "3us", "0us", "700ns"}));
  if (is_mesh) s.set("/cluster/node/intra/mesh", mesh(s));
  if (kind != "torus") return;
  s.set("/cluster/node/intra/dimensions", dimensions(s));
  if (s.draw.chance(50)) s.set("/cluster/node/intra/closed", s.draw.chance(50));
}

void draw_host(Sketch& s) {
  s.has_host = s.draw.chance(60);
  if (!s.has_host && s.draw.chance(50)) return;
  s.set("/cluster/node/host/pcie_bandwidth", s.draw.word({"25GB/s", "12GB/s"}));
  s.set("/cluster/node/host/sockets", s.draw.between(1, 2));
  if (s.draw.chance(50)) s.set("/cluster/node/host/socket_bandwidth", "60GB/s");
  if (s.draw.chance(50)) s.set("/cluster/node/host/gpus_per_pcie_switch", s.draw.pick({1, 2, 4}));
  if (s.draw.chance(20)) s.set("/cluster/node/host/launch_factor", 2.5);
  if (s.draw.chance(30)) s.set("/cluster/node/host/cores", s.draw.pick({2, 16, 64}));
  if (!s.has_host) return;
  s.set("/cluster/node/host/memory", s.draw.word({"1TB", "256GiB"}));
  s.set("/cluster/node/host/memory_bandwidth", "200GB/s");
  s.set("/cluster/node/host/nvme_capacity", "8TB");
  s.set("/cluster/node/host/nvme_read_bandwidth", "12GB/s");
  s.set("/cluster/node/host/nvme_write_bandwidth", "6GB/s");
}

Value steps(Sketch& s) {
  Value list = Value::array();
  for (const char* bytes : {"0B", "64KiB", "1MiB"}) {
    Value step = Value::object();
    step.set("bytes", Value::of(std::string(bytes)));
    step.set("time", Value::of(s.draw.word({"0us", "7us", "30us"})));
    list.items.push_back(std::move(step));
  }
  return list;
}

void describe_server(Sketch& s) {
  if (s.draw.chance(30)) s.set("/cluster/node/name", "described");
  s.set("/cluster/node/gpu", gpu(s));
  s.set("/cluster/node/gpus", s.gpus);
  draw_links(s);
  draw_host(s);
  const int nics = s.servers > 1 ? s.draw.pick({1, 2, 4, s.gpus}) : s.draw.pick({0, 1, s.gpus});
  s.set("/cluster/node/nics", nics);
  if (nics == 0) return;
  s.set("/cluster/node/nic/bandwidth", s.draw.word({"200Gbps", "400Gbps", "10Gbps"}));
  if (s.draw.chance(25))
    s.set("/cluster/node/nic/transport",
          s.draw.word({"ib", "efa", "slingshot", "tcp", "sockets", "roce"}));
  if (s.draw.chance(50)) s.set("/cluster/node/nic/latency", s.draw.word({"1.5us", "5us"}));
  if (nics == s.gpus && s.draw.chance(60)) s.set("/cluster/node/nic/rail", "gpu");
  if (s.draw.chance(50)) s.set("/cluster/node/nic/efficiency", 0.9);
  for (const char* kind : {"steps", "tree_steps", "exchange_steps"})
    if (s.draw.chance(25)) s.set(std::string("/cluster/node/nic/") + kind, steps(s));
  if (s.draw.chance(25)) s.set("/cluster/node/nic/start", s.draw.word({"0us", "14us", "60us"}));
  if (s.draw.chance(25)) s.set("/cluster/node/nic/exchange_efficiency", 0.5);
}

void draw_fabric_kind(Sketch& s) {
  const std::string latency = s.draw.word({"300ns", "1us"});
  switch (s.draw.between(0, 3)) {
    case 0:
      s.set("/cluster/fabric/kind", "single_switch");
      s.set("/cluster/fabric/switch_latency", latency);
      return;
    case 1: {
      s.set("/cluster/fabric/kind", "fat_tree");
      s.set("/cluster/fabric/tiers", s.draw.between(2, 3));
      s.set("/cluster/fabric/radix", s.draw.pick({64, 36, 128}));
      s.set("/cluster/fabric/switch_latency", latency);
      Value over = Value::array();
      over.append(Value::of(s.draw.pick({1, 2, 3})));
      if (s.draw.chance(50)) s.set("/cluster/fabric/oversubscription", over);
      return;
    }
    case 2:
      s.set("/cluster/fabric/kind", "dragonfly");
      s.set("/cluster/fabric/nics_per_router", s.draw.between(1, 8));
      s.set("/cluster/fabric/routers_per_group", s.draw.between(2, 16));
      s.set("/cluster/fabric/global_links", s.draw.between(2, 16));
      s.set("/cluster/fabric/switch_latency", latency);
      if (s.draw.chance(50)) s.set("/cluster/fabric/global_latency", latency);
      if (s.draw.chance(30)) s.set("/cluster/fabric/local_bandwidth", "25GB/s");
      if (s.draw.chance(30)) s.set("/cluster/fabric/global_bandwidth", "12.5GB/s");
      return;
    default: {
      s.set("/cluster/fabric/kind", "clos");
      Value levels = Value::array();
      const auto level = [&](const char* name, int gpus, int over) {
        Value one = Value::object();
        one.set("name", Value::of(name));
        one.set("gpus", Value::of(gpus));
        if (over > 1) one.set("oversubscription", Value::of(over));
        if (s.draw.chance(50)) one.set("latency", Value::of("500ns"));
        levels.append(std::move(one));
      };
      level("rack", s.gpus * s.draw.between(1, 2), 1);
      level("spine", s.gpus * s.servers * 4, s.draw.between(1, 4));
      s.set("/cluster/fabric/levels", levels);
    }
  }
}

void draw_fabric(Sketch& s) {
  if (s.draw.chance(50)) return;
  draw_fabric_kind(s);
  if (s.draw.chance(25)) s.set("/cluster/fabric/routing", s.draw.word({"ecmp", "d_mod_k"}));
}

// Servers of `gpus` of which each gives some to the job, its ranks in all.
void use_part(Sketch& s) {
  const int ranks = s.world();
  const int most = s.gpus;
  std::vector<int> used;
  for (int left = ranks; left > 0;) {
    const int here = s.draw.between(1, std::min(most, left));
    used.push_back(here);
    left -= here;
  }
  s.servers = static_cast<int>(used.size());
  Value numbers = Value::array();
  for (const int count : used)
    numbers.append(Value::of(count));
  s.set("/cluster/gpus_used", numbers);
}

// Too little for many plans, so that there are ways to fit.
void take_memory(Sketch& s, const std::string& preset) {
  const Value* gpu = json::find(s.plan.scenario, "/cluster/node/gpu");
  const bool named = gpu != nullptr && gpu->is(json::Kind::string);
  if (named || !s.draw.chance(12)) return;
  if (!preset.empty()) s.set("/cluster/node/gpu/preset", preset);
  s.set("/cluster/node/gpu/memory", s.draw.word({"600MiB", "700MiB", "1GiB", "2GiB"}));
}

// The last servers, or a GPU of each, are of another kind, which can do all that any does.
void mix(Sketch& s) {
  constexpr const char* kOther = "h100-pcie-80gb";
  if (s.gpus > 1 && s.draw.chance(8)) {
    Value other = Value::object();
    other.set("at", Value::of(s.draw.between(0, s.gpus - 1)));
    other.set("gpu", Value::of(kOther));
    Value list = Value::array();
    list.append(std::move(other));
    s.set("/cluster/node/other_gpus", list);
  }
  const Value* node = json::find(s.plan.scenario, "/cluster/node");
  if (s.servers < 2 || !s.draw.chance(15)) return;
  Value server = *node;
  server.set("gpu", Value::of(kOther));
  server.erase("other_gpus");
  const int count = s.draw.between(1, s.servers - 1);
  Value other = Value::object();
  if (count > 1 || s.draw.chance(50)) other.set("nodes", Value::of(count));
  other.set("node", std::move(server));
  Value list = Value::array();
  list.append(std::move(other));
  s.set("/cluster/other_nodes", list);
  s.set("/cluster/nodes", s.servers - count);
  s.mixed = true;
}

}  // namespace

void draw_machine(Sketch& s) {
  const int ranks = s.world();
  const ShippedServer* chosen = &s.draw.element(kServers);
  while (!chosen->joined && ranks > chosen->gpus)
    chosen = &s.draw.element(kServers);
  const ShippedServer& shipped = *chosen;
  const bool describes = s.draw.chance(40);
  int gpus =
      describes || shipped.resizable ? s.draw.pick({1, 2, 3, 4, 5, 6, 8, 8, 16}) : shipped.gpus;
  if (!describes && shipped.resizable && s.draw.chance(50)) gpus = shipped.gpus;
  if (!describes && gpus > shipped.gpus) gpus = shipped.gpus;
  const bool many = ranks / gpus > 24;
  if (ranks % gpus != 0 && (many || s.draw.chance(60)) && (describes || shipped.resizable))
    while (ranks % gpus != 0)
      --gpus;
  s.gpus = gpus;
  s.servers = ranks / gpus;
  if (ranks % gpus != 0 || (!many && s.draw.chance(8))) use_part(s);
  s.set("/cluster/nodes", s.servers);
  if (describes) {
    describe_server(s);
  } else {
    s.set("/cluster/node/preset", shipped.name);
    if (gpus != shipped.gpus) s.set("/cluster/node/gpus", gpus);
    s.has_bf16 = shipped.bf16;
    s.has_fp8 = shipped.fp8;
    s.has_host = shipped.host;
  }
  draw_fabric(s);
  if (s.draw.chance(15))
    s.set("/cluster/calibration", "none");
  else if (s.draw.chance(6)) {
    s.set("/cluster/calibration", s.draw.word({"a100-sxm4-80gb", "h100-sxm5-80gb", "rtx-4090"}));
    s.set("/cluster/calibration_of_other_gpu", true);
  }
  take_memory(s, describes ? "" : shipped.gpu);
  mix(s);
}

}  // namespace trainyard::fuzz
