// Which cases a law is fitted on and which it is judged by.
//
// Cases are clustered first (single linkage: two cases nearer than the distance in every coordinate
// belong together), then whole clusters are dealt, so that no held-out case has a near relative in
// the fitted set. A cluster's place in the deal is a hash of its own coordinates: it depends
// neither on the order of lines nor on what else was measured.
#pragma once

#include <cstdint>
#include <vector>

namespace trainyard::fit {

using Coordinates = std::vector<double>;  // logarithms of sizes

struct Split {
  std::vector<bool> held_out;  // of each point
  std::vector<int> cluster;    // of each point
  int clusters = 0;
  double distance = 0;  // in each coordinate; smaller than asked where all would be one cluster
};

// Holds out about `share` of the points, in whole clusters, and never so many that no cluster is
// left to fit; nothing where there are fewer than `fewest` points or three clusters. Requires: all
// points of the same number of coordinates.
Split split(const std::vector<Coordinates>& points, double distance, double share = 0.3,
            int fewest = 8);

// The other question: another size of a place that was fitted. Of each place with five sizes or
// more, further apart than the distance, holds out every fifth or fewer of those between the
// smallest and the largest, chosen by a hash. Requires: one size per point.
std::vector<bool> split_inside(const std::vector<Coordinates>& points,
                               const std::vector<double>& sizes, double distance);

}  // namespace trainyard::fit
