// To rent GPUs or to buy servers.
//
//   own rate per GPU-hour of training = energy + (yearly / (8,760 u) + price / (8,760 u years)) / n
//   energy = (watts of a GPU + host watts / n) x PUE x price of a kWh / 1,000
//   running cost r = energy + yearly / (8,760 u n)
//   break-even = price / n / (cloud rate - r) GPU-hours of one GPU
//
// with n GPUs in a server that trains a share u of the time. A server that does not train is off.
#pragma once

#include <optional>
#include <vector>

#include "sim/base/units.h"

namespace trainyard::recipe {
struct Ownership;
}

namespace trainyard::simulate {

// By how much of the time a server trains.
struct OwnAtUse {
  double utilisation = 1;
  double gpu_hour = 0;                     // dollars for one of training
  std::optional<double> break_even_years;  // empty: never
};

// Dollars for one GPU since it was bought or first rented.
struct SpentBy {
  double years = 0, cloud = 0, own = 0;
};

struct CloudOrOwn {
  double cloud_gpu_hour = 0;     // what is paid for one that is rented
  double purchase = 0;           // of one GPU's share of a server
  double energy = 0, fixed = 0;  // running cost of one GPU-hour: electricity; yearly
  double own_gpu_hour = 0;       // with the purchase spread over its years
  double watts = 0, pue = 1;     // of one GPU and its share of the host; of the site
  double years = 0, utilisation = 1;
  std::optional<double> break_even_hours;  // of training, of one GPU; empty: never
  std::optional<double> break_even_years;
  std::optional<double> least_utilisation;  // from which owning is cheaper; empty: from none
  bool own_is_cheaper = false;              // over its years
  std::vector<OwnAtUse> by_use;
  std::vector<SpentBy> curve;  // from 0 to `years`, or further to where they meet
  std::optional<double> training_cloud, training_own;  // of the whole training, if it is known
};

// `gpu_watts`: mean of a GPU that trains. Requires: what the reader accepts.
CloudOrOwn cloud_or_own(const recipe::Ownership& own, double cloud_gpu_hour, Watts gpu_watts,
                        int gpus_per_server);

}  // namespace trainyard::simulate
