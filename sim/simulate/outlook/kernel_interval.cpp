#include "sim/simulate/outlook/kernel_interval.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/json/fields.h"
#include "sim/json/parse.h"
#include "sim/json/reader.h"

namespace trainyard::simulate {

void visit_fields(json::Fields& f, KernelClass& s) {
  f.field("operation", s.operation, json::required, "gemm, attention, ...");
  f.field("profile", s.profile, json::required, "Of GPUs that have a profile of their own.");
  f.field("rows", s.rows, json::required, json::at_least(1), "Measured kernels.");
  f.field("low", s.low, json::required, json::between(1e-3, 1e3),
          "Tenth percentile of measured / predicted.");
  f.field("high", s.high, json::required, json::between(1e-3, 1e3), "Ninetieth.");
  if (s.low > s.high) f.problem("low", "above the ninetieth percentile");
}

namespace {

// Half of the width that 8 in 10 errors take, over their mean size: ln 5 of Laplace errors,
// 1.2816 sqrt(pi / 2) of normal ones.
constexpr double kSpread = 1.61;

struct ClassFile {
  std::string description, command, program;
  std::vector<KernelClass> classes;
};

void visit_fields(json::Fields& f, ClassFile& s) {
  f.field("description", s.description, json::required, "What this is.");
  f.field("command", s.command, json::required, "That wrote it.");
  f.field("program", s.program, json::required, "That predicted.");
  f.sections("classes", s.classes, json::required, "One operation each.");
}

struct OperationOf {
  std::string operator()(const models::Gemm& gemm) const {
    return gemm.grouped ? "grouped_gemm" : "gemm";
  }
  std::string operator()(const models::Attention& /*kernel*/) const { return "attention"; }
  std::string operator()(const models::Convolution& /*kernel*/) const { return "convolution"; }
  std::string operator()(const models::MemoryBound& /*kernel*/) const { return "memory"; }
  std::string operator()(const models::Timed& /*kernel*/) const { return ""; }
};

// Of all samples of the operation that were held out: how many, and the mean size of their errors.
struct HeldOut {
  int samples = 0;
  double error = 0;
};

HeldOut held_out(const cost::Calibration& calibration, const std::string& operation) {
  HeldOut sum;
  for (const cost::HeldOutError& error : calibration.errors) {
    const std::string first = error.what.substr(0, error.what.find_first_of(" ,"));
    if (error.size != "all" || first != operation) continue;
    sum.samples += error.held_out;
    sum.error += error.mape * error.held_out;
  }
  if (sum.samples > 0) sum.error /= sum.samples;
  return sum;
}

}  // namespace

std::string operation_of(const models::Kernel& kernel) {
  return std::visit(OperationOf{}, kernel);
}

std::vector<KernelClass> read_kernel_classes(const std::string& path) {
  std::vector<Diagnostic> diagnostics;
  const json::Value document = json::parse_file(path, diagnostics);
  ClassFile file;
  if (diagnostics.empty()) json::read_object(document, "", file, diagnostics);
  for (const Diagnostic& diagnostic : diagnostics)
    if (diagnostic.severity == Severity::error) throw ScenarioError(std::move(diagnostics));
  return std::move(file.classes);
}

std::string operation_of_collective(Bytes bytes, int servers, Basis basis, bool over_pcie) {
  constexpr Bytes kSmall(std::int64_t{4} << 20);
  return fmt::format("collective {}{} {} 4 MiB{}", servers > 1 ? "between servers" : "in a server",
                     servers == 1 && over_pcie ? " over PCIe" : "",
                     bytes > kSmall ? "above" : "up to",
                     basis == Basis::analytic       ? " in closed form"
                     : basis == Basis::extrapolated ? " extrapolated"
                                                    : "");
}

std::optional<KernelInterval> class_interval(const std::vector<KernelClass>& classes,
                                             const std::string& operation, bool profile,
                                             Seconds time) {
  for (const KernelClass& known : classes)
    if (known.operation == operation && known.profile == profile)
      return KernelInterval{known.low * time, known.high * time,
                            fmt::format("{} measured: {}, GPUs {} a profile", known.rows, operation,
                                        profile ? "with" : "without")};
  return std::nullopt;
}

std::optional<KernelInterval> kernel_interval(const std::vector<KernelClass>& classes,
                                              const std::optional<cost::Calibration>& calibration,
                                              const models::Kernel& kernel, bool profile,
                                              Seconds time) {
  const std::string operation = operation_of(kernel);
  if (profile && calibration) {
    const HeldOut held = held_out(*calibration, operation);
    const double half = kSpread * held.error;
    if (held.samples > 0)
      return KernelInterval{std::max(0.0, 1 - half) * time, (1 + half) * time,
                            fmt::format("{} held-out samples of {}", held.samples, operation)};
  }
  return class_interval(classes, operation, profile, time);
}

}  // namespace trainyard::simulate
