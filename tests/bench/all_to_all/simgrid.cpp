// The all-to-all of traffic.h on SimGrid; prints the simulated nanoseconds.
// usage: all_to_all_simgrid star|fat HOSTS [SimGrid's options]
#include <chrono>
#include <cstdio>
#include <simgrid/s4u.hpp>
#include <vector>

#include "tests/bench/all_to_all/traffic.h"

namespace s4u = simgrid::s4u;
using namespace trainyard::all_to_all;

namespace {

constexpr double kLatency = 1e-6;  // of a link, s

s4u::Host* add_host(s4u::NetZone& zone, std::vector<s4u::Host*>& hosts) {
  s4u::Host* host = zone.create_host("host" + std::to_string(hosts.size()), "1Gf")->seal();
  hosts.push_back(host);
  return host;
}

std::vector<s4u::Host*> fat_tree(const Arguments& given) {
  std::vector<s4u::Host*> hosts;
  const auto leaves = static_cast<unsigned>(given.hosts / kHostsOfLeaf);
  const s4u::FatTreeParams shape(2, {kHostsOfLeaf, leaves}, {1, kSpines}, {1, 1});
  const auto host = [&hosts](s4u::NetZone* zone, const std::vector<unsigned long>&, unsigned long)
      -> std::pair<simgrid::kernel::routing::NetPoint*, simgrid::kernel::routing::NetPoint*> {
    return {add_host(*zone, hosts)->get_netpoint(), nullptr};
  };
  s4u::create_fatTree_zone("fat", nullptr, shape, {host, nullptr, nullptr}, kBandwidth, kLatency,
                           s4u::Link::SharingPolicy::SPLITDUPLEX)
      ->seal();
  return hosts;
}

std::vector<s4u::Host*> star(const Arguments& given) {
  std::vector<s4u::Host*> hosts;
  s4u::NetZone* zone = s4u::create_star_zone("star");
  for (int h = 0; h < given.hosts; ++h) {
    const s4u::Host* host = add_host(*zone, hosts);
    const s4u::Link* link =
        zone->create_split_duplex_link("link" + std::to_string(h), static_cast<double>(kBandwidth))
            ->set_latency(kLatency)
            ->seal();
    zone->add_route(host->get_netpoint(), nullptr, nullptr, nullptr,
                    {{link, s4u::LinkInRoute::Direction::UP}}, true);
  }
  zone->seal();
  return hosts;
}

}  // namespace

int main(int count, char** words) {
  s4u::Engine engine(&count, words);
  s4u::Engine::set_config("network/model:CM02");
  s4u::Engine::set_config("network/crosstraffic:0");
  const Arguments given = arguments(count, words);
  const std::vector<s4u::Host*> hosts = given.fat ? fat_tree(given) : star(given);
  s4u::Actor::create("all", hosts.front(), [&hosts] {
    Sizes sizes;
    std::vector<s4u::CommPtr> messages;
    for (s4u::Host* from : hosts)
      for (s4u::Host* to : hosts)
        if (from != to)
          messages.push_back(
              s4u::Comm::sendto_async(from, to, static_cast<std::uint64_t>(sizes.next())));
    s4u::Comm::wait_all(messages);
  });
  engine.run();
  const std::chrono::duration<double> clock(s4u::Engine::get_clock());
  const auto rounded = std::chrono::round<std::chrono::nanoseconds>(clock);
  std::printf("%lld\n", static_cast<long long>(rounded.count()));
}
