// One function per subcommand. Options are plain values; only options.cpp knows how they are
// written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/command_tree.h"
#include "cli/console.h"
#include "cli/exit_code.h"
#include "cli/interrupts.h"

namespace trainyard::cli {

struct Context {
  Console& console;
  Interrupts& interrupts;
};

struct ScenarioOptions {
  std::string path;
  std::vector<std::string> sets;  // "KEY=VALUE"
  std::string root;               // files in it may be read as well; empty: none
};

struct OutputOptions {
  std::string folder;  // empty: no files
  bool json = false;
  bool force = false;
};

struct RunOptions {
  ScenarioOptions scenario;
  std::string variant;  // empty: the scenario without a variant
  OutputOptions output;
  bool unfold = false;
  bool no_ways_to_fit = false;  // of a step that does not fit, say no more than that
  std::string monitor;          // empty: none; "auto"; the interval of its samples, "10ms"
};
ExitCode run(const RunOptions& options, const Context& context);

struct CompareOptions {
  ScenarioOptions scenario;
  std::string baseline;  // empty: the one that the scenario names
  OutputOptions output;
  bool csv = false;
  bool unfold = false;
  bool no_ways_to_fit = false;
  int jobs = 1;
};
ExitCode compare(const CompareOptions& options, const Context& context);

struct SearchCommandOptions {
  ScenarioOptions scenario;
  OutputOptions output;
  bool exhaustive = false;  // simulate all that may fit
  std::uint64_t limit = 1'000'000;
  std::string shard;  // "1/4", "auto"; empty: all
  std::string log;    // empty: none
  bool resume = false;
  int slurm = 0;  // > 0: print the script of so many shards
  int jobs = 1;
  std::vector<std::string> logs;  // to be merged
};
ExitCode search_space(const SearchCommandOptions& options, const Context& context);
ExitCode merge_searches(const SearchCommandOptions& options, const Context& context);

struct CheckOptions {
  std::vector<std::string> paths;
  std::vector<std::string> sets;
  std::string root;
  bool json = false;
};
ExitCode check(const CheckOptions& options, const Context& context);

struct ExplainOptions {
  ScenarioOptions scenario;
  std::string variant;
  std::string stage;  // empty: the scenario, its ranks and its memory
};
std::vector<std::string> explain_stages();
ExitCode explain(const ExplainOptions& options, const Context& context);

struct NewOptions {
  std::string model;                                   // a preset; or
  std::string hugging_face;                            // path of a config.json
  std::string gpus;                                    // "8xh100"
  std::int64_t global_batch = 0, sequence_length = 0;  // 0: as practice has it
  std::string root;                                    // as of ScenarioOptions
};
ExitCode new_scenario(const NewOptions& options, const Context& context);

struct PresetsOptions {
  std::string show;  // empty: list them
};
ExitCode presets(const PresetsOptions& options, const Context& context);

struct SchedulesOptions {
  std::string show;  // empty: list them
  int stages = 4, microbatches = 8;
  int chunks = 0;  // 0: as many as the schedule has by itself
  int forward = 1, backward_input = 1, backward_weight = 1, communication = 0;  // ticks
  int most_in_flight = 0;                                                       // 0: no limit
  bool overlap_passes = false;
  std::vector<int> at;  // ticks, from 1 on, whose passes are named
  std::string svg;      // empty: none
  bool json = false;
};
ExitCode schedules(const SchedulesOptions& options, const Context& context);

struct CollectiveOptions {
  std::string collective;                // "all-reduce"
  std::string cluster;                   // a preset of a cluster, or of a server
  int servers = 0;                       // 0: those of the cluster, or one
  int ranks = 0;                         // 0: all GPUs
  int per_server = 0;                    // ranks on each server; 0: all its GPUs
  std::string least = "8", most = "1G";  // as nccl-tests writes sizes, or with units
  int factor = 2;
  std::string fidelity = "closed_form";
  std::string algorithm = "auto", protocol = "auto";
  bool json = false;
};
std::vector<std::string> collective_algorithms();
std::vector<std::string> collective_protocols();
std::vector<std::string> fidelities();
ExitCode collective_table(const CollectiveOptions& options, const Context& context);

struct KernelCommandOptions {
  std::vector<std::string> specs;  // "gemm:4096x4096x4096,dtype=bf16"
  std::vector<std::string> files;  // CSV, one kernel a line
  std::string gpu;                 // preset
  std::string calibration;         // name or path, "kind", "none"; empty: own, else kind
  bool csv = false, json = false;
};
ExitCode kernel(const KernelCommandOptions& options, const Context& context);

struct ImportCommandOptions {
  std::string format;  // "nccl-tests", "nvbandwidth", "smi-topo", "server"
  std::string path;
  std::string output;  // file of samples; empty: standard output
  bool force = false;
  // What a log may not say.
  std::string collective, gpu;
  int ranks = 0, servers = 0;
  std::string buffer = "512MiB";
  std::string links, nic_bandwidth, pcie_bandwidth;  // of a server
};
std::vector<std::string> import_collectives();
std::vector<std::string> import_links();
ExitCode import_log(const ImportCommandOptions& options, const Context& context);

// What a fit takes from elsewhere.
struct FitBaseOptions {
  std::string profile = "auto";                     // "auto", "none", a name or a path
  int channels = -1, point_to_point_channels = -1;  // -1: the base's
};

struct FitCommandOptions {
  FitBaseOptions base;
  std::vector<std::string> samples;  // files of probes
  std::string output;                // the profile; its page stands beside it
  std::string gpu;                   // preset; empty: by the device's name
  std::string name;                  // of the profile; empty: the GPU's
  std::string attention;             // implementation; empty: cudnn where both were measured
  bool json = false;
  bool force = false;
};
ExitCode fit(const FitCommandOptions& options, const Context& context);

struct CalibrateOptions {
  FitBaseOptions base;
  std::string output = "calibration.json";  // the profile; page, server and samples stand beside it
  std::string samples;                      // empty: beside the profile
  std::string device = "gpu";               // or cpu: this machine's processors, through PyTorch
  std::string gpu;                          // preset that is measured; empty: by the device's name
  std::string threads;                      // cpu: cores that one device takes; empty: all
  std::string suite, devices, budget;       // for the probe, as written; empty: its own choice
  bool quick = false;
  bool json = false;
  bool force = false;
};
ExitCode calibrate(const CalibrateOptions& options, const Context& context);

struct ValidateOptions {
  std::vector<std::string> records;  // files, and folders of them; empty: those of the program
  std::string root;                  // as of ScenarioOptions
  std::string folder;                // empty: no files
  std::string software;              // that ran records which name none; empty: none
  bool rows = false;
  bool json = false;
  int jobs = 1;
};
ExitCode validate(const ValidateOptions& options, const Context& context);

struct SchemaOptions {
  bool markdown = false;  // docs/scenario.md instead
};
ExitCode schema(const SchemaOptions& options, const Context& context);

}  // namespace trainyard::cli
