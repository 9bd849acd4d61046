#!/usr/bin/python3
"""What the program says of a GPU over time, of energy, and of clouds against owning. As cases.py."""

import json
import os

from process import Cases, require, require_equal, require_one_line

HERE = os.path.dirname(os.path.abspath(__file__))
GUIDE = os.path.join(HERE, "../../configs/scenarios/guide")
MONITOR, OWN = (os.path.join(GUIDE, name) for name in ("monitor.json", "cloud-or-own.json"))
case = Cases()
expect = case.expect


def report(*words):
    return json.loads(expect(0, "run", *words, "--json")[0])


def near(a, b, share=1e-9):
    return abs(a - b) <= share * max(abs(a), abs(b))


@case
def watched_gpu(folder):
    """A watched GPU is busy while gradients are exchanged, and draws less then"""
    result = report(MONITOR, "--monitor")
    rank = result["monitor"]["ranks"][0]
    waits = [i for i, share in enumerate(rank["kernels"]) if share == 0]
    works = [i for i, share in enumerate(rank["kernels"]) if share == 1]
    require(waits and works, rank["kernels"])
    require(min(rank["busy"][i] for i in waits) == 1, "a monitor sees its kernels")
    require(max(rank["power_w"][i] for i in waits) < 0.5 * min(rank["power_w"][i] for i in works), rank["power_w"])
    require(max(rank["pcie_out_bytes"]) > 0, "the network card is behind PCIe")
    require(max(rank["memory_live_bytes"]) <= rank["memory_held_bytes"] <= rank["memory_capacity_bytes"], "memory")


@case
def one_energy(folder):
    """The energy of the step is that of its samples, of any interval, and of the whole training"""
    tokens = ("--set", "training.samples=25600")
    for monitor in ("--monitor", "--monitor=7ms"):
        result = report(MONITOR, monitor, *tokens)
        seen = result["monitor"]
        begins = seen["begin_s"] + [seen["begin_s"][0] + seen["step_s"]]
        energy = sum(rank["count"] * sum(watts * (begins[i + 1] - begins[i]) for i, watts in enumerate(rank["power_w"]))
                     for rank in seen["ranks"])
        require(near(energy, result["energy"]["step_j"]), (energy, result["energy"]))
        require(near(result["training"]["energy_kwh"] * 3.6e6, 100 * energy), result["training"])
    without = report(MONITOR, *tokens)
    require_equal(without["energy"], result["energy"], "energy without a monitor")
    require("monitor" not in without, "a monitor that nobody asked for")


@case
def monitor_rows(folder):
    """A monitor prints the columns of nvidia-smi dmon, 20 lines or as many as its interval makes"""
    heads = ["#", "time", "gpu", "pwr", "gtemp", "sm", "kern", "smac", "mem", "fb", "live", "rxpci", "txpci", "rxnvl",
             "txnvl"]
    for word, least in (("--monitor", 20), ("--monitor=100ms", 2)):
        out, err = expect(0, "run", MONITOR, word)
        require_equal(err, "", "standard error")
        lines = out.splitlines()
        head = next(i for i, line in enumerate(lines) if line.startswith("#") and " pwr " in line)
        require_equal(lines[head].replace("#", "# ").split(), heads, "columns")
        rows = [line.split() for line in lines[head + 2:] if len(line.split()) == len(heads) - 1]
        require(len(rows) >= least, rows)
        require(all(len(line) <= 80 for line in lines[head:head + 2 + len(rows)]), lines[head:])
        step = report(MONITOR)["step_time_s"]
        if word != "--monitor":
            require_equal(len(rows), int(step // 0.1) + 1, "rows")


@case
def wrong_intervals(folder):
    """An interval that a step cannot be seen in is refused with a reason"""
    for word, parts in (("1h", ["longer than the step"]), ("1ps", ["100000 samples"]), ("0s", ["above 0"]),
                        ("10", ["no unit"]), ("soon", ["soon"])):
        out, err = expect(2, "run", MONITOR, "--monitor=" + word)
        require_equal(out, "", "standard output")
        require_one_line(err, "--monitor", *parts)


@case
def throttled(folder):
    """A GPU too hot for its limit runs as under the power limit that keeps it there, and only if asked"""
    gpu = "/cluster/node/gpu/"
    plain = report(MONITOR)
    hot = ["--set", gpu + "cooling/limit=50"]
    require_equal(report(MONITOR, *hot)["step_time_s"], plain["step_time_s"], "step")
    slowed = report(MONITOR, *hot, "--set", gpu + "cooling/throttle=true")
    watts = (50 - 27) / (66 - 27) * 400
    limited = report(MONITOR, "--set", f"{gpu}power/limit={watts!r}W")
    require_equal(slowed["step_time_s"], limited["step_time_s"], "step")
    require(slowed["step_time_s"] > plain["step_time_s"], "no slower")
    require(any("above their limit of 50" in text for text in slowed["warnings"]), slowed["warnings"])
    require(slowed["energy"]["settled_c"] <= 50, slowed["energy"])
    require_equal(report(MONITOR, "--set", gpu + "cooling/throttle=true")["step_time_s"], plain["step_time_s"], "cool")


@case
def cloud_or_own(folder):
    """Owning breaks even after its price over what an hour of it saves, and the text says when"""
    result = report(OWN)
    found = result["cloud_or_own"]
    running = found["energy_per_gpu_hour"] + found["fixed_per_gpu_hour"]
    require(near(found["break_even_gpu_hours"], 300000 / 8 / (2.5 - running)), found)
    watts = result["energy"]["mean_w_per_gpu"] + 2000 / 8
    require(near(found["energy_per_gpu_hour"], watts * 1.58 * 0.12 / 1000), found)
    require(found["own_is_cheaper"] and found["own_gpu_hour"] < 2.5, found)
    require(near(found["training_own_dollars"], result["training"]["gpu_hours"] * found["own_gpu_hour"]), found)
    out, _ = expect(0, "run", OWN)
    require("own pays after" in out and "Cloud or own" in out, out)
    out, _ = expect(0, "run", OWN, "--set", "cost.gpu_hour=0.2")
    require("own never pays" in out, out)
    # A server's hour is that of its GPUs.
    words = ["--set", "cost.gpu_hour=null", "--set", "cost.server_hour=20"]
    require_equal(report(OWN, *words)["cloud_or_own"], found, "by the server")


@case
def wrong_prices(folder):
    """Prices, shares and temperatures that cannot be are refused where they stand"""
    gpu = "/cluster/node/gpu"
    for path, sets, parts in (
            (OWN, ["cost.gpu_hour=-1"], ["/cost/gpu_hour", "-1"]),
            (OWN, ["cost.own.server=-5"], ["/cost/own/server"]),
            (OWN, ["cost.own.kilowatt_hour=-0.1"], ["/cost/own/kilowatt_hour"]),
            (OWN, ["cost.own.utilisation=1.2"], ["/cost/own/utilisation", "1.2"]),
            (OWN, ["cost.own.pue=0.9"], ["/cost/own/pue"]),
            (OWN, ["cost.gpu_hour=null"], ["/cost/own", "cost.gpu_hour"]),
            (OWN, ["cost.server_hour=20"], ["/cost/server_hour", "two prices"]),
            (MONITOR, [gpu + "/cooling/busy=20"], ["/cluster/node/gpu/cooling/busy"]),
            (MONITOR, [gpu + "/cooling/limit=30"], ["/cluster/node/gpu/cooling", "idle"]),
            (MONITOR, [gpu + "/power/communication=500W"], ["/cluster/node/gpu/power/communication", "busy"])):
        words = [word for each in sets for word in ("--set", each)]
        out, err = expect(3, "run", path, *words)
        require_equal(out, "", "standard output")
        require(all(part in err for part in parts), err)


@case
def curves_on_the_page(folder):
    """The page has what the monitor saw, and only if one was asked for"""
    for words, seen in (([], False), (["--monitor"], True)):
        expect(0, "run", MONITOR, *words, "-q", "-o", "out", "--force", cwd=folder)
        with open(os.path.join(folder, "out/summary.json"), encoding="utf-8") as file:
            require_equal("monitor" in json.load(file), seen, "monitor in summary.json")
        with open(os.path.join(folder, "out/report.html"), encoding="utf-8") as file:
            require_equal('"memory_controller":[' in file.read(), seen, "monitor on the page")


case.main()
