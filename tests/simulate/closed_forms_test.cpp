// Groups priced by a closed form, and as flows on the links: those that cross the sockets of a
// server at once, rings on an NVLink mesh, and GPUs of several NICs.
#include <doctest/doctest.h>

#include <utility>

#include "sim/simulate/report/summarize.h"
#include "tests/simulate/gpt_job.h"
#include "tests/support/about.h"
#include "tests/topologies/clusters.h"

using namespace trainyard;

namespace {

// Seconds of the exchange, beside nothing.
double exposed(Job job, recipe::Fidelity fidelity) {
  job.plan.data_parallel.overlap_backward = false;
  job.fidelity = fidelity;
  const StepReport report = summarize(job, *simulate_step(job));
  return Seconds(report.breakdown[static_cast<std::size_t>(TimeCategory::exposed_dp)]).count();
}

// Two replicas of four tensor-parallel ranks: four pairs cross. Of eight replicas one ring does.
double exchanged(int tensor, recipe::Fidelity fidelity, BytesPerSecond sockets) {
  Job job = gpt_job(tensor, 8 / tensor, 1);
  job.network = gpt(2, 2048, 16, 8192);
  job.cluster.servers = 1;
  const topologies::GpuSpec gpu = job.cluster.server.gpu;
  job.cluster.server = test::pcie_server();
  job.cluster.server.gpu = gpu;
  job.cluster.server.intra_latency = Duration(0);
  job.cluster.server.socket_bandwidth = sockets;
  return exposed(std::move(job), fidelity);
}

}  // namespace

TEST_CASE("pairs across sockets take as long in closed form as flows that share the link") {
  using recipe::Fidelity;
  for (const int tensor : {1, 2, 4}) {
    const double closed = exchanged(tensor, Fidelity::closed_form, 8_GBps);
    const double flows = exchanged(tensor, Fidelity::flow, 8_GBps);
    CHECK(closed == about(flows).within(0.02));
  }
  // Of each rank's gradients, a fourth of those of one, half go over a fourth of the link.
  const double one = exchanged(1, Fidelity::closed_form, 8_GBps);
  const double four = exchanged(4, Fidelity::closed_form, 8_GBps);
  CHECK(four / one == about((1.0 / 2) / (7.0 / 8)).within(0.05));
}

namespace {

// All gradients of eight GPUs on each of these servers.
double exchanged_on_meshes(int servers, recipe::Fidelity fidelity, BytesPerSecond nic) {
  Job job = gpt_job(1, 8 * servers, 1);
  job.network = gpt(2, 2048, 16, 8192);
  const topologies::GpuSpec gpu = job.cluster.server.gpu;
  job.cluster = test::cluster_of(servers, test::dgx1v(), topologies::SingleSwitch{});
  job.cluster.server.gpu = gpu;
  job.cluster.server.nic_bandwidth = nic;
  return exposed(std::move(job), fidelity);
}

}  // namespace

// Of one server and, so that each of eight rings enters and leaves at GPUs of its own, of two.
TEST_CASE("on an NVLink mesh flows take as long as the closed form") {
  using recipe::Fidelity;
  for (const int servers : {1, 2}) {
    CAPTURE(servers);
    CHECK(exchanged_on_meshes(servers, Fidelity::closed_form, BytesPerSecond(12.5e9)) ==
          about(exchanged_on_meshes(servers, Fidelity::flow, BytesPerSecond(12.5e9))).within(0.01));
  }
  // Two of the eight rings share the NVLinks of one of the server's six: four links' worth of all,
  // which the closed form of four faster NICs does not see.
  const double closed = exchanged_on_meshes(2, Fidelity::closed_form, 25_GBps);
  const double flows = exchanged_on_meshes(2, Fidelity::flow, 25_GBps);
  CHECK(closed / flows == about(4 * 22.4 / 100).within(0.01));
}

namespace {

// All gradients of GPUs on two servers, each with these NICs, slower together than PCIe.
double exchanged_by_nics(int nics, int others_nics, recipe::Fidelity fidelity) {
  const int gpus = 4;
  Job job = gpt_job(1, 2 * gpus, 1);
  job.network = gpt(2, 2048, 16, 8192);
  const topologies::GpuSpec gpu = job.cluster.server.gpu;
  job.cluster = test::cluster_of(2, test::nvswitch_server(gpus, nics), topologies::SingleSwitch{});
  job.cluster.server.gpu = gpu;
  job.cluster.server.nic_bandwidth = 5_GBps;
  if (others_nics != nics) {
    job.cluster.others = {{1, job.cluster.server}};
    job.cluster.others[0].server.nics = others_nics;
    job.prices.resize(2);
  }
  return exposed(std::move(job), fidelity);
}

}  // namespace

TEST_CASE("what a GPU sends is divided over its NICs, by flows as in closed form") {
  using recipe::Fidelity;
  const double one = exchanged_by_nics(4, 4, Fidelity::flow);
  for (const int each : {1, 2, 4}) {
    CAPTURE(each);
    const double closed = exchanged_by_nics(4 * each, 4 * each, Fidelity::closed_form);
    const double flows = exchanged_by_nics(4 * each, 4 * each, Fidelity::flow);
    CHECK(closed == about(flows).within(0.01));
    CHECK(one / flows == about(each).within(0.05));
  }
  // The server with fewer decides.
  const double closed = exchanged_by_nics(12, 8, Fidelity::closed_form);
  CHECK(closed == about(exchanged_by_nics(12, 8, Fidelity::flow)).within(0.01));
  CHECK(closed == about(exchanged_by_nics(8, 8, Fidelity::closed_form)).within(0.01));
}
