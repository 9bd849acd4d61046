// How every command's options are written.
#include "cli/commands/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "sim/base/version.h"

namespace trainyard::cli {
namespace {

constexpr int kMaxJobs = 256;
constexpr const char* kFooter =
    R"(Exit codes: 0 done, 1 does not fit in memory or never finishes, 2 wrong command line,
3 wrong or absent input file, 4 file that cannot be written or other trouble of the machine,
70 mistake of ours.)";

// An option that may be left out, but not given as nothing: a shell writes "" for a variable that
// is not set.
CLI::Option* add_word(CLI::App& app, const std::string& names, std::string& value,
                      const std::string& about, const std::string& type) {
  CLI::Option* option = app.add_option(names, value, about)->type_name(type);
  return option->check([](const std::string& word) { return word.empty() ? "is empty" : ""; }, "",
                       "");
}

// May be given several times, one value each: `--set a=1 file.json` does not swallow the file.
void add_sets(CLI::App& app, std::vector<std::string>& sets) {
  app.add_option("--set", sets,
                 "Change a value, before a variant does: training.micro_batch=4 or "
                 "/training/micro_batch=4")
      ->type_name("KEY=VALUE")
      ->check(
          [](const std::string& word) {
            const std::size_t split = word.find('=');
            const bool is_set = split != std::string::npos && split > 0;
            return is_set ? "" : "expected KEY=VALUE, e.g. parallelism.tp=8, got '" + word + "'";
          },
          "", "")
      ->allow_extra_args(false)
      ->take_all();
}

template <class Int>
CLI::Option* add_count(CLI::App& app, const std::string& names, Int& value,
                       const std::string& about, int least, int most) {
  return app.add_option(names, value, about)->type_name("N")->check(CLI::Range(least, most));
}

// What a scenario names lies in its own root unless the user says otherwise.
void add_root(CLI::App& app, std::string& root) {
  add_word(app, "--root", root,
           "A folder whose files the scenario may name, besides those of its own root", "DIR")
      ->check([](const std::string& path) {
        std::error_code code;
        return std::filesystem::is_directory(path, code) ? "" : "'" + path + "' is no folder";
      });
}

void add_scenario(CLI::App& app, ScenarioOptions& scenario) {
  app.add_option("scenario", scenario.path, "The scenario file")->required()->type_name("FILE");
  add_sets(app, scenario.sets);
  add_root(app, scenario.root);
}

void add_output(CLI::App& app, OutputOptions& output) {
  add_word(app, "-o,--output", output.folder, "Write summary, trace and report into this folder",
           "DIR");
  app.add_flag("--json", output.json, "Print one JSON object instead of text");
  app.add_flag("--force", output.force, "Write into a folder that holds other files");
}

void add_simulation(CLI::App& app, bool& unfold, bool& no_ways_to_fit) {
  app.add_flag("--unfold", unfold, "Simulate every rank, not one of each kind");
  app.add_flag("--no-ways-to-fit", no_ways_to_fit,
               "Do not look for changes with which a step that is out of memory would fit");
}

void add_jobs(CLI::App& app, int& jobs, const std::string& about) {
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  jobs = static_cast<int>(std::min<unsigned>(cores, kMaxJobs));
  add_count(app, "-j,--jobs", jobs, about, 1, kMaxJobs);
}

void add_run(CLI::App& app, RunOptions& options) {
  CLI::App* command = app.add_subcommand("run", "Simulate one training step");
  add_scenario(*command, options.scenario);
  add_word(*command, "--variant", options.variant, "Simulate this variant of the scenario", "NAME");
  add_output(*command, options.output);
  add_simulation(*command, options.unfold, options.no_ways_to_fit);
  // A flag, so that it does not swallow the scenario behind it.
  command->add_flag("--monitor{auto}", options.monitor,
                    "Watch the GPUs over the step, as nvidia-smi dmon does; --monitor=10ms: a "
                    "sample each 10 ms");
}

void add_compare(CLI::App& app, CompareOptions& options) {
  CLI::App* command = app.add_subcommand("compare", "Simulate all variants, side by side");
  add_scenario(*command, options.scenario);
  add_word(*command, "--baseline", options.baseline,
           "The variant that the others are compared with", "NAME");
  add_output(*command, options.output);
  command->add_flag("--csv", options.csv, "Print one line of comma-separated values per variant")
      ->excludes("--json");
  add_simulation(*command, options.unfold, options.no_ways_to_fit);
  add_jobs(*command, options.jobs, "Variants simulated at a time (default: the cores)");
}

void add_validate(CLI::App& app, ValidateOptions& options) {
  CLI::App* command =
      app.add_subcommand("validate", "Compare predictions with measured steps (docs/proof.md)");
  command
      ->add_option("--records", options.records,
                   "A file of records or a folder of them (default: the published steps of "
                   "configs/validation)")
      ->type_name("FILE|DIR")
      ->allow_extra_args(false)
      ->take_all();
  add_root(*command, options.root);
  add_word(
      *command, "--software", options.software,
      "What ran the records whose scenarios name none: nemo, torchtitan, ... (trainyard presets)",
      "NAME");
  add_word(*command, "-o,--output", options.folder, "Write a page and a JSON file into this folder",
           "DIR");
  command->add_flag("--rows", options.rows, "Print every measured step as well");
  command->add_flag("--json", options.json, "Print one JSON object instead of text");
  add_jobs(*command, options.jobs, "Records predicted at a time (default: the cores)");
}

void add_search(CLI::App& app, SearchCommandOptions& options) {
  CLI::App* command = app.add_subcommand(
      "search",
      "Find the best configuration: degrees, micro-batch, schedule, ... (docs/search.md)");
  // Not of "search merge".
  command->add_option("scenario", options.scenario.path, "The scenario file")->type_name("FILE");
  add_sets(*command, options.scenario.sets);
  add_root(*command, options.scenario.root);
  add_output(*command, options.output);
  command->add_flag("--exhaustive", options.exhaustive,
                    "Simulate all that may fit, and say what leaving out would have lost");
  command
      ->add_option("--limit", options.limit,
                   "The most configurations that a space may have (default 1000000)")
      ->type_name("N")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{100'000'000}));
  add_word(*command, "--shard", options.shard,
           "Only this part of the space: 1/4, or auto in a Slurm array or under mpirun", "I/N");
  add_word(*command, "--log", options.log,
           "Write each configuration into this file as soon as it is judged; %s: the shard",
           "FILE.jsonl");
  command->add_flag("--resume", options.resume, "Go on from what the log holds");
  constexpr int kMostTasks = 10'000;
  add_count(*command, "--slurm", options.slurm,
            "Print the script of a Slurm array of so many shards, and do nothing else", 1,
            kMostTasks);
  add_jobs(*command, options.jobs, "Configurations at a time (default: the cores)");
  CLI::App* merge = command->add_subcommand("merge", "Put together what shards have found");
  add_scenario(*merge, options.scenario);
  merge->add_option("logs", options.logs, "The logs of all shards")->required()->type_name("FILE");
  add_output(*merge, options.output);
  command->require_subcommand(0, 1);
}

void add_check(CLI::App& app, CheckOptions& options) {
  CLI::App* command = app.add_subcommand("check", "Say what is wrong with scenarios, or OK");
  command->add_option("scenarios", options.paths, "The scenario files")
      ->required()
      ->type_name("FILE");
  add_sets(*command, options.sets);
  add_root(*command, options.root);
  command->add_flag("--json", options.json, "Print one JSON object instead of text");
}

void add_explain(CLI::App& app, ExplainOptions& options) {
  CLI::App* command = app.add_subcommand(
      "explain", "Show what a scenario comes to: values, origins, ranks, memory");
  add_scenario(*command, options.scenario);
  add_word(*command, "--variant", options.variant, "Explain this variant", "NAME");
  command->add_option("--stage", options.stage, "Show one stage only")
      ->type_name("STAGE")
      ->check(CLI::IsMember(explain_stages()));
}

void add_new(CLI::App& app, NewOptions& options) {
  CLI::App* command = app.add_subcommand(
      "new", "Write a scenario to start from: a network on GPUs, with a plan that fits");
  add_word(*command, "--model", options.model, "The network, a preset", "NAME");
  add_word(*command, "--hf", options.hugging_face,
           "The network, a Hugging Face config.json, as a path from where the scenario will be",
           "FILE");
  add_word(*command, "--gpus", options.gpus, "GPUs: 8xh100, 64xa100-80gb, 2x4090", "COUNTxNAME")
      ->required();
  constexpr int kMostBatch = 1'000'000'000;
  constexpr int kMostTokens = 100'000'000;
  add_count(*command, "--global-batch", options.global_batch,
            "Samples of a step (default: about a million tokens, or 32 images a GPU)", 1,
            kMostBatch);
  add_count(*command, "--sequence-length", options.sequence_length,
            "Tokens of a sequence (default: 4096, or what the network takes)", 1, kMostTokens);
  add_root(*command, options.root);
}

void add_presets(CLI::App& app, PresetsOptions& options) {
  CLI::App* command = app.add_subcommand("presets", "List the shipped machines and models");
  command->add_subcommand("list", "List them (the default)");
  CLI::App* show = command->add_subcommand("show", "Print one");
  show->add_option("name", options.show, "The preset")->required()->type_name("NAME");
  command->require_subcommand(0, 1);
}

void add_schedules(CLI::App& app, SchedulesOptions& options) {
  CLI::App* command = app.add_subcommand("schedules", "List the pipeline schedules, or draw one");
  command->add_subcommand("list", "List them (the default)");
  CLI::App* show = command->add_subcommand("show", "Draw one");
  show->add_option("name", options.show, "The schedule")->required()->type_name("NAME");
  const auto number = [show](const char* names, int& value, const char* about, int least,
                             int most) { add_count(*show, names, value, about, least, most); };
  number("-p,--stages", options.stages, "Stages (default 4)", 1, 256);
  number("-m,--microbatches", options.microbatches, "Micro-batches (default 8)", 1, 4096);
  number("-v,--chunks", options.chunks, "Chunks per stage (default: the schedule's)", 1, 64);
  number("--f", options.forward, "Ticks of a forward (default 1)", 1, 1000);
  number("--b", options.backward_input, "Ticks of the gradients of inputs (default 1)", 1, 1000);
  number("--w", options.backward_weight, "Ticks of the gradients of weights (default 1)", 1, 1000);
  number("--c", options.communication, "Ticks of a message (default 0)", 0, 1000);
  number("--in-flight", options.most_in_flight,
         "Micro-batches a stage can hold, for schedules made for a memory (default: any)", 1, 4096);
  show->add_flag("--overlap-passes", options.overlap_passes,
                 "Of 1f1b and interleaved_1f1b: forwards in turns with the next backwards");
  show->add_option("--at", options.at,
                   "Name what each stage does in these ticks, the first of which is 1: 1,2,5,6")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 30))
      ->type_name("T,T,...")
      ->allow_extra_args(false);
  show->add_option("--svg", options.svg, "Draw it into this file as well")->type_name("FILE");
  show->add_flag("--json", options.json, "Print one JSON object instead of text");
  command->require_subcommand(0, 1);
}

void add_collective(CLI::App& app, CollectiveOptions& options) {
  CLI::App* command = app.add_subcommand(
      "collective", "Predict a collective on a machine, in the columns of nccl-tests");
  command->add_option("op", options.collective, "all-reduce, all-gather, reduce-scatter, ...")
      ->required()
      ->type_name("OP");
  command
      ->add_option("--cluster", options.cluster,
                   "A preset of a cluster or a server, or the file of one (.json) or of a scenario")
      ->required()
      ->type_name("NAME");
  constexpr int kMost = 1 << 20;
  add_count(*command, "--servers", options.servers, "Servers (default: the cluster's, or one)", 1,
            kMost);
  add_count(*command, "--ranks", options.ranks, "GPUs that take part (default: all)", 2, kMost);
  add_count(*command, "--per-server", options.per_server, "Of a server (default: all)", 1, kMost);
  command->add_option("-b", options.least, "Smallest buffer (default 8)")->type_name("SIZE");
  command->add_option("-e", options.most, "Largest buffer (default 1G)")->type_name("SIZE");
  add_count(*command, "-f", options.factor, "From one size to the next (default 2)", 2, 1024);
  command->add_option("--fidelity", options.fidelity, "closed_form (default) or flow")
      ->type_name("WORD")
      ->check(CLI::IsMember(fidelities()));
  command->add_option("--algorithm", options.algorithm, "How it is carried out (default auto)")
      ->type_name("NAME")
      ->check(CLI::IsMember(collective_algorithms()));
  command->add_option("--protocol", options.protocol, "NCCL's: auto (default), ll, ll128, simple")
      ->type_name("NAME")
      ->check(CLI::IsMember(collective_protocols()));
  command->add_flag("--json", options.json, "Print one JSON object instead of text");
}

void add_kernel(CLI::App& app, KernelCommandOptions& options) {
  CLI::App* command = app.add_subcommand(
      "kernel", "Predict single kernels on a GPU: time, what it rests on, interval");
  command
      ->add_option("spec", options.specs,
                   "gemm:4096x4096x4096,dtype=bf16 and so on (docs/kernel.md)")
      ->type_name("SPEC");
  add_word(*command, "--gpu", options.gpu, "The GPU, a preset", "NAME")->required();
  command
      ->add_option("--file", options.files,
                   "Kernels, one a line: CSV whose first line names the keys, among them kind")
      ->type_name("FILE.csv")
      ->allow_extra_args(false)
      ->take_all();
  add_word(*command, "--calibration", options.calibration,
           "Profile, a name or a path; kind: medians of GPUs like it; none: the datasheet "
           "(default: the GPU's own, else kind)",
           "PROFILE");
  command->add_flag("--csv", options.csv, "Print one line of comma-separated values per kernel");
  command->add_flag("--json", options.json, "Print one JSON object instead of text")
      ->excludes("--csv");
}

CLI::App* add_import_format(CLI::App& app, ImportCommandOptions& options, const std::string& format,
                            const std::string& about) {
  CLI::App* command = app.add_subcommand(format, about);
  command->add_option("file", options.path, "What the tool has written")
      ->required()
      ->type_name("FILE");
  add_word(*command, "-o,--output", options.output,
           "Write samples into this file (default: standard output)", "FILE.jsonl");
  command->add_flag("--force", options.force, "Replace an earlier file");
  command->add_option("--gpu", options.gpu, "The GPUs' name, where the file does not say it")
      ->type_name("NAME");
  return command;
}

void add_import_server(CLI::App& app, ImportCommandOptions& options) {
  CLI::App* command = app.add_subcommand(
      "server", "A server preset from nvidia-smi topo -m, or from NCCL's topology XML");
  command->add_option("file", options.path, "What nvidia-smi or NCCL_TOPO_DUMP_FILE has written")
      ->required()
      ->type_name("FILE");
  add_word(*command, "-o,--output", options.output,
           "Write the preset into this file, best in a folder configs/servers (default: "
           "standard output)",
           "NAME.json");
  command->add_flag("--force", options.force, "Replace an earlier file");
  add_word(*command, "--gpu", options.gpu,
           "A GPU preset, or the driver's name of one, where the file does not say it", "NAME");
  add_word(*command, "--intra", options.links,
           "How the GPUs are joined, where the file does not say it or is wrong", "KIND")
      ->check(CLI::IsMember(import_links()));
  add_word(*command, "--nic-bandwidth", options.nic_bandwidth,
           "Line rate of one NIC, 400Gbps, where the file does not say it", "RATE");
  add_word(*command, "--pcie-bandwidth", options.pcie_bandwidth,
           "Of a slot and direction, 24GB/s (default: the file's, or the GPU's own)", "RATE");
}

void add_import(CLI::App& app, ImportCommandOptions& options) {
  CLI::App* command =
      app.add_subcommand("import", "Make samples, or a server preset, from files of other tools");
  command->require_subcommand(1);
  CLI::App* nccl =
      add_import_format(*command, options, "nccl-tests", "A log of nccl-tests, or its -J file");
  nccl->add_option("--collective", options.collective, "What was measured, where the log is silent")
      ->type_name("NAME")
      ->check(CLI::IsMember(import_collectives()));
  constexpr int kMost = 1 << 20;
  add_count(*nccl, "--ranks", options.ranks, "GPUs that took part, where the log is silent or cut",
            2, kMost);
  add_count(*nccl, "--servers", options.servers, "Their servers, where the log is silent", 1,
            kMost);
  CLI::App* bandwidth =
      add_import_format(*command, options, "nvbandwidth", "The output of nvbandwidth --json");
  bandwidth->add_option("--buffer", options.buffer, "Its --bufferSize (default: 512MiB)")
      ->type_name("BYTES");
  add_import_format(*command, options, "smi-topo", "The output of nvidia-smi topo -m");
  add_import_server(*command, options);
}

void add_fit_base(CLI::App* command, FitBaseOptions& options) {
  command
      ->add_option("--base", options.profile,
                   "Take what was not measured from this profile: auto (default: that of the GPU, "
                   "or of one like it), kind (medians), none, a name or a path")
      ->type_name("PROFILE");
  add_count(*command, "--channels", options.channels,
            "Multiprocessors that a collective holds (default: the base's)", 0, 1024);
  add_count(*command, "--p2p-channels", options.point_to_point_channels,
            "Multiprocessors that a send or receive holds (default: the base's)", 0, 1024);
}

void add_fit(CLI::App& app, FitCommandOptions& options) {
  CLI::App* command = app.add_subcommand("fit", "Make a profile from what probes have measured");
  command->add_option("samples", options.samples, "Files of samples (docs/samples.md)")
      ->required()
      ->type_name("FILE");
  add_word(*command, "-o,--output", options.output, "Write this profile, and a page beside it",
           "PROFILE.json")
      ->required();
  command->add_option("--gpu", options.gpu, "The preset of the GPU, if its name does not tell")
      ->type_name("NAME");
  command->add_option("--name", options.name, "The profile's name (default: the GPU's)")
      ->type_name("NAME");
  add_fit_base(command, options.base);
  command->add_option("--attention", options.attention, "Attention kernels: cudnn or tiled")
      ->type_name("WORD")
      ->check(CLI::IsMember({"cudnn", "tiled"}));
  command->add_flag("--json", options.json, "Print one JSON object instead of text");
  command->add_flag("--force", options.force, "Replace an earlier profile");
}

void add_calibrate(CLI::App& app, CalibrateOptions& options) {
  CLI::App* command =
      app.add_subcommand("calibrate", "Measure this machine's GPUs and make a profile of them");
  command
      ->add_option("--device", options.device,
                   "gpu (default), or cpu: operators of PyTorch on the processors, and messages "
                   "between two network namespaces")
      ->type_name("WORD")
      ->check(CLI::IsMember({"gpu", "cpu"}));
  add_word(*command, "--gpu", options.gpu, "The preset of the device, if its name does not tell",
           "NAME");
  add_word(*command, "--threads", options.threads, "cpu: cores that are one device (default: all)",
           "N");
  add_word(*command, "-o,--output", options.output,
           "Write this profile (default: calibration.json), and a page beside it", "PROFILE.json");
  add_word(*command, "--samples", options.samples,
           "Append what is measured to this file (default: PROFILE.samples.jsonl)", "FILE");
  add_word(*command, "--suite", options.suite,
           "Run these suites of probes only, of machine, launch, gemm, memory, attention, "
           "convolution, copy, p2p, collective, overlap (default: all)",
           "A,B");
  add_word(*command, "--devices", options.devices, "Measure these devices (default: all)", "0,1");
  add_word(*command, "--budget", options.budget,
           "Seconds to measure for (default: 540, with --quick 50)", "SECONDS");
  command->add_flag("--quick", options.quick, "Less than a minute, coarse");
  add_fit_base(command, options.base);
  command->add_flag("--json", options.json, "Print one JSON object instead of text");
  command->add_flag("--force", options.force, "Replace an earlier profile");
}

}  // namespace

void declare_options(CLI::App& app, Options& options) {
  app.fallthrough();  // before any subcommand is made, so that global options work anywhere
  app.require_subcommand(1);
  app.footer(kFooter);
  app.set_version_flag("--version", "trainyard " + std::string(kVersion));
  app.add_flag("-q,--quiet", options.quiet, "No notes, warnings or progress on standard error");
  app.add_option("--color", options.color, "auto, always or never; NO_COLOR is respected")
      ->type_name("WHEN")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  add_new(app, options.new_scenario);
  add_run(app, options.run);
  add_compare(app, options.compare);
  add_validate(app, options.validate);
  add_search(app, options.search);
  add_check(app, options.check);
  add_explain(app, options.explain);
  add_presets(app, options.presets);
  add_schedules(app, options.schedules);
  add_collective(app, options.collective);
  add_kernel(app, options.kernel);
  add_import(app, options.import_log);
  add_fit(app, options.fit);
  add_calibrate(app, options.calibrate);
  app.add_subcommand("schema", "Print the JSON Schema of scenario files")
      ->add_flag("--markdown", options.schema.markdown,
                 "Print docs/scenario.md, every key, instead");
  CLI::App* completion = app.add_subcommand("completion", "Print a script that completes commands");
  for (const std::string shell : {"bash", "zsh"})
    completion->add_subcommand(shell, "source <(trainyard completion " + shell + ")");
  completion->add_subcommand("fish", "trainyard completion fish | source");
  completion->require_subcommand(1);
  app.add_subcommand("manual", "Print the manual page: trainyard manual | man -l -");
}

}  // namespace trainyard::cli
