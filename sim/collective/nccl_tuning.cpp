#include "sim/collective/nccl_tuning.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstddef>

#include "sim/base/check.h"

namespace trainyard::nccl {
namespace {

using collective::Group;

template <class T>
using ByProtocol = std::array<T, 3>;  // LL, LL128, Simple
template <class T>
using ByGeneration = std::array<T, 4>;
using ByServers = std::array<double, 3>;  // one, two, more

template <class Array, class Enum>
const auto& of(const Array& table, Enum at) {
  return table[static_cast<std::size_t>(at)];
}

// GB/s: of LL all channels together, by generation on one server, by the processors' maker between
// servers (Intel has Volta's row, AMD Ampere's); of the others one channel.
constexpr ByGeneration<ByServers> kLlMost = {
    {{39, 39, 20.4}, {87.7, 22.5, 19}, {141, 45, 35}, {282, 90, 70}}};
constexpr ByGeneration<double> kRingLl128Most = {20, 20, 36.7, 40};
constexpr ByGeneration<ByServers> kTreeLl128Most = {
    {{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29}, {55.6, 31.67, 20}}};
constexpr ByGeneration<ByServers> kTreeMost = {
    {{26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}}};
constexpr ByGeneration<ByServers> kNvlsTreeMost = {
    {{0, 0, 0}, {0, 0, 0}, {0, 57.7, 45.5}, {0, 96, 80}}};

// What a tree keeps of its bandwidth, by floor(log2(S / 64)).
constexpr ByProtocol<std::array<double, 23>> kTreeKept = {{
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9},
}};

// Microseconds.
constexpr ByProtocol<double> kTreeBase = {6.8, 14, 8.4}, kRingBase = {6.6, 14, 8.4};
constexpr ByProtocol<double> kTreeNvlink = {.6, 1.25, 4}, kRingNvlink = {.6, 1.9, 3.4};
constexpr ByProtocol<double> kTreePcie = {1, 1.9, 4}, kRingPcie = {1, 2.5, 5.7};
constexpr ByProtocol<double> kTreeNet = {5, 8.5, 14}, kRingNet = {2.7, 4, 14};
constexpr double kNvlsHop = 25, kNvlsTreeNet = 20.9;
constexpr double kPatBase = 8, kPatNet = 14, kPatRank = 2.8, kPatLevels = 3.5;

constexpr double kTree = .92, kRingLl128 = .92, kPat = .75;
constexpr double kLl128OfLine = 120.0 / 128, kLl128OneServer = 7.0 / 9, kTreeLl = 1 / 3.8;
constexpr double kSimpleRingOverServers = 1.4;  // of an all-reduce whose shares are not tiny
constexpr int kNvlsChannels = 16;

std::size_t servers_column(int servers) {
  return servers == 1 ? 0 : servers == 2 ? 1 : 2;
}

int log2_of(std::int64_t value) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(value))) - 1;
}

// GB/s that a head of a reducing switch reaches: the fastest of the search's speeds that all GPUs
// of the server have at once.
double head_speed(const Joined& joined, int heads) {
  static constexpr std::array kHopper = {60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3};
  static constexpr std::array kBlackwell = {90, 80, 70, 60, 50, 40, 30, 24, 20, 19, 18};
  const double share = joined.inside.count() * 1e-9 / heads;
  const auto fastest = [share](const auto& speeds) -> double {
    for (const int speed : speeds)
      if (speed <= share) return speed;
    return share;
  };
  return joined.machine.generation == Generation::blackwell ? fastest(kBlackwell)
                                                            : fastest(kHopper);
}

class Tuning {
 public:
  Tuning(CollectiveKind kind, Bytes bytes, const Joined& joined)
      : kind_(kind),
        bytes_(bytes.count()),
        joined_(joined),
        ranks_(joined.group.ranks),
        servers_(joined.group.servers),
        local_(joined.group.per_server),
        column_(servers_column(joined.group.servers)),
        channels_(std::max(1, joined.machine.channels / 2)),
        line_(line()) {}

  void add(Method method, Protocol protocol, std::vector<Choice>& list) const {
    const double bandwidth = buffer_bandwidth(method, protocol);
    if (bandwidth <= 0) return;
    const double micros =
        latency(method, protocol) + static_cast<double>(bytes_) / (1000 * bandwidth);
    list.push_back({method, protocol, channels(method, protocol), Seconds(micros * 1e-6)});
  }

 private:
  // GB/s of all channels: inside up to two servers, else between. The search takes what the NICs
  // have for both.
  double line() const {
    const double inside = joined_.inside.count() * 1e-9, between = joined_.between.count() * 1e-9;
    if (servers_ == 1) return inside;
    return local_ == 1 ? between : std::min(inside, between);
  }

  bool all_reduce() const { return kind_ == CollectiveKind::all_reduce; }
  bool broadcast() const { return kind_ == CollectiveKind::broadcast; }
  Generation generation() const { return joined_.machine.generation; }

  std::int64_t ring_steps() const {
    return broadcast() ? ranks_ : (all_reduce() ? 2 : 1) * (ranks_ - 1);
  }

  double ll_most() const {
    const Generation maker =
        joined_.machine.amd_processors ? Generation::ampere : Generation::volta;
    return of(kLlMost, servers_ == 1 ? generation() : maker)[column_];
  }

  bool has_ll128() const { return joined_.machine.nvlink; }

  double of_buffer(double bus) const { return bus * ranks_ / static_cast<double>(ring_steps()); }

  double ring(Protocol protocol) const {
    switch (protocol) {
      case Protocol::ll: return of_buffer(std::min(ll_most(), line_ / 2));
      case Protocol::ll128:
        return has_ll128() ? of_buffer(std::min(kRingLl128 * line_,
                                                channels_ * of(kRingLl128Most, generation())))
                           : 0;
      case Protocol::simple: return of_buffer(line_);
    }
    return 0;
  }

  double tree(Protocol protocol) const {
    if (!all_reduce() || (protocol == Protocol::ll128 && !has_ll128())) return 0;
    double bus = std::min(kTree * line_, channels_ * of(kTreeMost, generation())[column_]);
    if (protocol == Protocol::ll) bus = std::min(bus * kTreeLl, ll_most());
    if (protocol == Protocol::ll128)
      bus = std::min(bus * (servers_ == 1 ? kLl128OneServer : kLl128OfLine),
                     channels_ * of(kTreeLl128Most, generation())[column_]);
    const auto size = static_cast<std::size_t>(log2_of(std::max<std::int64_t>(bytes_ / 64, 1)));
    const auto& kept = of(kTreeKept, protocol);
    return bus / 2 * (size < kept.size() ? kept[size] : 1);
  }

  // Of all heads, before a tree between servers bounds them.
  double nvls_line() const {
    const int heads = local_;
    const double reached = generation() == Generation::blackwell ? .74 : .85;
    const double whole = heads * head_speed(joined_, heads) * reached * (heads - 1) / heads;
    return all_reduce() ? 2 * whole : whole * (ranks_ - 1) / ranks_;
  }

  bool has_nvls() const {
    return joined_.machine.reducing_switch && generation() >= Generation::hopper && local_ > 2;
  }

  double nvls() const {
    if (!has_nvls() || servers_ > 1 || broadcast()) return 0;
    return of_buffer(nvls_line());
  }

  double nvls_tree() const {
    if (!has_nvls() || servers_ == 1 || !all_reduce()) return 0;
    const double nics = joined_.between.count() * 1e-9 * (servers_ == 2 ? 2 : 1);
    return of_buffer(
        std::min({nvls_line(), nics, local_ * of(kNvlsTreeMost, generation())[column_]}));
  }

  double pat() const {
    if (local_ > 1 || all_reduce() || broadcast()) return 0;
    return kPat * of_buffer(line_);
  }

  double buffer_bandwidth(Method method, Protocol protocol) const {
    if (method == Method::ring) return ring(protocol);
    if (method == Method::tree) return tree(protocol);
    if (protocol != Protocol::simple) return 0;
    return method == Method::nvls ? nvls() : method == Method::nvls_tree ? nvls_tree() : pat();
  }

  double latency(Method method, Protocol protocol) const {
    const bool simple = protocol == Protocol::simple;
    const int levels = log2_of(servers_);
    const bool nvlink = joined_.machine.nvlink;
    const auto between = [&](const ByProtocol<double>& net) { return of(net, protocol); };
    switch (method) {
      case Method::tree:
        return of(kTreeBase, protocol) +
               2 * ((local_ - 1) * of(nvlink ? kTreeNvlink : kTreePcie, protocol) +
                    levels * between(kTreeNet));
      case Method::ring: return ring_latency(protocol, nvlink, simple);
      case Method::nvls: return kNvlsHop;
      case Method::nvls_tree: return kNvlsHop + 2 * levels * kNvlsTreeNet;
      case Method::pat: return kPatBase + levels * kPatNet / kPatLevels + kPatRank * ranks_;
    }
    return 0;
  }

  double ring_latency(Protocol protocol, bool nvlink, bool simple) const {
    const double inside = of(nvlink ? kRingNvlink : kRingPcie, protocol);
    const double between = of(local_ == 1 ? kTreeNet : kRingNet, protocol);
    const double base = of(kRingBase, protocol);
    if (broadcast()) return base + (servers_ == 1 ? inside : between);
    const double overhead = (joined_.machine.amd_processors ? 2 : 1) * (simple ? 3 : 1);
    const std::int64_t far = servers_ == 1 ? 0 : (all_reduce() ? 2 : 1) * (servers_ - 1);
    const double near = servers_ == 1 ? inside : std::max(inside, overhead);
    const double all =
        base + static_cast<double>(ring_steps() - far) * near + static_cast<double>(far) * between;
    const bool longer =
        simple && all_reduce() && servers_ > 1 && bytes_ / (std::int64_t{channels_} * ranks_) >= 64;
    return longer ? kSimpleRingOverServers * all : all;
  }

  // Those that have enough bytes for each of their threads.
  int channels(Method method, Protocol protocol) const {
    if (method == Method::nvls || method == Method::nvls_tree) return kNvlsChannels;
    const bool slow_ring = method == Method::ring && !joined_.machine.nvlink;
    const std::int64_t threads = protocol == Protocol::ll128                 ? 640
                                 : protocol == Protocol::simple && slow_ring ? 256
                                                                             : 512;
    const std::int64_t of_thread = protocol == Protocol::simple                         ? 64
                                   : protocol == Protocol::ll && method == Method::ring ? 8 * ranks_
                                                                                        : 8;
    int used = std::max(1, joined_.machine.channels);
    while (used > 1 && bytes_ < used * threads * of_thread)
      --used;
    return used;
  }

  CollectiveKind kind_;
  std::int64_t bytes_;
  const Joined& joined_;
  int ranks_, servers_, local_;
  std::size_t column_;
  int channels_;  // of the search
  double line_;
};

}  // namespace

std::optional<Generation> generation_of(std::string_view compute_capability) {
  int major = 0;
  const auto read = std::from_chars(compute_capability.data(),
                                    compute_capability.data() + compute_capability.size(), major);
  if (read.ec != std::errc() || major < 1) return std::nullopt;
  if (major < 8) return Generation::volta;
  return major == 8 ? Generation::ampere : major == 9 ? Generation::hopper : Generation::blackwell;
}

std::string_view name(Method method) {
  static constexpr std::array<std::string_view, 5> kNames = {"tree", "ring", "nvls", "nvls_tree",
                                                             "pat"};
  return of(kNames, method);
}

std::vector<Choice> choices(CollectiveKind kind, Bytes bytes, const Joined& joined) {
  TRAINYARD_CHECK(joined.group.ranks >= 2, "a group of {} ranks", joined.group.ranks);
  TRAINYARD_CHECK(bytes.count() >= 0, "a collective of {} bytes", bytes.count());
  std::vector<Choice> list;
  if (kind == CollectiveKind::all_to_all || kind == CollectiveKind::shift) return list;
  const Tuning tuning(kind, bytes, joined);
  for (const Method method :
       {Method::tree, Method::ring, Method::nvls, Method::nvls_tree, Method::pat})
    for (const Protocol protocol : kProtocols)
      tuning.add(method, protocol, list);
  std::stable_sort(list.begin(), list.end(),
                   [](const Choice& a, const Choice& b) { return a.expected < b.expected; });
  return list;
}

}  // namespace trainyard::nccl
