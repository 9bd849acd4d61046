// trainyard import: files of other tools become samples, or a server preset.
#include "calibrate/import/import.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "calibrate/import/nccl_kinds.h"
#include "cli/commands.h"
#include "cli/commands/unknown_name.h"
#include "cli/find_gpu.h"
#include "cli/output_folder.h"
#include "cli/server_file.h"
#include "sim/base/text.h"
#include "sim/json/quantity.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMostBytes = std::uintmax_t{256} << 20;

[[noreturn]] void refuse(const std::string& path, std::string message) {
  Diagnostic diagnostic;
  diagnostic.at.file = path;
  diagnostic.message = std::move(message);
  throw ScenarioError({diagnostic});
}

std::string content(const std::string& path) {
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (!fs::exists(status)) refuse(path, "does not exist");
  if (!fs::is_regular_file(status)) refuse(path, "is not a regular file");
  const std::uintmax_t size = fs::file_size(path, code);
  if (code || size > kMostBytes) refuse(path, "is larger than 256 MiB");
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad() || text.size() != size) fail_input(path, "cannot be read");
  return text;
}

imports::Imported import_text(const ImportCommandOptions& options, const std::string& text) {
  imports::ImportOptions given;
  given.collective = options.collective;
  given.ranks = options.ranks;
  given.servers = options.servers;
  given.gpu = options.gpu;
  if (options.format == "nccl-tests") return imports::import_nccl_tests(text, options.path, given);
  if (options.format == "smi-topo") return imports::import_smi_topo(text, options.path, given);
  const json::Parsed<Bytes> buffer = json::parse_bytes(options.buffer);
  if (!buffer.ok()) throw UsageError("--buffer: " + buffer.problem);
  if (buffer.value.count() <= 0) throw UsageError("--buffer: must be more than nothing");
  given.buffer = buffer.value;
  return imports::import_nvbandwidth(text, options.path, given);
}

BytesPerSecond rate_of(const char* option, const std::string& text) {
  if (text.empty()) return BytesPerSecond(0);
  const json::Parsed<BytesPerSecond> rate = json::parse_bandwidth(text);
  if (!rate.ok()) throw UsageError(fmt::format("{}: {}", option, rate.problem));
  if (rate.value.count() <= 0)
    throw UsageError(fmt::format("{}: must be more than nothing", option));
  return rate.value;
}

// The description of a server, whichever of its two formats the file has.
imports::Imported import_server_text(const ImportCommandOptions& options, const std::string& text) {
  imports::ImportOptions given;
  const std::string called = options.gpu.empty() ? "" : gpu_called(options.gpu, "--gpu");
  given.gpu = called.empty() ? options.gpu : called;  // or as the driver calls it
  given.for_preset = true;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_xml = first != std::string::npos && text[first] == '<';
  return is_xml ? imports::import_nccl_topo(text, options.path, given)
                : imports::import_smi_topo(text, options.path, given);
}

std::string server_text(const ImportCommandOptions& options, const Context& context) {
  ServerQuestions asked;
  asked.file = options.path;
  asked.links = options.links;
  asked.nic_bandwidth = rate_of("--nic-bandwidth", options.nic_bandwidth);
  asked.pcie_bandwidth = rate_of("--pcie-bandwidth", options.pcie_bandwidth);
  asked.name = fs::path(options.output.empty() ? options.path : options.output).stem().string();
  imports::Imported imported = import_server_text(options, content(options.path));
  if (!imported.ok()) throw ScenarioError(std::move(imported.diagnostics));
  context.console.diagnostics(imported.diagnostics);
  return described_server_file(imports::samples_text(imported.samples), asked);
}

void write(const ImportCommandOptions& options, const std::string& text, const Context& context) {
  const fs::path path(options.output);
  if (path.filename().empty())
    throw UsageError(fmt::format("'{}' is no name for a file", escape_control(options.output)));
  std::error_code code;
  if (!options.force && fs::exists(fs::symlink_status(path, code)))
    throw EnvironmentError(fmt::format("{}: exists; choose another name or use --force",
                                       escape_control(options.output)));
  const fs::path folder = path.parent_path();
  // The folder may hold other things: samples are collected beside each other.
  OutputFolder output(folder.empty() ? "." : folder.string(), true, context.interrupts,
                      FolderKind::files);
  output.write({{path.filename().string(), text}}, {options.path});
}

}  // namespace

std::vector<std::string> import_collectives() {
  std::vector<std::string> names;
  for (const imports::NcclKind& kind : imports::nccl_kinds())
    names.emplace_back(kind.collective);
  return names;
}

std::vector<std::string> import_links() {
  return {"nvswitch", "pcie", "none"};
}

ExitCode import_log(const ImportCommandOptions& options, const Context& context) {
  const bool is_server = options.format == "server";
  std::string text, what;
  if (is_server) {
    text = server_text(options, context);
    what = "server preset";
  } else {
    imports::Imported imported = import_text(options, content(options.path));
    if (!imported.ok()) throw ScenarioError(std::move(imported.diagnostics));
    context.console.diagnostics(imported.diagnostics);
    text = imports::samples_text(imported.samples);
    what = fmt::format("{} samples", imported.samples.size());
  }
  if (options.output.empty()) {
    context.console.result(text);
    return ExitCode::done;
  }
  write(options, text, context);
  what += fmt::format(": {}\n", escape_control(options.output));
  if (is_server)
    what += fmt::format(
        "use: \"node\": {{\"preset\": \"{}\"}} in the cluster of a scenario whose folder, or one "
        "above, has this file as configs/servers/{}\n",
        escape_control(fs::path(options.output).stem().string()),
        escape_control(fs::path(options.output).filename().string()));
  context.console.result(what);
  return ExitCode::done;
}

}  // namespace trainyard::cli
