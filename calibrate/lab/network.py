"""The network that a scenario describes, as hosts, switches and the cables between them: arithmetic, no root.

`trainyard explain --stage links` says what the simulator joins: GPUs, host bridges, NICs, leaves, spines. Here a GPU is
a host. A NIC is the end of its cable and vanishes, and so does the host bridge of a server with one GPU; every other
vertex is a switch. What is left is built (namespaces.py) and its cables carry what the simulator's links do.
"""

import dataclasses
import re
import subprocess

LINE = re.compile(r"^\s*(\d+)\s+(\d+)\s\s(.+) -> (.+)$")
SERVER = re.compile(r"^server (\d+) / (.+) (\d+)$")
MOST_HOSTS = 250


class NetworkError(Exception):
    """The scenario has a network that the lab cannot build; the message says why and what can be done."""


@dataclasses.dataclass(frozen=True)
class Cable:
    """One direction of a cable."""

    rate_bytes_per_s: int
    latency_s: float


@dataclasses.dataclass(frozen=True)
class Network:
    """Hosts are the GPUs of the cluster in the order of ranks; cables[(a, b)] leads from a to b."""

    hosts: tuple
    switches: tuple
    cables: dict

    def neighbours(self, vertex):
        """Names of what the vertex has a cable to, in the order of the simulator's links."""
        return [b for a, b in self.cables if a == vertex]

    def next_hops(self, host):
        """For every other vertex its neighbour on the way to the host: fewest hops, then the first cable."""
        hops, reached = {}, [host]
        into = {}
        for a, b in self.cables:
            into.setdefault(b, []).append(a)
        seen = {host}
        for vertex in reached:
            for before in into.get(vertex, []):
                if before not in seen:
                    seen.add(before)
                    hops[before] = vertex
                    reached.append(before)
        return hops

    def route(self, source, target):
        """The cables from one host to another."""
        hops, at, route = self.next_hops(target), source, []
        while at != target:
            route.append((at, hops[at]))
            at = hops[at]
        return route

    def pairs_over(self):
        """For every cable the pairs of hosts whose messages it carries, in order."""
        pairs = {cable: [] for cable in self.cables}
        for target in self.hosts:
            hops = self.next_hops(target)
            for source in self.hosts:
                at = source
                while at != target:
                    pairs[(at, hops[at])].append((source, target))
                    at = hops[at]
        return pairs


def links_of(text):
    """Parses what `explain --stage links` prints: a list of (from, to, bytes per second, picoseconds)."""
    links = []
    for line in text.splitlines()[1:]:
        found = LINE.match(line)
        if not found:
            raise NetworkError(f"not a line of links: {line!r}")
        links.append((found[3], found[4], int(found[1]), int(found[2])))
    return links


def _joined(links, kept):
    """Cables between the kept vertices: chains through others become one, as slow as their slowest part."""
    out, kept = {}, dict.fromkeys(kept)
    for source, target, rate, latency in links:
        out.setdefault(source, []).append((target, rate, latency))
    cables = {}
    for source in kept:
        waiting = [(target, rate, latency, (source, target)) for target, rate, latency in out.get(source, [])]
        while waiting:
            at, rate, latency, way = waiting.pop(0)
            if at in kept:
                if at == source:
                    continue
                if (source, at) in cables:
                    cure = ("give the server one NIC" if SERVER.match(source) or SERVER.match(at)
                            else "use the kind clos, whose uplinks are one cable")
                    raise NetworkError(f"{source} and {at} are joined twice: the lab's switches forward by destination "
                                       f"and cannot spread messages; {cure}")
                cables[(source, at)] = Cable(rate, latency * 1e-12)
                continue
            for target, next_rate, next_latency in out.get(at, []):
                if target not in way:
                    waiting.append((target, min(rate, next_rate), latency + next_latency, way + (target,)))
    return cables


def network_of(links):
    """The Network of links. Raises NetworkError where two ways are equally short, as one was to be chosen by a hash."""
    vertices = list(dict.fromkeys(vertex for link in links for vertex in link[:2]))
    gpus = [v for v in vertices if SERVER.match(v) and SERVER.match(v)[2] == "GPU"]
    if len(gpus) < 2:
        raise NetworkError(f"a network begins with two GPUs, and links join {len(gpus)} here; give the cluster more "
                           "nodes, or the server more GPUs")
    if len(gpus) > MOST_HOSTS:
        raise NetworkError(f"{len(gpus)} hosts: a machine of this lab carries up to {MOST_HOSTS}")
    per_server = {}
    for gpu in gpus:
        per_server.setdefault(SERVER.match(gpu)[1], []).append(gpu)
    alone = {gpus_[0] for gpus_ in per_server.values() if len(gpus_) == 1}
    shared = [v for v in vertices if SERVER.match(v) and SERVER.match(v)[2] == "NVSwitch" and
              per_server[SERVER.match(v)[1]][0] not in alone]
    if shared or any(a in gpus and b in gpus for a, b, _, _ in links):
        # GPUs that are joined to each other, or by a switch of their own: their messages take no host bridge.
        if len(per_server) > 1:
            raise NetworkError("GPUs of a server are joined beside its host bridge, and there are several servers: the "
                               "lab builds one of them, or servers whose node.intra.kind is pcie or none")
        vertices = gpus + shared
        links = [link for link in links if link[0] in vertices and link[1] in vertices]

    def vanishes(vertex):
        found = SERVER.match(vertex)
        if not found:
            return False
        if found[2] == "NIC":
            return True
        return found[2] in ("host bridge", "NVSwitch") and per_server[found[1]][0] in alone
    kept = [v for v in vertices if not vanishes(v)]
    cables = _joined(links, kept)
    touched = {vertex for cable in cables for vertex in cable}
    names, switches = {}, []
    for vertex in kept:
        if vertex in gpus:
            names[vertex] = f"h{gpus.index(vertex)}"
        elif vertex in touched:
            names[vertex] = f"s{len(switches)}"
            switches.append(names[vertex])
    cables = {(names[a], names[b]): cable for (a, b), cable in cables.items()}
    network = Network(tuple(names[g] for g in gpus), tuple(switches), cables)
    _check(network)
    return network


def _check(network):
    for a, b in network.cables:
        if (b, a) not in network.cables:
            raise NetworkError(f"a cable leads from {a} to {b} and none back")
    for host in network.hosts:
        if len(network.next_hops(host)) < len(network.hosts) + len(network.switches) - 1:
            raise NetworkError(f"{host} cannot be reached from everywhere")
    if not network.switches:
        return  # a ring has two ways to its far side, of which messages of neighbours take none
    into = {}
    for a, b in network.cables:
        into.setdefault(b, []).append(a)
    for target in network.hosts:
        ways = {target: 1}
        order = [target]
        distance = {target: 0}
        for vertex in order:
            for a in into[vertex]:
                if distance.get(a, distance[vertex] + 1) == distance[vertex] + 1:
                    if a not in distance:
                        distance[a] = distance[vertex] + 1
                        order.append(a)
                    ways[a] = ways.get(a, 0) + ways[vertex]
        for host in network.hosts:
            if ways[host] > 1:
                raise NetworkError(f"{ways[host]} ways lead from {host} to {target}: the lab's switches forward by "
                                   "destination and cannot hash; use one spine, or the kind clos")


def of_scenario(trainyard, scenario, *options):
    """Asks the program for the links of a scenario file. Raises NetworkError with what the program says."""
    asked = subprocess.run([trainyard, "--quiet", "explain", scenario, "--stage", "links", *options],
                           capture_output=True, text=True, check=False)
    if asked.returncode:
        raise NetworkError(asked.stderr.strip())
    return network_of(links_of(asked.stdout))
