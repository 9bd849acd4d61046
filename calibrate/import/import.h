// From the logs of other tools to samples (docs/samples.md). Pure functions of the text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/base/diagnostic.h"
#include "sim/base/units.h"
#include "sim/json/value.h"

namespace trainyard::imports {

// What the user adds where a log does not say it. Where it does, both must agree.
struct ImportOptions {
  std::string collective;  // "all-reduce"; empty: as the log says
  int ranks = 0;           // 0: as the log says
  int servers = 0;
  std::string gpu;                        // name as the driver says it
  Bytes buffer{std::int64_t{512} << 20};  // of nvbandwidth, which does not write it: its default
  bool for_preset = false;                // of a server: warn of what a preset cannot say
};

// Every row of a log is a sample or has a diagnostic. A warning leaves a row out; after an error
// the samples are not to be used.
struct Imported {
  std::vector<json::Value> samples;
  std::vector<Diagnostic> diagnostics;

  bool ok() const;  // no error
};

// `file` is the name that diagnostics carry.
Imported import_nccl_tests(std::string_view text, const std::string& file,
                           const ImportOptions& options);  // a log, or the file of its option -J
Imported import_nvbandwidth(std::string_view text, const std::string& file,
                            const ImportOptions& options);  // the output of --json
Imported import_smi_topo(std::string_view text, const std::string& file,
                         const ImportOptions& options);  // the output of nvidia-smi topo -m
Imported import_nccl_topo(std::string_view text, const std::string& file,
                          const ImportOptions& options);  // what NCCL_TOPO_DUMP_FILE names

// One line per sample.
std::string samples_text(const std::vector<json::Value>& samples);

}  // namespace trainyard::imports
