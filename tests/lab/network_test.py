#!/usr/bin/env python3
"""What the lab builds of a scenario's links, and the shares that it gives each pair of hosts; needs no root.

usage: network_test.py TRAINYARD
"""

import json
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "calibrate" / "lab"))

import namespaces  # noqa: E402
import network  # noqa: E402
import scenarios  # noqa: E402

IDEAL = scenarios.Messages(1.0, 0.0, ((1000, 0.0),), ((1000, 0.0),))
LINE = scenarios.LINE_BITS_PER_S // 8
TRAINYARD = sys.argv[1] if len(sys.argv) > 1 else ""


def built(cluster):
    """The network of a cluster as the program tells it."""
    model = scenarios.model_of(scenarios.layers_of(1, 1, 1, 1000))
    ranks = cluster["nodes"] * cluster["node"]["gpus"]
    for others in cluster.get("other_nodes", []):
        ranks += others["nodes"] * others["node"]["gpus"]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "scenario.json"
        path.write_text(json.dumps(scenarios.scenario("links", model, cluster, ranks, {"dp": ranks})), encoding="utf-8")
        return network.of_scenario(TRAINYARD, str(path))


def text_of(*rows):
    """Links as the program prints them: (from, to, bytes per second, picoseconds there, picoseconds back)."""
    lines = ["   bytes_per_s    latency_ps  link"]
    for source, target, rate, there, back in rows:
        lines += [f"{rate:14} {there:13}  {source} -> {target}", f"{rate:14} {back:13}  {target} -> {source}"]
    return "\n".join(lines) + "\n"


def of(*rows):
    return network.network_of(network.links_of(text_of(*rows)))


def host_rows(server, leaf, rate, latency=0):
    """A server of one GPU: everything between it and its leaf."""
    here = f"server {server} / "
    return [(here + "GPU 0", here + "host bridge 0", 10 ** 12, 0, 0),
            (here + "host bridge 0", here + "NIC 0", 10 ** 12, 0, 0),
            (here + "NIC 0", leaf, rate, latency, 0)]


def refusal(work, *arguments):
    """The message with which it is refused."""
    try:
        work(*arguments)
    except network.NetworkError as error:
        return str(error)
    raise AssertionError("nothing was refused")


def holds(condition, *what):
    if not condition:
        raise AssertionError(what)


def equal(got, expected):
    holds(got == expected, got, expected)


def check_pairs(found):
    """Each pair of hosts is counted once on each cable of its route and nowhere else, and no route turns back."""
    expected = {cable: [] for cable in found.cables}
    for target in found.hosts:
        for source in found.hosts:
            if source != target:
                route = found.route(source, target)
                equal((route[0][0], route[-1][1]), (source, target))
                equal([a for a, _ in route[1:]], [b for _, b in route[:-1]])
                equal(len({a for a, _ in route}), len(route))
                for cable in route:
                    expected[cable].append((source, target))
    pairs = found.pairs_over()
    equal({cable: sorted(over) for cable, over in pairs.items()}, {c: sorted(over) for c, over in expected.items()})
    return {cable: len(over) for cable, over in pairs.items()}


def reads_whole_numbers_and_names_with_spaces():
    text = "   bytes_per_s    latency_ps  link\n" \
           "      25000001      1500000  server 0 / host bridge 0 -> top of rack 12\n"
    equal(network.links_of(text), [("server 0 / host bridge 0", "top of rack 12", 25000001, 1500000)])
    equal(network.links_of(text.splitlines()[0]), [])
    for wrong in ("25000000 0 a -> b", "  2.5e7  0  a -> b", "  25000000  0  a - b", "  -1  0  a -> b"):
        holds("not a line of links" in refusal(network.links_of, "head\n" + wrong), wrong)


def a_star_of_n_has_n_minus_1_pairs_on_each_cable_each_way():
    for hosts in (2, 4, 9):
        found = built(scenarios.star(IDEAL, hosts))
        equal((found.hosts, found.switches), (tuple(f"h{i}" for i in range(hosts)), ("s0",)))
        equal(set(found.cables), {(f"h{i}", "s0") for i in range(hosts)} | {("s0", f"h{i}") for i in range(hosts)})
        equal(set(found.cables.values()), {network.Cable(LINE, 0.0)})
        equal(set(check_pairs(found).values()), {hosts - 1})
    equal(found.route("h8", "h3"), [("h8", "s0"), ("s0", "h3")])
    equal(found.next_hops("h3"), {**{f"h{i}": "s0" for i in range(9) if i != 3}, "s0": "h3"})
    equal(found.neighbours("h3"), ["s0"])


def an_uplink_of_two_levels_is_as_narrow_as_it_is_said():
    for oversubscription in (1, 2, 4):
        found = built(scenarios.two_switches(IDEAL, 8, oversubscription))
        equal(found.switches, ("s0", "s1", "s2"))
        uplinks = {cable for cable in found.cables if cable[0][0] == cable[1][0] == "s"}
        equal(uplinks, {("s0", "s2"), ("s2", "s0"), ("s1", "s2"), ("s2", "s1")})
        equal({found.cables[cable].rate_bytes_per_s for cable in uplinks}, {4 * LINE // oversubscription})
        equal({found.cables[cable].rate_bytes_per_s for cable in set(found.cables) - uplinks}, {LINE})
        counts = check_pairs(found)
        equal({counts[cable] for cable in uplinks}, {4 * 4})
        equal({counts[cable] for cable in set(found.cables) - uplinks}, {7})
    equal(found.route("h3", "h4"), [("h3", "s0"), ("s0", "s2"), ("s2", "s1"), ("s1", "h4")])
    equal(found.route("h3", "h0"), [("h3", "s0"), ("s0", "h0")])


def three_levels_keep_the_latency_of_each_switch():
    levels = [{"name": "leaf", "gpus": 2}, {"name": "pod", "gpus": 4, "oversubscription": 2, "latency": "5us"},
              {"name": "core", "gpus": 8, "oversubscription": 2}]
    found = built({**scenarios.star(IDEAL, 8), "fabric": {"kind": "clos", "levels": levels}})
    equal((len(found.switches), len(found.cables)), (7, 2 * (8 + 4 + 2)))
    check_pairs(found)
    route = found.route("h0", "h7")
    equal(len(route), 6)
    holds(abs(sum(found.cables[cable].latency_s for cable in route) - 10e-6) < 1e-12, route)


def a_ring_of_hosts_has_no_switch():
    found = built(scenarios.ring_of_hosts(IDEAL, 4))
    equal((found.hosts, found.switches, len(found.cables)), (("h0", "h1", "h2", "h3"), (), 8))
    for host in range(4):
        after = f"h{(host + 1) % 4}"
        equal(found.route(f"h{host}", after), [(f"h{host}", after)])
        equal(found.route(after, f"h{host}"), [(after, f"h{host}")])
        # Both ways to the far side are as long: the first cable is taken.
        between = min((host + 1) % 4, (host + 3) % 4)
        far = f"h{(host + 2) % 4}"
        equal(found.route(f"h{host}", far), [(f"h{host}", f"h{between}"), (f"h{between}", far)])
    # Four pairs of neighbours each way, and four that are two hops apart.
    equal(sum(check_pairs(found).values()), 8 * 1 + 4 * 2)
    equal(len(built(scenarios.ring_of_hosts(IDEAL, 2)).cables), 2)


def gpus_of_a_server_share_its_nic():
    inside = 1_000_000_000
    found = built(scenarios.star(IDEAL, 3, gpus=2, inside_bits_per_s=inside))
    equal((len(found.hosts), len(found.switches)), (6, 4))  # a host bridge each, and the leaf
    bridge = found.route("h0", "h1")[0][1]
    equal(found.route("h0", "h1"), [("h0", bridge), (bridge, "h1")])
    across = found.route("h0", "h5")
    equal([found.cables[cable].rate_bytes_per_s for cable in across], [inside // 8, LINE, LINE, inside // 8])
    counts = check_pairs(found)
    equal([counts[cable] for cable in across], [5, 2 * 4, 2 * 4, 5])


def gpus_behind_a_switch_of_their_own_do_not_use_the_host_bridge():
    here = "server 0 / "
    rows = [(f"{here}GPU {gpu}", here + "NVSwitch 0", 300, 1_000_000, 0) for gpu in range(3)]
    rows += [(f"{here}GPU {gpu}", here + "host bridge 0", 25, 0, 0) for gpu in range(3)]
    rows += [(here + "host bridge 0", here + "NIC 0", 25, 0, 0)]
    found = of(*rows)
    equal((found.hosts, found.switches, len(found.cables)), (("h0", "h1", "h2"), ("s0",), 6))
    equal(found.cables[("h2", "s0")], network.Cable(300, 1e-6))
    equal(found.cables[("s0", "h2")], network.Cable(300, 0.0))
    second = [(a.replace("server 0", "server 1"), b.replace("server 0", "server 1"), *rest) for a, b, *rest in rows]
    joined = [(f"server {server} / NIC 0", "leaf 0", 25, 0, 0) for server in range(2)]
    holds("several servers" in refusal(of, *rows, *second, *joined), "two servers")


def hosts_keep_their_own_rates_and_chains_the_least():
    cluster = {**scenarios.star(IDEAL, 2),
               "other_nodes": [{"nodes": 2, "node": scenarios.server(IDEAL, bits_per_s=2 * 8 * LINE)}]}
    found = built(cluster)
    for host, rate in (("h0", LINE), ("h1", LINE), ("h2", 2 * LINE), ("h3", 2 * LINE)):
        equal({found.cables[(host, "s0")], found.cables[("s0", host)]}, {network.Cable(rate, 0.0)})
    check_pairs(found)
    by_hand = of(*host_rows(0, "leaf 0", 1000, latency=3_000_000), *host_rows(1, "leaf 0", 500),
                 ("leaf 0", "unused 0", 1, 0, 0))
    equal(by_hand.cables[("h0", "s0")], network.Cable(1000, 3e-6))
    equal(by_hand.cables[("s0", "h0")], network.Cable(1000, 0.0))
    slow_bridge = host_rows(2, "leaf 0", 1000)
    slow_bridge[0] = (*slow_bridge[0][:2], 70, 1_000_000, 2_000_000)
    slow_bridge[1] = (*slow_bridge[1][:2], 900, 100_000, 200_000)
    found = of(*host_rows(0, "leaf 0", 1000), *slow_bridge)
    equal(found.cables[("h1", "s0")].rate_bytes_per_s, 70)
    equal([round(found.cables[way].latency_s * 1e9) for way in (("h1", "s0"), ("s0", "h1"))], [1100, 2200])


def refuses_what_switches_cannot_do_and_names_the_cure():
    two_uplinks = {**scenarios.star(IDEAL, 4), "fabric": {"kind": "fat_tree", "tiers": 2, "radix": 4}}
    message = refusal(built, two_uplinks)
    holds("leaf 0 and spine 0 are joined twice" in message and "kind clos" in message, message)
    two_nics = scenarios.star(IDEAL, 2)
    two_nics["node"]["nics"] = 2
    message = refusal(built, two_nics)
    holds("are joined twice" in message and "one NIC" in message and "clos" not in message, message)
    hosts = [row for server in range(4) for row in host_rows(server, f"leaf {server // 2}", 100)]
    spines = [(f"leaf {leaf}", f"spine {spine}", 100, 0, 0) for leaf in range(2) for spine in range(2)]
    message = refusal(of, *hosts, *spines)
    holds("2 ways lead from" in message and "one spine" in message, message)
    of(*hosts, *spines[::2])  # with one spine it is a tree
    holds("cannot be reached" in refusal(of, *hosts), "two islands")
    one_way = network.links_of(text_of(*hosts, *spines[::2]))
    one_way.remove(("spine 0", "leaf 1", 100, 0))
    holds("none back" in refusal(network.network_of, one_way), "one way")
    holds("begins with two GPUs" in refusal(network.network_of, []), "nothing")
    holds("begins with two GPUs" in refusal(of, *host_rows(0, "leaf 0", 100)), "one host")
    equal(len(of(*[row for server in range(250) for row in host_rows(server, "leaf 0", 100)]).hosts), 250)
    many = [row for server in range(251) for row in host_rows(server, "leaf 0", 100)]
    holds("251 hosts" in refusal(of, *many), "251 hosts")
    message = refusal(network.of_scenario, TRAINYARD, "/nowhere/scenario.json")
    holds("/nowhere/scenario.json" in message, message)


def classes_of(lines):
    """{class: its rate} below the root of a shaped device, each of which may take the whole; and the whole."""
    found, whole = {}, None
    for line in lines:
        matched = re.match(r"class add dev p0 parent (1:1?) classid 1:(\w+) htb rate (\d+)bit ceil (\d+)bit ", line)
        if matched:
            rate, ceil = int(matched[3]), int(matched[4])
            if matched[1] == "1:":
                equal((matched[2], rate), ("1", ceil))
                whole = rate
            else:
                equal(ceil, whole)
                holds(matched[2] not in found, line)
                found[matched[2]] = rate
    return found, whole


def each_pair_has_a_class_and_together_they_have_the_cable():
    addresses = {f"h{i}": namespaces.address(i) for i in range(40)}
    for rate in (LINE, 4 * LINE + 1, 1237, 450 * 10 ** 9):
        for count in (2, 3, 7, 300):
            pairs = [(f"h{i // 39}", f"h{39 - i % 39}") for i in range(count)]
            lines = namespaces.shaping("p0", network.Cable(rate, 0.0), pairs, addresses, True, False)
            found, whole = classes_of(lines)
            equal(whole, 8 * rate)
            holds(sum(found.values()) <= whole, "more than the cable has", rate, count)
            holds(len(set(found.values())) == 1 and len(found) == count + 1, found)  # and one for what is no pair's
            # No less than a pair's part would be if the class of the others took as much, but for rounding.
            holds(min(found.values()) > whole / (count + 1) - 1, found)
            root = [line for line in lines if line.startswith("qdisc add dev p0 root ")]
            equal(len(root), 1)
            others = re.search(r"htb default (\w+)$", root[0])[1]
            leaves = [re.search(r"parent 1:(\w+) pfifo limit (\d+)$", line) for line in lines if " pfifo " in line]
            equal({leaf[1] for leaf in leaves}, set(found))
            filters = [re.search(r"match ip src (\S+)/32 match ip dst (\S+)/32 flowid 1:(\w+)$", line) for line in lines
                       if line.startswith("filter ")]
            equal([(f[1], f[2]) for f in filters], [(addresses[a], addresses[b]) for a, b in pairs])
            equal({f[3] for f in filters} | {others}, set(found))
            equal(len({f[3] for f in filters}), count)


def a_lone_pair_and_one_queue_are_one_bucket():
    cable, addresses = network.Cable(LINE, 0.0), {"h0": "10.9.0.1", "h1": "10.9.0.2", "h2": "10.9.0.3"}
    alone, several = [("h0", "h1")], [("h0", "h1"), ("h2", "h1")]
    for pairs, fair in ((alone, True), (alone, False), (several, False), ([], True)):
        lines = namespaces.shaping("net0", cable, pairs, addresses, fair, True)
        equal(len(lines), 1)
        whole = f"qdisc add dev net0 root handle 1: tbf rate {8 * LINE}bit"
        holds(re.match(whole + r" burst \S+ limit \d+$", lines[0]), lines)
        # The bucket drops nothing that a window of TCP can hold.
        holds(int(lines[0].rpartition(" ")[2]) >= 16 << 20, lines)
    holds("htb" in namespaces.shaping("net0", cable, several, addresses, True, True)[0], "fair")


def latency_is_asked_for_where_it_is_and_the_kernel_has_it():
    addresses = {"h0": "10.9.0.1", "h1": "10.9.0.2", "h2": "10.9.0.3"}
    for pairs, leaves in (([("h0", "h1")], 1), ([("h0", "h1"), ("h2", "h1")], 3)):
        for latency, can, expected in ((0.0, True, 0), (12e-6, False, 0), (12e-6, True, leaves)):
            lines = namespaces.shaping("p0", network.Cable(LINE, latency), pairs, addresses, True, can)
            delays = [line for line in lines if "netem" in line]
            equal(len(delays), expected)
            holds(all(re.search(r" parent 1:\w+ .*netem limit \d+ delay 12us$", line) for line in delays), delays)
            holds(not any("root" in line for line in delays), delays)


def every_host_has_an_address_of_its_own():
    for number_of in (namespaces.address, namespaces._hardware_address):
        equal(len({number_of(host) for host in range(network.MOST_HOSTS)}), network.MOST_HOSTS)
    for host in range(network.MOST_HOSTS):
        parts = [int(part) for part in namespaces.address(host).split(".")]
        holds(len(parts) == 4 and all(0 <= part <= 255 for part in parts), parts)
        equal(".".join(map(str, parts[:2])), namespaces.SUBNET)
        holds(0 < parts[3] < 255, parts)  # neither the network's own nor the one that is all
        # Of one host, and none that a maker has registered.
        holds(re.fullmatch("02(:[0-9a-f]{2}){5}", namespaces._hardware_address(host)), host)


CASES = (reads_whole_numbers_and_names_with_spaces, a_star_of_n_has_n_minus_1_pairs_on_each_cable_each_way,
         an_uplink_of_two_levels_is_as_narrow_as_it_is_said, three_levels_keep_the_latency_of_each_switch,
         a_ring_of_hosts_has_no_switch, gpus_of_a_server_share_its_nic,
         gpus_behind_a_switch_of_their_own_do_not_use_the_host_bridge, hosts_keep_their_own_rates_and_chains_the_least,
         refuses_what_switches_cannot_do_and_names_the_cure, each_pair_has_a_class_and_together_they_have_the_cable,
         a_lone_pair_and_one_queue_are_one_bucket, latency_is_asked_for_where_it_is_and_the_kernel_has_it,
         every_host_has_an_address_of_its_own)


def main():
    for case in CASES:
        case()
    print(f"lab: {len(CASES)} cases of networks and shares pass")


if __name__ == "__main__":
    main()
