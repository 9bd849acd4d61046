#include "calibrate/fit/holdout.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>

#include "sim/base/hash.h"

namespace trainyard::fit {
namespace {

bool near(const Coordinates& a, const Coordinates& b, double distance) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::abs(a[i] - b[i]) > distance) return false;
  return true;
}

// Cluster of each of the distinct places, numbered by their first place.
std::vector<int> cluster(const std::vector<Coordinates>& places, double distance) {
  std::vector<std::size_t> root(places.size());
  std::iota(root.begin(), root.end(), std::size_t{0});
  const auto find = [&root](std::size_t i) {
    while (root[i] != i)
      i = root[i] = root[root[i]];
    return i;
  };
  for (std::size_t i = 0; i < places.size(); ++i) {
    for (std::size_t j = i + 1; j < places.size(); ++j) {
      // Places are sorted: nothing further on is near in the first coordinate.
      if (places[j][0] - places[i][0] > distance) break;
      if (near(places[i], places[j], distance))
        root[std::max(find(i), find(j))] = std::min(find(i), find(j));
    }
  }
  std::map<std::size_t, int> numbers;
  std::vector<int> clusters;
  for (std::size_t i = 0; i < places.size(); ++i)
    clusters.push_back(
        numbers.try_emplace(find(i), static_cast<int>(numbers.size())).first->second);
  return clusters;
}

std::uint64_t hash_of(const Coordinates& place) {
  Hash hash;
  for (const double coordinate : place)
    hash.add(static_cast<std::uint64_t>(std::llround(coordinate * 1e6)));
  // FNV's low bits of short words are poor; mix the high ones in.
  return hash.value() ^ (hash.value() >> 29);
}

}  // namespace

Split split(const std::vector<Coordinates>& points, double distance, double share, int fewest) {
  Split result;
  result.held_out.assign(points.size(), false);
  result.cluster.assign(points.size(), 0);
  result.distance = distance;
  if (points.empty()) return result;
  std::map<Coordinates, std::size_t> sizes;
  for (const Coordinates& point : points)
    ++sizes[point];
  std::vector<Coordinates> places;
  for (const auto& [place, size] : sizes)
    places.push_back(place);
  // A dense grid is one cluster at any wide distance: come nearer until the largest cluster leaves
  // room for a deal.
  std::vector<int> clusters;
  std::vector<std::size_t> counts;
  for (int halvings = 0;; ++halvings) {
    clusters = cluster(places, result.distance);
    counts.assign(static_cast<std::size_t>(*std::max_element(clusters.begin(), clusters.end())) + 1,
                  0);
    for (std::size_t i = 0; i < places.size(); ++i)
      counts[static_cast<std::size_t>(clusters[i])] += sizes[places[i]];
    if (2 * *std::max_element(counts.begin(), counts.end()) <= points.size() || halvings == 8)
      break;
    result.distance /= 2;
  }
  result.clusters = static_cast<int>(counts.size());
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto place = std::lower_bound(places.begin(), places.end(), points[i]);
    result.cluster[i] = clusters[static_cast<std::size_t>(place - places.begin())];
  }
  if (points.size() < static_cast<std::size_t>(fewest) || result.clusters < 3) return result;

  std::map<int, std::uint64_t> hashes;  // by the smallest place of a cluster
  for (std::size_t i = 0; i < places.size(); ++i)
    hashes.try_emplace(clusters[i], hash_of(places[i]));
  std::vector<std::pair<std::uint64_t, int>> deal;
  for (const auto& [number, hash] : hashes)
    deal.emplace_back(hash, number);
  std::sort(deal.begin(), deal.end());
  const double wanted = share * static_cast<double>(points.size());
  double held = 0;
  std::vector<bool> chosen(counts.size(), false);
  for (const auto& [hash, number] : deal) {
    const auto count = static_cast<double>(counts[static_cast<std::size_t>(number)]);
    if (held >= wanted || held + count > wanted + 0.15 * static_cast<double>(points.size()))
      continue;
    chosen[static_cast<std::size_t>(number)] = true;
    held += count;
  }
  for (std::size_t i = 0; i < points.size(); ++i)
    result.held_out[i] = chosen[static_cast<std::size_t>(result.cluster[i])];
  return result;
}

std::vector<bool> split_inside(const std::vector<Coordinates>& points,
                               const std::vector<double>& sizes, double distance) {
  constexpr std::size_t kOneOf = 5;
  std::map<Coordinates, std::vector<std::size_t>> families;
  for (std::size_t i = 0; i < points.size(); ++i)
    families[points[i]].push_back(i);
  std::vector<bool> held(points.size(), false);
  for (auto& [place, members] : families) {
    std::sort(members.begin(), members.end(), [&](std::size_t a, std::size_t b) {
      return sizes[a] != sizes[b] ? sizes[a] < sizes[b] : a < b;
    });
    // Sizes next to each other belong together, as families do.
    std::vector<std::vector<std::size_t>> steps;
    for (const std::size_t i : members) {
      if (steps.empty() || sizes[i] - sizes[steps.back().back()] > distance) steps.emplace_back();
      steps.back().push_back(i);
    }
    if (steps.size() < kOneOf) continue;
    std::vector<std::pair<std::uint64_t, std::size_t>> deal;
    for (std::size_t s = 1; s + 1 < steps.size(); ++s) {
      Coordinates whole = place;
      whole.push_back(sizes[steps[s].front()]);
      deal.emplace_back(hash_of(whole), s);
    }
    std::sort(deal.begin(), deal.end());
    for (std::size_t d = 0; d < steps.size() / kOneOf; ++d)
      for (const std::size_t i : steps[deal[d].second])
        held[i] = true;
  }
  return held;
}

}  // namespace trainyard::fit
