// trainyard-probe: measures a machine and appends samples to a file (docs/samples.md,
// docs/calibration.md). Needs nothing but the CUDA toolkit; builds also, in this folder, with
//   nvcc -std=c++17 -O2 -gencode arch=compute_80,code=sm_80
//     -gencode 'arch=compute_90,code=[sm_90,compute_90]' -o trainyard-probe
//     -Ihost -Ikernels -Iring -Isuites -Ivendor */*.cu */*.cpp main.cpp -lcublasLt -ldl
// (add -DTRAINYARD_PROBE_CUDNN -lcudnn for convolution and attention by cuDNN, and
// -DTRAINYARD_PROBE_NCCL -lnccl for collectives).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "suite.h"

namespace trainyard::probe {
namespace {

constexpr int kDone = 0;
constexpr int kUsage = 2;
constexpr int kEnvironment = 4;
constexpr double kFullSeconds = 540;
constexpr double kQuickSeconds = 50;

struct Options {
  std::string output = "samples.jsonl";
  std::vector<std::string> suites;  // empty: all
  std::vector<int> devices;         // empty: all
  double budget = 0;                // seconds; 0: by `quick`
  bool quick = false;
  bool list = false;
  bool help = false;
};

class UsageError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr const char* kHelp =
    R"(usage: trainyard-probe [--output FILE] [--suite LIST] [--quick] [--budget SECONDS]
                       [--devices LIST]

Measures this machine and appends one JSON object per measurement to FILE.

  -o, --output FILE   where samples go (default: samples.jsonl; - is standard output)
  --suite LIST        run these suites only, separated by commas (default: all)
  --quick             less than a minute in all; coarse
  --budget SECONDS    time in all (default: 540, with --quick 50)
  --devices LIST      CUDA ordinals, separated by commas (default: all). One-device suites
                      measure the first
  --list              print the suites
  -h, --help          print this

Ctrl-C stops at the next measurement; what was measured is kept.
Exit codes: 0 done, 2 wrong command line, 4 no device, or a suite failed, 130 or 143 interrupted.
)";

std::vector<std::string> split(const std::string& list, const std::string& option) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    if (end == begin) throw UsageError(option + ": '" + list + "' has an empty name");
    words.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

double positive(const std::string& text, const std::string& option) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value > 0) || value > 1e6)
    throw UsageError(option + " wants seconds, not '" + text + "'");
  return value;
}

std::vector<int> ordinals(const std::string& text) {
  std::vector<int> devices;
  for (const std::string& word : split(text, "--devices")) {
    char* end = nullptr;
    const long value = std::strtol(word.c_str(), &end, 10);
    if (*end != '\0' || value < 0 || value > 1023)
      throw UsageError("--devices wants numbers, not '" + word + "'");
    if (std::find(devices.begin(), devices.end(), value) != devices.end())
      throw UsageError("--devices names " + word + " twice");
    devices.push_back(static_cast<int>(value));
  }
  return devices;
}

const Suite* find_suite(const std::string& name) {
  for (const Suite& suite : suites())
    if (suite.name == name) return &suite;
  return nullptr;
}

std::vector<std::string> suite_names(const std::string& text) {
  std::vector<std::string> names = split(text, "--suite");
  for (const std::string& name : names) {
    if (find_suite(name) != nullptr) continue;
    std::string known;
    for (const Suite& suite : suites())
      known += (known.empty() ? "" : ", ") + std::string(suite.name);
    throw UsageError("there is no suite '" + name + "'; there are " + known);
  }
  return names;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    std::optional<std::string> attached;
    if (word.rfind("--", 0) == 0 && word.find('=') != std::string::npos) {
      attached = word.substr(word.find('=') + 1);
      word.erase(word.find('='));
    }
    const auto value = [&]() -> std::string {
      if (attached) return *std::exchange(attached, std::nullopt);
      if (i + 1 >= argc) throw UsageError(word + " wants a value");
      return argv[++i];
    };
    if (word == "-o" || word == "--output")
      options.output = value();
    else if (word == "--suite")
      options.suites = suite_names(value());
    else if (word == "--budget")
      options.budget = positive(value(), word);
    else if (word == "--devices")
      options.devices = ordinals(value());
    else if (word == "--quick")
      options.quick = true;
    else if (word == "--list")
      options.list = true;
    else if (word == "-h" || word == "--help")
      options.help = true;
    else
      throw UsageError("'" + word + "' is unknown");
    if (attached) throw UsageError(word + " takes no value");
  }
  return options;
}

std::vector<DeviceInfo> chosen_devices(const Options& options) {
  const int count = device_count();
  std::vector<DeviceInfo> devices;
  for (const int index : options.devices) {
    if (index >= count)
      throw NoDevice("--devices names " + std::to_string(index) + ", but the machine has " +
                     std::to_string(count) + " (counted from 0)");
    devices.push_back(device_info(index));
  }
  for (int index = 0; options.devices.empty() && index < count; ++index)
    devices.push_back(device_info(index));
  for (const DeviceInfo& device : devices)
    need_kernels(device);
  return devices;
}

std::vector<const Suite*> chosen_suites(const Options& options, std::size_t devices) {
  std::vector<const Suite*> chosen;
  for (const Suite& suite : suites()) {
    const bool named =
        std::find(options.suites.begin(), options.suites.end(), suite.name) != options.suites.end();
    const bool wanted = options.suites.empty() ? !suite.several || devices > 1 : named;
    if (wanted || suite.name == "machine") chosen.push_back(&suite);
  }
  return chosen;
}

int measure_all(const Options& options) {
  const double seconds =
      options.budget > 0 ? options.budget : (options.quick ? kQuickSeconds : kFullSeconds);
  const Budget whole(seconds);  // begins here: CUDA takes seconds to start on many devices
  const std::vector<DeviceInfo> devices = chosen_devices(options);
  SampleFile samples(options.output);
  Progress progress(whole);
  const std::vector<const Suite*> chosen = chosen_suites(options, devices.size());
  double shares = 0;
  for (const Suite* suite : chosen)
    shares += suite->share;
  int code = kDone;
  std::string late;
  for (const Suite* suite : chosen) {
    if (interrupt_signal() != 0) break;
    // What a suite leaves over goes to those after it.
    const double part = std::max(0.0, whole.left()) * suite->share / shares;
    shares -= suite->share;
    if (part <= 0) {  // not even for the memory that it would take
      late += (late.empty() ? "" : ", ") + std::string(suite->name);
      continue;
    }
    try {
      PROBE_CUDA(cudaSetDevice(devices.front().index));
      Context context{samples, devices, progress, Budget(part), options.quick};
      progress.show(std::string(suite->name));
      suite->run(context);
    } catch (const std::exception& error) {
      progress.note("suite " + std::string(suite->name) + " failed: " + error.what());
      code = kEnvironment;
    }
  }
  if (!late.empty()) progress.note("no time was left for " + late);
  progress.note(std::to_string(samples.written()) + " samples appended to " + options.output);
  return interrupt_signal() != 0 ? 128 + interrupt_signal() : code;
}

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  if (options.help) {
    std::fputs(kHelp, stdout);
    return kDone;
  }
  if (options.list) {
    for (const Suite& suite : suites())
      std::printf("%-12s %s\n", std::string(suite.name).c_str(), std::string(suite.about).c_str());
    return kDone;
  }
  catch_interrupts();
  return measure_all(options);
}

}  // namespace
}  // namespace trainyard::probe

int main(int argc, char** argv) {
  using namespace trainyard::probe;
  try {
    return run(argc, argv);
  } catch (const UsageError& error) {
    std::fprintf(stderr, "trainyard-probe: %s; see 'trainyard-probe --help'\n", error.what());
    return kUsage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trainyard-probe: %s\n", error.what());
    return kEnvironment;
  }
}
