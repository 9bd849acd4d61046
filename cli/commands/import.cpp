// trainyard import: logs of other tools become samples.
#include "calibrate/import/import.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "cli/commands.h"
#include "cli/output_folder.h"
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
  if (file.bad() || text.size() != size) throw EnvironmentError(path + ": cannot be read");
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
  OutputFolder output(folder.empty() ? "." : folder.string(), true, context.interrupts);
  output.write({{path.filename().string(), text}}, {options.path});
}

}  // namespace

std::vector<std::string> import_collectives() {
  return {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send-recv"};
}

ExitCode import_log(const ImportCommandOptions& options, const Context& context) {
  imports::Imported imported = import_text(options, content(options.path));
  if (!imported.ok()) throw ScenarioError(std::move(imported.diagnostics));
  context.console.diagnostics(imported.diagnostics);
  const std::string text = imports::samples_text(imported.samples);
  if (options.output.empty()) {
    context.console.result(text);
    return ExitCode::done;
  }
  write(options, text, context);
  context.console.result(
      fmt::format("{} samples: {}\n", imported.samples.size(), escape_control(options.output)));
  return ExitCode::done;
}

}  // namespace trainyard::cli
