// What a machine line of samples says of the machine itself, for `fit`, `calibrate` and `import`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "calibrate/fit/fit.h"
#include "calibrate/fit/samples/server_preset.h"

namespace trainyard::cli {

// The machine of the last file that has a machine line. Files that cannot be read are passed over:
// the fit reports them.
std::optional<fit::MeasuredMachine> read_machine(const std::vector<std::string>& samples);

// A GPU that no preset describes, by its architecture. Nothing if that is unknown too.
std::optional<fit::FitGpu> gpu_of_machine(const std::optional<fit::MeasuredMachine>& machine);

// Compute capability of its GPUs, "9.0"; empty if it is not said.
std::string capability_of_machine(const std::optional<fit::MeasuredMachine>& machine);

// A file of configs/servers, named `name`; empty if the machine's links are not known.
// `shipped_gpu` is empty for a GPU of gpu_of_machine.
std::string server_file(const std::optional<fit::MeasuredMachine>& machine, const std::string& name,
                        const std::string& shipped_gpu);

// What a description of a server may leave open.
struct ServerQuestions {
  std::string file, name;                        // the description's, and the preset's
  std::string links;                             // "nvswitch", "pcie", "none"; empty: as described
  BytesPerSecond nic_bandwidth, pcie_bandwidth;  // 0: as described
};

// The preset of the server of a machine line. Throws ScenarioError that asks for what neither the
// line nor the options say, or says why no scenario could use the preset.
std::string described_server_file(const std::string& samples, const ServerQuestions& asked);

}  // namespace trainyard::cli
