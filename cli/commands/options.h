// What the command line says, as one value of all commands, and how each option is written.
#pragma once

#include <string>

#include "cli/commands.h"

namespace CLI {
class App;
}

namespace trainyard::cli {

struct Options {
  std::string color = "auto";
  bool quiet = false;
  RunOptions run;
  CompareOptions compare;
  ValidateOptions validate;
  CheckOptions check;
  SearchCommandOptions search;
  ExplainOptions explain;
  PresetsOptions presets;
  SchedulesOptions schedules;
  CollectiveOptions collective;
  KernelCommandOptions kernel;
  ImportCommandOptions import_log;
  FitCommandOptions fit;
  CalibrateOptions calibrate;
  SchemaOptions schema;
  NewOptions new_scenario;
};

// Makes the commands and their options; parsing writes into `options`, which outlives the app.
void declare_options(CLI::App& app, Options& options);

}  // namespace trainyard::cli
