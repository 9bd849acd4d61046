#include <fmt/format.h>

#include <filesystem>

#include "cli/commands.h"
#include "cli/output_folder.h"
#include "cli/report/schedule_view.h"
#include "sim/base/text.h"

namespace trainyard::cli {
namespace {

const schedule::ScheduleEntry& named(const std::string& name) {
  if (const schedule::ScheduleEntry* entry = schedule::find_schedule(name)) return *entry;
  std::vector<std::string_view> known;
  for (const schedule::ScheduleEntry& entry : schedule::schedules())
    known.push_back(entry.name);
  throw UsageError(fmt::format("no schedule is called '{}'; the nearest are {}",
                               escape_control(name), fmt::join(nearest(name, known, 3), ", ")));
}

void write_file(const std::string& path, std::string content, Interrupts& interrupts) {
  const std::filesystem::path file(path);
  const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
  OutputFolder(folder, true, interrupts, FolderKind::files)
      .write({{file.filename().string(), std::move(content)}}, {});
}

}  // namespace

ExitCode schedules(const SchedulesOptions& options, const Context& context) {
  if (options.show.empty()) {
    context.console.result(report::list_text(schedule::schedules()));
    return ExitCode::done;
  }
  const schedule::ScheduleEntry& entry = named(options.show);
  schedule::PipelineShape shape =
      shape_of(entry, options.stages, options.microbatches, options.chunks);
  shape.paired = options.overlap_passes;
  if (const auto why = entry.unsupported(shape)) throw UsageError(*why);
  const schedule::PassTimes times{.forward = Duration(options.forward),
                                  .backward_input = Duration(options.backward_input),
                                  .backward_weight = Duration(options.backward_weight),
                                  .communication = Duration(options.communication)};
  report::ScheduleView view = report::view_schedule(
      entry, shape, times,
      options.most_in_flight == 0 ? schedule::kNoMemoryLimit : Bytes(options.most_in_flight));
  for (const int tick : options.at) {
    if (tick > view.run.makespan().count())
      throw UsageError(fmt::format("--at {}: the schedule ends with tick {}", tick,
                                   view.run.makespan().count()));
    view.at.push_back(tick);
  }
  if (!options.svg.empty()) {
    write_file(options.svg, to_svg(view), context.interrupts);
    context.console.note("wrote " + escape_control(options.svg));
  }
  context.console.result(options.json ? to_json(view) + "\n" : to_text(view));
  return ExitCode::done;
}

}  // namespace trainyard::cli
