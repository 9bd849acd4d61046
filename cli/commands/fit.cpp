// trainyard fit: samples that probes measured become a profile and a page about it.
#include "calibrate/fit/fit.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "cli/commands.h"
#include "cli/find_base.h"
#include "cli/find_gpu.h"
#include "cli/output_folder.h"
#include "cli/server_file.h"
#include "sim/base/text.h"
#include "sim/scenario/scenario.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

struct Target {
  std::string folder, profile, page, server;  // names without the folder
  std::string name;                           // without an extension
};

Target target_of(const std::string& output) {
  const fs::path path(output);
  if (path.filename().empty() || path.extension() != ".json")
    throw UsageError(
        fmt::format("'{}' is no name for a profile; write -o NAME.json", escape_control(output)));
  const fs::path folder = path.parent_path();
  const std::string name = path.stem().string();
  return {folder.empty() ? "." : folder.string(), path.filename().string(), name + ".html",
          name + ".server.json", name};
}

// Nobody's profile is replaced by a slip of the keyboard; page and server belong to it.
void refuse_to_overwrite(const Target& target) {
  for (const std::string& name : {target.profile, target.page, target.server}) {
    const fs::path path = fs::path(target.folder) / name;
    std::error_code code;
    if (fs::exists(fs::symlink_status(path, code)))
      throw EnvironmentError(fmt::format("{}: exists; choose another name or use --force",
                                         escape_control(path.string())));
  }
}

}  // namespace

ExitCode fit(const FitCommandOptions& options, const Context& context) {
  const Target target = target_of(options.output);
  if (!options.force) refuse_to_overwrite(target);
  fit::FitOptions fit_options;
  fit_options.name = options.name;
  fit_options.attention = options.attention;
  const std::optional<fit::MeasuredMachine> machine = read_machine(options.samples);
  std::string shipped_gpu;
  fit_options.find_gpu = [&](const std::string& device) {
    const auto by_name = find_gpu_of_device(device);
    const auto shipped = options.gpu.empty() ? by_name : find_gpu_preset(options.gpu);
    if (shipped) shipped_gpu = shipped->name;
    if (shipped && by_name && by_name->name != shipped->name)
      context.console.note(
          fmt::format("'{}' is {} by its name; its samples are fitted as {}, as "
                      "--gpu says",
                      escape_control(device), by_name->name, shipped->name));
    return shipped ? shipped : gpu_of_machine(machine);
  };
  fit_options.find_base = [&](const fit::FitGpu& gpu) {
    return find_base(options.base.profile, gpu, capability_of_machine(machine));
  };
  if (options.base.channels >= 0) fit_options.channels = options.base.channels;
  if (options.base.point_to_point_channels >= 0)
    fit_options.point_to_point_channels = options.base.point_to_point_channels;
  context.console.progress("fitting");
  const fit::FitResult result = fit::fit_samples(options.samples, fit_options);
  context.console.end_progress();
  context.console.diagnostics(result.warnings);
  // The folder may hold other things: every profile lives beside others.
  OutputFolder folder(target.folder, true, context.interrupts, FolderKind::files);
  std::vector<OutputFile> files = {{target.profile, profile_json(result.profile)},
                                   {target.page, fit::calibration_html(result)}};
  const std::string server = server_file(machine, target.name, shipped_gpu);
  if (!server.empty()) files.push_back({target.server, server});
  folder.write(files, options.samples);
  std::string text = options.json ? fit::fit_json(result) : fit::fit_text(result);
  const auto in_folder = [&](const std::string& name) {
    return escape_control((fs::path(target.folder) / name).lexically_normal().string());
  };
  if (!options.json)
    text += fmt::format("\nprofile: {}\npage: {}\n", escape_control(options.output),
                        in_folder(target.page));
  if (!options.json && !server.empty())
    text += fmt::format("server: {}\n", in_folder(target.server));
  if (!options.json)
    text +=
        fmt::format("use: \"calibration\": \"{}\" in the cluster of a scenario in this folder\n",
                    escape_control(options.output));
  context.console.result(text);
  return ExitCode::done;
}

}  // namespace trainyard::cli
