// trainyard collective: what nccl-tests would print on a machine that one does not have.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "cli/commands.h"
#include "cli/commands/unknown_name.h"
#include "sim/base/text.h"
#include "sim/collective/share.h"
#include "sim/json/parse.h"
#include "sim/json/quantity.h"
#include "sim/json/writer.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/sources.h"
#include "sim/simulate/collective_time.h"
#include "sim/simulate/outlook/kernel_interval.h"
#include "sim/simulate/pricing.h"

namespace trainyard::cli {
namespace {

constexpr std::int64_t kElement = 4;  // bytes of a float
constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;

// How nccl-tests calls and labels a collective.
struct NcclName {
  CollectiveKind kind;
  std::string_view program, reduction;
  int root;
};
constexpr std::array kNcclNames = {
    NcclName{CollectiveKind::all_reduce, "all_reduce_perf", "sum", -1},
    NcclName{CollectiveKind::all_gather, "all_gather_perf", "none", -1},
    NcclName{CollectiveKind::reduce_scatter, "reduce_scatter_perf", "sum", -1},
    NcclName{CollectiveKind::all_to_all, "alltoall_perf", "none", -1},
    NcclName{CollectiveKind::broadcast, "broadcast_perf", "none", 0},
};

// "all_reduce" is all-reduce.
const NcclName& find_collective(std::string word) {
  std::replace(word.begin(), word.end(), '_', '-');
  std::vector<std::string> known;
  for (const NcclName& entry : kNcclNames) {
    if (name(entry.kind) == word) return entry;
    known.emplace_back(name(entry.kind));
  }
  fail_unknown("collective", word, known);
}

// "128M" as nccl-tests writes it, in powers of 1024, or "128MiB".
std::int64_t size_of(const std::string& option, const std::string& text) {
  static constexpr std::string_view kPowers = "KMGT";
  std::string number = text;
  const std::size_t power =
      text.empty()
          ? std::string::npos
          : kPowers.find(static_cast<char>(std::toupper(static_cast<unsigned char>(text.back()))));
  if (power != std::string::npos) number.pop_back();
  const bool plain = !number.empty() && number.size() <= 15 &&
                     std::all_of(number.begin(), number.end(),
                                 [](unsigned char c) { return std::isdigit(c) != 0; });
  std::int64_t bytes = 0;
  if (plain) {
    bytes = std::stoll(number);
    for (std::size_t k = 0; power != std::string::npos && k <= power && bytes <= kMostBytes; ++k)
      bytes *= 1024;
  } else {
    const json::Parsed<Bytes> parsed = json::parse_bytes(text);
    if (!parsed.ok())
      throw UsageError(fmt::format("{}: '{}' is no size; write 8, 64K, 1G or 1GiB", option,
                                   escape_control(text)));
    bytes = parsed.value.count();
  }
  if (bytes < 1 || bytes > kMostBytes)
    throw UsageError(
        fmt::format("{}: {} is not from 1 byte to 1 PiB", option, escape_control(text)));
  return bytes;
}

scenario::Machine find_machine(const CollectiveOptions& options) {
  const std::string configs = scenario::configs_folder(".");
  if (options.cluster.ends_with(".json"))
    return scenario::machine_of_file(configs, options.cluster, options.servers);
  if (auto machine = scenario::machine_of_preset(configs, options.cluster, options.servers))
    return std::move(*machine);
  std::vector<std::string> known;
  for (const scenario::Preset& preset : scenario::list_presets(configs))
    if (preset.kind == "cluster" || preset.kind == "server") known.push_back(preset.name);
  fail_unknown("cluster or server", options.cluster, known);
}

int per_server_of(const CollectiveOptions& options, const topologies::ClusterSpec& cluster) {
  if (options.per_server > cluster.fewest_gpus())
    throw UsageError(fmt::format("--per-server {}: a server of {} has {} GPUs", options.per_server,
                                 escape_control(options.cluster), cluster.fewest_gpus()));
  return options.per_server > 0 ? options.per_server : cluster.fewest_gpus();
}

int ranks_of(const CollectiveOptions& options, const topologies::ClusterSpec& cluster) {
  const std::int64_t gpus = std::int64_t{cluster.servers} * per_server_of(options, cluster);
  if (options.ranks > gpus)
    throw UsageError(fmt::format("--ranks {}: {} has {} GPUs; add --servers N", options.ranks,
                                 escape_control(options.cluster), gpus));
  if (gpus > (1 << 16) && options.ranks == 0)
    throw UsageError(fmt::format("{} GPUs are more than 65536; add --ranks N", gpus));
  const int ranks = options.ranks > 0 ? options.ranks : static_cast<int>(gpus);
  if (ranks < 2) throw UsageError("a collective needs two ranks or more; add --servers N");
  return ranks;
}

struct Row {
  std::int64_t bytes = 0, count = 0;
  cost::Estimate estimate;
  std::optional<simulate::KernelInterval> interval;
  std::optional<nccl::Choice> library;  // what NCCL takes

  double algorithm_bandwidth() const {  // GB/s
    return static_cast<double>(bytes) / estimate.time.count() * 1e-9;
  }
};

// Sizes as nccl-tests steps through them, in whole elements of every rank.
std::vector<Row> sizes(const CollectiveOptions& options, CollectiveKind kind, int ranks) {
  const std::int64_t least = size_of("-b", options.least), most = size_of("-e", options.most);
  if (least > most)
    throw UsageError(fmt::format("-b {} is more than -e {}", escape_control(options.least),
                                 escape_control(options.most)));
  const bool in_shares = kind != CollectiveKind::all_reduce && kind != CollectiveKind::broadcast;
  const std::int64_t grain = kElement * (in_shares ? ranks : 1);
  std::vector<Row> rows;
  for (std::int64_t bytes = least; bytes <= most; bytes *= options.factor) {
    const std::int64_t whole = std::max<std::int64_t>(1, bytes / grain) * grain;
    if (rows.empty() || rows.back().bytes != whole)
      rows.push_back({whole, whole / grain, {}, {}, {}});
  }
  return rows;
}

// Of published tables of nccl-tests, of which the library chose the algorithms.
void add_intervals(std::vector<Row>& rows, int servers, bool over_pcie, bool profile) {
  const std::string path =
      scenario::preset_path(scenario::configs_folder("."), "accuracy", "kernels");
  if (!scenario::is_file(path)) return;
  const std::vector<simulate::KernelClass> classes = simulate::read_kernel_classes(path);
  for (Row& row : rows)
    row.interval = simulate::class_interval(
        classes,
        simulate::operation_of_collective(Bytes(row.bytes), servers, row.estimate.basis, over_pcie),
        profile, row.estimate.time);
}

// What NCCL takes of what is left to it.
std::optional<nccl::Choice> library_choice(CollectiveKind kind, const collective::Choice& choice,
                                           Bytes bytes, cost::GroupShape shape, int channels) {
  if (shape.nccl && channels > 0) shape.nccl->channels = channels;
  for (const nccl::Choice& one : cost::nccl_choices(kind, choice.algorithm, bytes, shape))
    if (!choice.protocol || one.protocol == *choice.protocol) return one;
  return std::nullopt;
}

std::string scale_of(double value) {
  return fmt::format("{:.{}f}", value, value >= 1e6 ? 0 : value >= 1e4 ? 1 : 2);
}

// How one size is known: what its estimate rests on, and how long 8 of 10 like it took.
std::string known_how(const Row& row) {
  std::string text(name(row.estimate.basis));
  if (!row.estimate.reach.empty()) text += ", " + escape_control(row.estimate.reach);
  if (!row.interval) return text;
  const double seconds = row.estimate.time.count();
  return text + fmt::format("; 8 of 10 like it took {:.2f} to {:.2f} of it ({})",
                            row.interval->low.count() / seconds,
                            row.interval->high.count() / seconds, row.interval->of);
}

// Lines of what neighbouring sizes have in common.
template <class Say>
std::string range_lines(const std::vector<Row>& rows, Say&& say) {
  std::string text;
  for (std::size_t i = 0; i < rows.size();) {
    const std::string said = say(rows[i]);
    std::size_t last = i;
    while (last + 1 < rows.size() && say(rows[last + 1]) == said)
      ++last;
    text += fmt::format("#  {} B to {} B: {}\n", rows[i].bytes, rows[last].bytes, said);
    i = last + 1;
  }
  return text;
}

std::string library_lines(const std::vector<Row>& rows) {
  if (!rows.front().library) return "";
  return "# What NCCL's tuning takes:\n" + range_lines(rows, [](const Row& row) {
           const nccl::Choice& choice = *row.library;
           return fmt::format("{} {}, {} channel{}", name(choice.method), name(choice.protocol),
                              choice.channels, choice.channels > 1 ? "s" : "");
         });
}

struct Table {
  const CollectiveOptions& options;
  const NcclName& collective;
  const scenario::Machine& machine;
  int ranks;
  const std::vector<Row>& rows;
  std::string profile;  // by which the rows are priced
};

std::string text_of(const Table& table) {
  const topologies::ClusterSpec& cluster = table.machine.cluster;
  const std::vector<Row>& rows = table.rows;
  std::string text = fmt::format(
      "# Collective test starting: {}\n"
      "# nThread 1 nGpus 1 minBytes {} maxBytes {} step: {}(factor) warmup iters: 0 iters: 1\n"
      "#\n# Simulated by trainyard, not measured. algorithm: {}  protocol: {}  fidelity: {}  "
      "profile: {}\n"
      "# Where the times come from:\n{}{}#\n# Using devices\n",
      table.collective.program, rows.front().bytes, rows.back().bytes, table.options.factor,
      table.options.algorithm, table.options.protocol, table.options.fidelity,
      escape_control(table.profile), range_lines(rows, known_how), library_lines(rows));
  const int each = per_server_of(table.options, cluster);
  for (int rank = 0; rank < table.ranks; ++rank)
    text +=
        fmt::format("#  Rank {:>2} Group  0 Pid {:>6} on   server-{} device {:>2} [0x{:02x}] {}\n",
                    rank, 1000 + rank, rank / each, rank % each, rank % each,
                    escape_control(cluster.server_at(rank / each).gpu_at(rank % each).name));
  text +=
      "#\n#                                                              out-of-place"
      "                       in-place\n"
      "#       size         count      type   redop    root     time   algbw   busbw #wrong"
      "     time   algbw   busbw #wrong\n"
      "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)"
      "            (us)  (GB/s)  (GB/s)\n";
  const double factor = collective::bus_factor(table.collective.kind, table.ranks);
  for (const Row& row : rows) {
    const double bandwidth = row.algorithm_bandwidth();
    const std::string figures =
        fmt::format("  {:>7}  {:>6.2f}  {:>6.2f}    N/A", scale_of(microseconds(row.estimate.time)),
                    bandwidth, bandwidth * factor);
    text += fmt::format("{:>12}  {:>12}  {:>8}  {:>6}  {:>6}{}{}\n", row.bytes, row.count, "float",
                        table.collective.reduction, table.collective.root, figures, figures);
  }
  return text;
}

std::string json_of(const Table& table) {
  using json::Value;
  const double factor = collective::bus_factor(table.collective.kind, table.ranks);
  Value list = Value::array();
  for (const Row& row : table.rows) {
    Value object = Value::object();
    object.set("bytes", Value::of(row.bytes));
    object.set("count", Value::of(row.count));
    object.set("time_us", Value::of(microseconds(row.estimate.time)));
    object.set("algbw_GBps", Value::of(row.algorithm_bandwidth()));
    object.set("busbw_GBps", Value::of(row.algorithm_bandwidth() * factor));
    object.set("basis", Value::of(std::string(name(row.estimate.basis))));
    object.set("reach", Value::of(row.estimate.reach));
    if (row.interval) {
      object.set("low_us", Value::of(microseconds(row.interval->low)));
      object.set("high_us", Value::of(microseconds(row.interval->high)));
      object.set("interval_of", Value::of(row.interval->of));
    }
    if (row.library) {
      object.set("nccl_algorithm", Value::of(std::string(name(row.library->method))));
      object.set("nccl_protocol", Value::of(std::string(name(row.library->protocol))));
      object.set("nccl_channels", Value::of(std::int64_t{row.library->channels}));
    }
    list.items.push_back(std::move(object));
  }
  Value out = Value::object();
  out.set("collective", Value::of(std::string(name(table.collective.kind))));
  out.set("cluster", Value::of(table.options.cluster));
  out.set("ranks", Value::of(std::int64_t{table.ranks}));
  out.set("algorithm", Value::of(table.options.algorithm));
  out.set("protocol", Value::of(table.options.protocol));
  out.set("fidelity", Value::of(table.options.fidelity));
  out.set("profile", Value::of(table.profile));
  out.set("rows", std::move(list));
  return json::to_text(out) + "\n";
}

}  // namespace

std::vector<std::string> collective_algorithms() {
  std::vector<std::string> names = {"auto"};
  for (const collective::AlgorithmEntry& entry : collective::algorithms())
    names.emplace_back(entry.name);
  return names;
}

std::vector<std::string> collective_protocols() {
  std::vector<std::string> names = {"auto"};
  for (const nccl::Protocol protocol : nccl::kProtocols)
    names.emplace_back(name(protocol));
  return names;
}

std::vector<std::string> fidelities() {
  return {"closed_form", "flow"};
}

ExitCode collective_table(const CollectiveOptions& options, const Context& context) {
  const NcclName& collective = find_collective(options.collective);
  scenario::Machine machine = find_machine(options);
  const int ranks = ranks_of(options, machine.cluster);
  std::vector<Row> rows = sizes(options, collective.kind, ranks);
  const std::vector<simulate::GpuPrice> prices =
      simulate::prices_of(machine.profiles, machine.cluster, scenario::configs_folder("."));
  const bool flows = options.fidelity == "flow";
  simulate::LoneCollectives clock(machine.cluster, prices,
                                  {ranks, per_server_of(options, machine.cluster)},
                                  flows ? recipe::Fidelity::flow : recipe::Fidelity::closed_form);
  const collective::Choice choice{collective::find_algorithm(options.algorithm),
                                  nccl::find_protocol(options.protocol)};
  try {
    for (Row& row : rows)
      row.estimate = clock.time(collective.kind, choice, Bytes(row.bytes));
  } catch (const lower::UnsupportedCollective& refused) {
    const std::string option =
        refused.protocol ? "--protocol " + options.protocol : "--algorithm " + options.algorithm;
    throw UsageError(fmt::format("{}: {}; {}", option, refused.message, refused.hint));
  }
  const cost::Profile* law = prices[static_cast<std::size_t>(clock.shape().gpu_kind)].profile.get();
  const int channels = law ? law->collective_channels : 0;
  const simulate::PricedBy priced = priced_by(machine.cluster, prices);
  for (Row& row : rows)
    row.library =
        library_choice(collective.kind, choice, Bytes(row.bytes), clock.shape(), channels);
  if (choice == collective::Choice{} && !flows)
    add_intervals(rows, clock.shape().servers,
                  topologies::joins_by_pcie(machine.cluster.server.intra),
                  priced.uncalibrated.empty());
  const Table table{
      options,
      collective,
      machine,
      ranks,
      rows,
      priced.uncalibrated.empty() ? priced.profile : "uncalibrated, " + priced.uncalibrated};
  context.console.result(options.json ? json_of(table) : text_of(table));
  return ExitCode::done;
}

}  // namespace trainyard::cli
