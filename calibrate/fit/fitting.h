// What the fits of the kinds share: the cases, the GPU, and the result that they fill.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/fit/fit.h"
#include "calibrate/fit/law_fit.h"
#include "calibrate/fit/samples/samples.h"
#include "calibrate/fit/statistics.h"

namespace trainyard::fit {

struct Fitting {
  const FitOptions& options;
  const FitGpu& gpu;
  const std::vector<Sample>& samples;  // merged, by key
  const Machine& machine;
  FitResult& result;

  cost::Profile& profile() const { return result.profile; }

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

  // False, with a warning and the samples set aside, if a law of so many constants would be fitted
  // to fewer than `fewest` different cases.
  bool enough(const std::vector<const Sample*>& samples, std::size_t cases, std::size_t fewest,
              const std::function<void(const Sample&, FitRecord&)>& describe) const;

  // Of a law whose records are all those from `first_record` on.
  cost::Provenance provenance(const std::string& samples, std::size_t first_record) const;
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
void fit_collective_start(const Fitting& fitting);
void fit_point_to_point(const Fitting& fitting);
void fit_copies(const Fitting& fitting);
void fit_launch(const Fitting& fitting);
void fit_overlap(const Fitting& fitting);
// Last: what nobody measured, from the base and the options.
void carry_over(const Fitting& fitting);

// As tables and the page name a law of messages.
std::string title(std::string_view collective, int ranks, int servers);
std::string spelled(models::MemoryOp op);
// Nothing for send and receive.
std::optional<CollectiveKind> kind_of(const std::string& collective);
// Among ranks that are none: its bandwidth means nothing.
bool is_virtual(const CollectiveCase& c);
// What is further than ten times from its law describes something else than its shape; profiles
// refuse it.
constexpr bool in_a_table(double factor) {
  return factor >= 0.1 && factor <= 10;
}
// "from profile h100-sxm5-80gb, made on h100-sxm5-80gb", or what the user gave.
std::string origin(const cost::Provenance& from);
// Different cases among points of the same number of coordinates.
std::size_t distinct(std::vector<Coordinates> places);

// The size of the row that says how well other m of the fitted families are predicted.
inline constexpr const char* kOtherSizes = "m not fitted of an (n, k) that was";

// Errors of the records by group, all sizes and classes of size.
std::vector<cost::HeldOutError> errors_by_group(const std::vector<FitRecord>& records);

}  // namespace trainyard::fit
