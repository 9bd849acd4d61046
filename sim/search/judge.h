// Judges the configurations of a search: first without a simulation, by what no step can be shorter
// than and no GPU hold less than; then with one.
#pragma once

#include <memory>
#include <vector>

#include "sim/scenario/scenario.h"
#include "sim/search/space.h"
#include "sim/search/trial.h"
#include "sim/simulate/simulate.h"

namespace trainyard::scenario {
class ChangedDocument;
}

namespace trainyard::search {

// May be used from several threads at once.
class Judge {
 public:
  // Everything must outlive it. Throws ScenarioError where the machine cannot be priced.
  Judge(const scenario::ScenarioSet& set, const scenario::SearchSpec& spec, const Space& space);
  ~Judge();
  Judge(const Judge&) = delete;
  Judge& operator=(const Judge&) = delete;

  // Verdict::slower, with its bounds, stands for all that only a simulation can tell.
  Trial outlook(std::uint64_t number) const;
  // Simulates what outlook() left open.
  void simulate(Trial& trial) const;
  // The scenario of a configuration. Requires: one that is valid.
  scenario::Scenario scenario(std::uint64_t number) const;

 private:
  void tell_bounds(const scenario::Scenario& scenario, const simulate::Job& job,
                   Trial& trial) const;
  std::string unwanted(const scenario::Scenario& scenario) const;

  struct Shared;
  const scenario::ScenarioSet& set_;
  const scenario::SearchSpec& spec_;
  const Space& space_;
  std::unique_ptr<Shared> shared_;
};

}  // namespace trainyard::search
