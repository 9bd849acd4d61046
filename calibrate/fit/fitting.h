// What the fits of the kinds share: the cases, the GPU, and the result that they fill.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "calibrate/fit/fit.h"
#include "calibrate/fit/law_fit.h"
#include "calibrate/fit/samples.h"
#include "calibrate/fit/statistics.h"

namespace trainyard::fit {

struct Fitting {
  const FitOptions& options;
  const FitGpu& gpu;
  const std::vector<Sample>& samples;  // merged, by key
  const Machine& machine;
  FitResult& result;

  Profile& profile() const { return result.profile; }

  // The samples of one kind that `wanted` accepts, in the order of their keys.
  template <class Case, class Wanted>
  std::vector<const Sample*> choose(Wanted wanted) const {
    std::vector<const Sample*> chosen;
    for (const Sample& sample : samples) {
      const Case* of = std::get_if<Case>(&sample.of);
      if (of != nullptr && wanted(*of)) chosen.push_back(&sample);
    }
    return chosen;
  }

  void warn(const std::string& message, const std::string& hint = {}) const;

  // Adds a record and returns it; size, shape and fate are the caller's.
  FitRecord& record(const Sample& sample, std::string group, double fitted_us) const;
  // For all samples of a task: `describe` fills group, size and shape.
  void records(const LawTask& task, const LawFit& fit,
               const std::function<double(const Sample&)>& fitted_us,
               const std::function<void(const Sample&, FitRecord&)>& describe) const;
  void unused(const std::vector<const Sample*>& samples, const std::string& reason,
              const std::function<void(const Sample&, FitRecord&)>& describe) const;

  // Of a law whose records are all those from `first_record` on.
  Provenance provenance(const std::string& samples, std::size_t first_record) const;
};

template <class Case>
const Case& as(const Sample& sample) {
  return std::get<Case>(sample.of);
}

// One function per kind; each adds its laws and records. GEMM comes first: attention and
// convolution stand on its laws.
void fit_gemm(const Fitting& fitting);
void fit_memory(const Fitting& fitting);
void fit_attention(const Fitting& fitting);
void fit_convolution(const Fitting& fitting);
void fit_collectives(const Fitting& fitting);
void fit_point_to_point(const Fitting& fitting);
void fit_copies(const Fitting& fitting);
void fit_launch(const Fitting& fitting);
void fit_overlap(const Fitting& fitting);

// Errors of the records by group, all sizes and classes of size.
std::vector<HeldOutError> errors_by_group(const std::vector<FitRecord>& records);

}  // namespace trainyard::fit
