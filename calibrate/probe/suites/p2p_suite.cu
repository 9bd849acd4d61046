// Latency and bandwidth between every two devices: one direction alone, both, and all pairs at
// once.
#include <algorithm>
#include <memory>

#include "lanes.h"
#include "message.h"
#include "suite.h"

namespace trainyard::probe {
namespace {

constexpr int kThreads = 512;
constexpr int kRounds = 50;  // of a ping-pong
constexpr unsigned long long kPingPongLimitNs = 2'000'000'000;
constexpr std::size_t kLargestMessage = std::size_t{64} << 10;  // of a ping-pong
constexpr std::size_t kLargestCopy = std::size_t{256} << 20;
constexpr std::size_t kStagedPiece = std::size_t{1} << 20;
constexpr int kStagedPieces = 4;

// One side of a ping-pong. Messages are written where `out` points and announced by a flag; with
// peer access that is the other device's memory, else host memory that both reach, and then the
// receiver has to fetch them to `fetched`.
struct PingPong {
  uint4* out = nullptr;
  std::uint64_t* out_flag = nullptr;
  const uint4* in = nullptr;
  std::uint64_t* in_flag = nullptr;
  const uint4* own = nullptr;
  uint4* fetched = nullptr;
  std::uint64_t first = 0;  // messages before this launch; flags are never reset
  int vectors = 0;          // of 16 bytes; of a message
  bool begins = false;
  unsigned* failed = nullptr;
};

// One block on each of two devices. After `kRounds` each side has sent and received as many
// messages.
__global__ void __launch_bounds__(kThreads) ping_pong_kernel(PingPong side) {
  const unsigned long long deadline = nanoseconds() + kPingPongLimitNs;
  for (int round = 0; round < 2 * kRounds; ++round) {
    const std::uint64_t message = side.first + static_cast<std::uint64_t>(round / 2) + 1;
    if ((round % 2 == 0) == side.begins) {
      for (int i = static_cast<int>(threadIdx.x); i < side.vectors; i += kThreads)
        side.out[i] = side.own[i];
      __syncthreads();
      if (threadIdx.x == 0) release_flag(side.out_flag, message);
      continue;
    }
    bool late = false;
    if (threadIdx.x == 0)
      late = !wait_for_flag(side.in_flag, deadline,
                            [=](std::uint64_t value) { return value >= message; });
    if (__syncthreads_or(late)) {
      if (threadIdx.x == 0) *side.failed = 1;
      return;
    }
    if (side.fetched == nullptr) continue;
    for (int i = static_cast<int>(threadIdx.x); i < side.vectors; i += kThreads)
      side.fetched[i] = __ldcv(side.in + i);
    __syncthreads();  // all has been fetched before the answer lets the sender write again
  }
}

// A device with what it needs as one end of transfers.
struct End {
  End(int device_index, std::size_t most_bytes) : device(device_index) {
    const OnDevice current(device);
    source = DeviceBuffer(most_bytes);
    target = DeviceBuffer(most_bytes);
    flags = DeviceBuffer(256);
    Stream stream;
    fill_random(Type::fp32, source.data(), most_bytes / sizeof(float),
                static_cast<std::uint64_t>(device) + 1, stream);
    PROBE_CUDA(cudaMemsetAsync(flags.data(), 0, flags.bytes(), stream));
    stream.wait();
  }
  std::uint64_t* arrived() const { return flags.as<std::uint64_t>(); }
  unsigned* failed() const { return flags.as<unsigned>(128); }

  int device;
  DeviceBuffer source, target, flags;
};

// A copy through host memory in pieces, so that the way up and the way down overlap.
class StagedCopy {
 public:
  StagedCopy(const End& from, const End& to)
      : from_(from), to_(to), staging_(kStagedPiece * kStagedPieces) {
    {
      const OnDevice current(to.device);
      down_ = std::make_unique<Stream>();
      for (int i = 0; i < kStagedPieces; ++i)
        emptied_.emplace_back(cudaEventDisableTiming);
    }
    const OnDevice current(from.device);
    for (int i = 0; i < kStagedPieces; ++i)
      filled_.emplace_back(cudaEventDisableTiming);
  }
  // The current device is the source; `stream`, a stream of it, has waited for the whole copy.
  void enqueue(std::size_t bytes, cudaStream_t stream) {
    for (std::size_t at = 0, piece = 0; at < bytes; at += kStagedPiece, ++piece) {
      const std::size_t slot = piece % kStagedPieces;
      const std::size_t count = std::min(kStagedPiece, bytes - at);
      std::byte* const staged = staging_.data() + slot * kStagedPiece;
      // An event that was never recorded, or that an earlier copy has met, does not hold anyone up.
      PROBE_CUDA(cudaStreamWaitEvent(stream, emptied_[slot], 0));
      PROBE_CUDA(
          cudaMemcpyAsync(staged, from_.source.data() + at, count, cudaMemcpyDeviceToHost, stream));
      filled_[slot].record(stream);
      const OnDevice current(to_.device);
      PROBE_CUDA(cudaStreamWaitEvent(*down_, filled_[slot], 0));
      PROBE_CUDA(
          cudaMemcpyAsync(to_.target.data() + at, staged, count, cudaMemcpyHostToDevice, *down_));
      emptied_[slot].record(*down_);
      last_ = slot;
    }
    PROBE_CUDA(cudaStreamWaitEvent(stream, emptied_[last_], 0));
  }

 private:
  const End& from_;
  const End& to_;
  PinnedBuffer staging_;
  std::unique_ptr<Stream> down_;
  std::vector<Event> filled_, emptied_;
  std::size_t last_ = 0;
};

class PairProbe {
 public:
  explicit PairProbe(Context& context) : context_(context), meeting_(2 * kLargestMessage + 512) {
    std::fill_n(meeting_.data(), meeting_.bytes(), std::byte{0});
    std::size_t most = kLargestCopy;
    for (const DeviceInfo& device : context.devices) {
      const OnDevice current(device.index);
      most = std::min(most, free_memory() / 4);
    }
    most_bytes_ = most / 4096 * 4096;
    for (const DeviceInfo& device : context.devices)
      ends_.push_back(std::make_unique<End>(device.index, most_bytes_));
    const std::size_t count = ends_.size();
    staged_.resize(count * count);
    for (std::size_t from = 0; from < count; ++from)
      for (std::size_t to = 0; to < count; ++to)
        peer_.push_back(enable_peer_access(ends_[from]->device, ends_[to]->device));
    // Kernels and copies go both ways, so access that is one-sided is not used.
    for (std::size_t from = 0; from < count; ++from)
      for (std::size_t to = 0; to < count; ++to)
        if (!peer(from, to) || !peer(to, from))
          staged_[from * count + to] = std::make_unique<StagedCopy>(*ends_[from], *ends_[to]);
  }

  void run();

 private:
  using Transfer = std::pair<std::size_t, std::size_t>;  // from, to

  bool peer(std::size_t from, std::size_t to) const { return peer_[from * ends_.size() + to]; }
  bool direct(std::size_t from, std::size_t to) const { return peer(from, to) && peer(to, from); }
  std::vector<std::size_t> sizes(std::size_t factor) const;

  void enqueue(const Transfer& transfer, std::size_t bytes, cudaStream_t stream);
  std::vector<Timing> copies(const std::vector<Transfer>& transfers, std::size_t bytes);
  Timing message(const Transfer& transfer, std::size_t bytes, bool& valid);
  void measure_pair(std::size_t one, std::size_t two);
  void measure_all_pairs();
  void write(const Transfer& transfer, std::size_t bytes, const char* mode, const char* method,
             const Timing& timing);

  Context& context_;
  PinnedBuffer meeting_;  // messages and flags of pairs without peer access
  std::size_t most_bytes_ = 0;
  std::vector<std::unique_ptr<End>> ends_;
  std::vector<bool> peer_;
  std::vector<std::unique_ptr<StagedCopy>> staged_;
  std::uint64_t messages_ = 0;  // of all ping-pongs so far
};

std::vector<std::size_t> PairProbe::sizes(std::size_t factor) const {
  std::vector<std::size_t> list;
  for (std::size_t bytes = 8; bytes <= most_bytes_; bytes *= factor)
    list.push_back(bytes);
  if (list.back() != most_bytes_) list.push_back(most_bytes_);
  return list;
}

void PairProbe::enqueue(const Transfer& transfer, std::size_t bytes, cudaStream_t stream) {
  const auto& [from, to] = transfer;
  StagedCopy* staged = staged_[from * ends_.size() + to].get();
  if (staged != nullptr) return staged->enqueue(bytes, stream);
  PROBE_CUDA(cudaMemcpyPeerAsync(ends_[to]->target.data(), ends_[to]->device,
                                 ends_[from]->source.data(), ends_[from]->device, bytes, stream));
}

// Each transfer in a stream of its source. They begin together; a fast one ends before the others
// and was in company all the time, a slow one is alone at the end.
std::vector<Timing> PairProbe::copies(const std::vector<Transfer>& transfers, std::size_t bytes) {
  std::vector<int> devices;
  for (const Transfer& transfer : transfers)
    devices.push_back(ends_[transfer.first]->device);
  Lanes lanes(devices);
  LaneOptions options;
  if (context_.quick) options.limit_us = 20'000;
  return measure_lanes(
      lanes, [&](std::size_t lane, int) { enqueue(transfers[lane], bytes, lanes.stream(lane)); },
      options);
}

// The time from a kernel's first store to the other kernel's knowing that all has arrived.
Timing PairProbe::message(const Transfer& transfer, std::size_t bytes, bool& valid) {
  const End& one = *ends_[transfer.first];
  const End& two = *ends_[transfer.second];
  const bool through_host = !direct(transfer.first, transfer.second);
  Lanes lanes({one.device, two.device});
  const auto side = [&](std::size_t lane) {
    const End& mine = lane == 0 ? one : two;
    const End& other = lane == 0 ? two : one;
    PingPong result;
    result.out = other.target.as<uint4>();
    result.in = mine.target.as<uint4>();
    result.out_flag = other.arrived();
    result.in_flag = mine.arrived();
    if (through_host) {
      std::byte* const flags = meeting_.data() + 2 * kLargestMessage;
      result.out = reinterpret_cast<uint4*>(meeting_.data() + lane * kLargestMessage);
      result.in = reinterpret_cast<const uint4*>(meeting_.data() + (1 - lane) * kLargestMessage);
      result.out_flag = reinterpret_cast<std::uint64_t*>(flags + lane * 256);
      result.in_flag = reinterpret_cast<std::uint64_t*>(flags + (1 - lane) * 256);
      result.fetched = mine.target.as<uint4>();
    }
    result.own = mine.source.as<uint4>();
    result.first = messages_;
    result.vectors = static_cast<int>((bytes + 15) / 16);
    result.begins = lane == 0;
    result.failed = mine.failed();
    return result;
  };
  std::vector<double> times;
  const int repeats = context_.quick ? 3 : 7;
  for (int i = 0; i < repeats + 1; ++i) {
    const std::vector<double> interval = lanes.interval([&](std::size_t lane) {
      ping_pong_kernel<<<1, kThreads, 0, lanes.stream(lane)>>>(side(lane));
      PROBE_LAUNCHED();
    });
    messages_ += kRounds;
    if (i > 0) times.push_back(*std::max_element(interval.begin(), interval.end()) / (2 * kRounds));
  }
  for (const End* end : {&one, &two}) {
    unsigned failed = 0;
    PROBE_CUDA(cudaMemcpy(&failed, end->failed(), sizeof failed, cudaMemcpyDeviceToHost));
    valid = valid && failed == 0;
  }
  return summarize(std::move(times));
}

void PairProbe::write(const Transfer& transfer, std::size_t bytes, const char* mode,
                      const char* method, const Timing& timing) {
  Sample sample("p2p");
  sample.number("gpu", transfer.first)
      .number("from", transfer.first)
      .number("to", transfer.second)
      .number("bytes", bytes)
      .text("access", direct(transfer.first, transfer.second) ? "peer" : "staged")
      .text("mode", mode)
      .text("method", method)
      .timing(timing);
  context_.samples.write(sample);
}

void PairProbe::measure_pair(std::size_t one, std::size_t two) {
  const std::vector<Transfer> ways = {{one, two}, {two, one}};
  for (const std::size_t bytes : sizes(context_.quick ? 32 : 4)) {
    if (!context_.go_on()) return;
    context_.show("p2p " + std::to_string(one) + " - " + std::to_string(two) + ", " +
                  std::to_string(bytes) + " bytes");
    for (const Transfer& way : ways) {
      Timing best = copies({way}, bytes).front();
      const char* method = "copy";
      // The copy engines start slowly: a message of a kernel is what collectives see.
      if (bytes <= kLargestMessage) {
        bool valid = true;
        const Timing kernel = message(way, bytes, valid);
        if (!valid) {
          context_.note("p2p: the flags between two devices stopped; no kernel latency");
        } else if (kernel.median_us < best.median_us) {
          best = kernel;
          method = "kernel";
        }
      }
      write(way, bytes, "alone", method, best);
    }
    if (bytes <= kLargestMessage) continue;  // the time of a start does not depend on the other way
    const std::vector<Timing> both = copies(ways, bytes);
    for (std::size_t i = 0; i < ways.size(); ++i)
      write(ways[i], bytes, "both", "copy", both[i]);
  }
}

// In round r every device sends to the one r places ahead, and receives from the one r places
// behind: together the rounds have every ordered pair once, and a shared bridge is as full as it
// gets.
void PairProbe::measure_all_pairs() {
  const std::size_t count = ends_.size();
  for (const std::size_t bytes : {std::size_t{1} << 20, std::size_t{16} << 20, most_bytes_})
    for (std::size_t round = 1; round < count; ++round) {
      if (!context_.go_on() || bytes > most_bytes_) return;
      std::vector<Transfer> transfers;
      for (std::size_t from = 0; from < count; ++from)
        transfers.push_back({from, (from + round) % count});
      const std::vector<Timing> timings = copies(transfers, bytes);
      for (std::size_t i = 0; i < transfers.size(); ++i)
        write(transfers[i], bytes, "all", "copy", timings[i]);
    }
}

void PairProbe::run() {
  // First what is short and shows how the machine is wired.
  if (ends_.size() > 2) measure_all_pairs();
  for (std::size_t one = 0; one < ends_.size(); ++one)
    for (std::size_t two = one + 1; two < ends_.size(); ++two) {
      if (!context_.go_on()) return;
      measure_pair(one, two);
    }
}

}  // namespace

void run_p2p(Context& context) {
  if (context.devices.size() < 2) {
    context.note("p2p: one device, so there is no transfer between devices to measure");
    return;
  }
  PairProbe(context).run();
}

}  // namespace trainyard::probe
