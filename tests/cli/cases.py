#!/usr/bin/python3
"""What the program promises to a shell. Each case is a function; its docstring is the test's name.

usage: cases.py --list | cases.py PROGRAM CASE
"""

import fcntl
import gzip
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from process import ENVIRONMENT, Cases, require, require_equal, require_one_line, run, tree

HERE = os.path.dirname(os.path.abspath(__file__))
SMALL = os.path.join(HERE, "small.json")
case = Cases()
expect = case.expect
PROGRAM = case.program
# Makes every variant of small.json run out of memory.
NO_MEMORY = [
    "--set", "/cluster/node/gpu/memory=1MiB",
]


@case
def prints_results(folder):
    """A step that can run prints its result on standard output and ends with 0"""
    out, err = expect(0, "run", SMALL, "--variant", "data", cwd=folder)
    require(len(out) > 100, out)
    require_equal(err, "", "standard error")
    require_equal(os.listdir(folder), [], "files without -o")


@case
def prints_json(folder):
    """--json prints one object and nothing else"""
    out, _ = expect(0, "run", SMALL, "--variant", "tensor", "--json")
    result = json.loads(out)
    require(result["step_time_s"] > 0 and result["parallelism"]["tp"] == 4, out)
    out, _ = expect(0, "compare", SMALL, "--json")
    require_equal(len(json.loads(out)["variants"]), 4, "variants")


@case
def tells_of_variants(folder):
    """A scenario with variants runs as it stands, and a note says so unless --quiet"""
    _, err = expect(0, "run", SMALL)
    require_one_line(err, "variants")
    _, err = expect(0, "run", SMALL, "-q")
    require_equal(err, "", "standard error")


@case
def predicts_collectives(folder):
    """A predicted collective has nccl-tests' columns: the importer reads back the same numbers"""
    table = os.path.join(folder, "table.txt")
    samples = os.path.join(folder, "samples.jsonl")
    for words, ranks, servers in (
            (["all-reduce", "--cluster", "dgx-h100"], 8, 1),
            (["all_gather", "--cluster", "dgx-a100-80gb", "--servers", "2", "--fidelity", "flow"], 16, 2),
            (["reduce-scatter", "--cluster", "selene", "--ranks", "16", "--algorithm", "hierarchical"], 16, 2),
            (["broadcast", "--cluster", "dgx-h100", "--ranks", "4", "--algorithm", "binomial_tree"], 4, 1),
            (["all-gather", "--cluster", "dgx-h100", "--servers", "3", "--per-server", "2"], 6, 3),
            (["all-to-all", "--cluster", "dgx-h100", "--servers", "2", "--fidelity", "flow"], 16, 2)):
        words = ["collective", *words, "-b", "64K", "-e", "64M", "-f", "4"]
        out, err = expect(0, *words)
        require_equal(err, "", "standard error")
        with open(table, "w", encoding="utf-8") as file:
            file.write(out)
        expect(0, "import", "nccl-tests", table, "-o", samples, "--force")
        with open(samples, encoding="utf-8") as file:
            read = [sample for sample in map(json.loads, file) if sample["kind"] == "collective"]
        out, _ = expect(0, *words, "--json")
        rows = json.loads(out)["rows"]
        require_equal([row["bytes"] for row in rows], [sample["bytes"] for sample in read], "sizes")
        for row, sample in zip(rows, read):
            require_equal((sample["ranks"], sample["servers"]), (ranks, servers), "ranks and servers")
            require_equal(sample["collective"], json.loads(out)["collective"], "collective")
            # A time is written with two digits behind the point, a large one with five in all.
            require(abs(sample["time_us"] - row["time_us"]) <= max(0.005, 1e-5 * row["time_us"]), (row, sample))
            # Only what the library chooses itself was measured.
            require_equal("low_us" in row, not {"--fidelity", "--algorithm"} & set(words), "interval")
            require("low_us" not in row or 0 < row["low_us"] < row["high_us"], row)


@case
def collectives_wrong_words(folder):
    """A collective that cannot be predicted is refused with what is possible"""
    for words, parts in (
            (["all-reduce", "--cluster", "selen"], ["selene"]),
            (["allreduce", "--cluster", "selene"], ["all-reduce"]),
            (["all-reduce", "--cluster", "dgx-h100", "--ranks", "9"], ["8 GPUs", "--servers"]),
            (["all-reduce", "--cluster", "dgx-h100", "--per-server", "9"], ["--per-server 9", "8 GPUs"]),
            (["all-reduce", "--cluster", "dgx-h100", "-b", "7X"], ["-b", "1GiB"]),
            (["all-reduce", "--cluster", "dgx-h100", "-b", "2G"], ["2G", "1G"]),
            (["all-reduce", "--cluster", "dgx-h100", "-f", "1"], ["-f"]),
            (["all-reduce", "--cluster", "dgx-h100", "--algorithm", "rings"], ["ring"]),
            (["all-reduce", "--cluster", "dgx-h100", "--ranks", "6", "--algorithm", "halving_doubling"],
             ["power of two", "hierarchical"]),
            (["all-reduce", "--cluster", "dgx-h100", "--algorithm", "pairwise"], ["no all-reduce"]),
            (["all-reduce", "--cluster", "dgx-h100", "--protocol", "ll64"], ["ll128"]),
            (["all-gather", "--cluster", "pcie-8x4090", "--protocol", "ll128"],
             ["without NVLink", "auto, ll, simple"]),
            (["all-gather", "--cluster", "dgx-h100", "--algorithm", "hierarchical", "--protocol", "ll"],
             ["no hierarchical by ll"]),
            (["all-reduce", "--cluster", "mi300x-platform", "--protocol", "ll"], ["without NCCL"]),
            (["all-to-all", "--cluster", "dgx-h100", "--protocol", "ll"], ["no all-to-all by ll"])):
        out, err = expect(2, "collective", *words)
        require_equal(out, "", "standard output")
        require_one_line(err, *parts)


@case
def collectives_of_files(folder):
    """collective: the file of a server, or of a scenario, is as good as a preset"""
    words = ["collective", "all-reduce", "--servers", "2", "-b", "64M", "-e", "64M", "--json", "--cluster"]
    known = json.loads(expect(0, *words, "dgx-h100")[0])["rows"]
    scenario = {"version": 1, "cluster": {"node": "dgx-h100", "nodes": 9}}
    with open(os.path.join(HERE, "..", "..", "configs", "servers", "dgx-h100.json"), encoding="utf-8") as file:
        texts = {"box.json": file.read(), "job.json": json.dumps(scenario)}
    for name, text in texts.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
        require_equal(json.loads(expect(0, *words, name, cwd=folder)[0])["rows"], known, name)
    for wrong, part in (("dgx-h100", "expected an object"), (7, "expected an object"),
                        ({"node": "dgx-h100", "nodes": 1, "other_nodes": []}, "leave --servers out")):
        with open(os.path.join(folder, "wrong.json"), "w", encoding="utf-8") as file:
            json.dump({"cluster": wrong}, file)
        _, err = expect(3, *words, "wrong.json", cwd=folder)
        require(err.startswith("wrong.json:1:") and part in err, err)
    _, err = expect(3, *words, "gone.json", cwd=folder)
    require("gone.json: error: cannot be read" in err, err)
    _, err = expect(3, *words, "pcie-2x4090")
    require(err.startswith("pcie-2x4090: error: /cluster/node/nics"), err)


@case
def tells_what_nccl_takes(folder):
    """What NCCL's tuning takes of each size is printed, and what takes its place is slower"""
    words = ["collective", "all-reduce", "--cluster", "dgx-a100-80gb", "--servers", "2",
             "-b", "64", "-e", "1G", "-f", "4"]
    out, _ = expect(0, *words)
    require("# What NCCL's tuning takes:\n#  64 B to " in out and ": tree ll, 1 channel\n" in out, out)
    require(": ring simple, 24 channels\n#\n" in out, out)
    own = json.loads(expect(0, *words, "--json")[0])["rows"]
    require_equal([own[-1]["nccl_" + key] for key in ("algorithm", "protocol", "channels")], ["ring", "simple", 24],
                  "1 GiB")
    seen = set()
    for protocol in ("ll", "ll128", "simple"):
        for row, other in zip(own, json.loads(expect(0, *words, "--protocol", protocol, "--json")[0])["rows"]):
            require_equal(other["nccl_protocol"], protocol, "protocol")
            require(other["time_us"] >= row["time_us"] * (1 - 1e-9), (row, other))
            if row["nccl_protocol"] == protocol:
                seen.add(protocol)
                require(abs(other["time_us"] / row["time_us"] - 1) < 1e-9, (row, other))
    require_equal(seen, {"ll", "ll128", "simple"}, "protocols that are taken")


@case
def chooses_algorithms(folder):
    """An algorithm that cannot serve a group is refused at its place in the file, with the cure"""
    words = ["--set", "collectives.allreduce.algorithm=pairwise"]
    for command in (["run", SMALL, "--variant", "data"], ["check", SMALL]):
        _, err = expect(3, *command, *words)
        require("/collectives/allreduce/algorithm" in err and "available: auto, ring" in err, err)
    with open(SMALL, encoding="utf-8") as file:
        scenario = json.load(file)
    scenario["collectives"] = {"allreduce": {"algorithm": "halving-doubling"}}
    scenario["cluster"]["node"]["gpus"] = 3
    scenario["training"]["global_batch"] = 48
    scenario.pop("variants", None)
    scenario.pop("baseline", None)
    scenario["parallelism"] = {"tp": 1, "pp": 1}
    path = os.path.join(folder, "three.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(scenario, file, indent=1)
    for command in (["run", path], ["check", path], ["explain", path, "--stage", "transfers"]):
        _, err = expect(3, *command)
        require("three.json:" in err and "/collectives/allreduce/algorithm" in err, err)
        require("needs a power of two" in err and "hierarchical" in err and "(replicas)" in err, err)


@case
def reports_no_memory(folder):
    """A step that does not fit in memory is an answer: printed, with exit code 1"""
    out, err = expect(1, "run", SMALL, "--variant", "too-large")
    require("fit" in out, out)
    require_equal(err, "", "standard error")


# So that a GPU of some MiB holds a network of that size.
TENSORS_ONLY = ["--set=training.memory.context=0B", "--set=training.memory.blas_workspace=0B",
                "--set=training.memory.fragmentation=0", "--set=training.memory.nccl_buffers=false"]


def ways_of(out):
    """The --set options of each way to fit that a text names."""
    lines = [line.split() for line in out.splitlines() if line.strip().startswith("--set ")]
    return [words for words in lines if words]


@case
def says_ways_to_fit(folder):
    """A step that does not fit comes with ways to fit: their --set options, pasted, make it fit"""
    for name, memory in ("pipeline", "20MiB"), ("data", "50MiB"):
        variant, tight = ["--variant", name], [f"--set=/cluster/node/gpu/memory={memory}", *TENSORS_ONLY]
        out, _ = expect(1, "run", SMALL, *variant, *tight)
        require("Cheapest ways to fit" in out, out)
        ways = ways_of(out)
        require(1 <= len(ways) <= 3, out)
        for way in ways:
            expect(0, "run", SMALL, *variant, *tight, *way)
    out, _ = expect(1, "run", SMALL, *variant, *tight, "--no-ways-to-fit")
    require("ways to fit" not in out and "--set" not in out, out)
    out, _ = expect(1, "run", SMALL, *variant, *tight, "--json")
    result = json.loads(out)
    not_tried = "Not tried: the optimizer on the host; state host/memory_bandwidth, pcie_bandwidth."
    require_equal(result["ways_not_tried"], not_tried, "what the servers do not state")
    host = ("--set", "cluster.node.host.memory_bandwidth=200GB/s", "--set", "cluster.node.host.pcie_bandwidth=12GB/s")
    stated, _ = expect(1, "run", SMALL, *variant, *tight, *host, "--json")
    require_equal(json.loads(stated)["ways_not_tried"], None, "with a host that states it")
    require_equal([way["set"] for way in result["ways_to_fit"]],
                  [[word for word in way if word != "--set"] for way in ways], "sets of the text and of --json")
    step, peak = result["simulated_step_s"], result["memory"]["peak_bytes"]
    for way in result["ways_to_fit"]:
        done, _ = expect(0, "run", SMALL, *variant, *tight, *(x for s in way["set"] for x in ("--set", s)), "--json")
        done = json.loads(done)
        require_equal(done["step_time_s"], way["step_time_s"], "step time")
        require_equal(done["memory"]["peak_bytes"], way["peak_bytes"], "peak")
        require_equal(peak - done["memory"]["peak_bytes"], way["saved_bytes"], "saved")
        require(abs(done["step_time_s"] / step - 1 - way["step_time_change"]) < 1e-12, way)
    out, _ = expect(1, "run", SMALL, "--variant", "too-large", "--json")
    result = json.loads(out)
    require_equal(result["ways_to_fit"], [], "ways")
    require(result["closest_to_fit"]["peak_bytes"] > result["memory"]["capacity_bytes"], out)


@case
def ways_to_fit_reach_variants(folder):
    """Ways to fit of a variant reach it though its patch writes the same key, or others refuse theirs"""
    with open(SMALL, encoding="utf-8") as file:
        scenario = json.load(file)
    scenario["cluster"]["node"]["gpu"]["memory"] = "50MiB"
    scenario["training"]["memory"] = {"context": "0B", "blas_workspace": "0B", "fragmentation": 0,
                                      "nccl_buffers": False}
    for variant in scenario["variants"][:2]:
        variant["with"].setdefault("parallelism", {})["data_parallel"] = {"kind": "allreduce"}
        variant["with"]["training"] = {"recompute": "none", "fused_attention": False, "micro_batch": 4}
    path = os.path.join(folder, "own.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(scenario, file)
    out, _ = expect(1, "run", path, "--variant", "data")
    require("--set variants.0.with." in out, out)
    for way in ways_of(out):
        expect(0, "run", path, "--variant", "data", *way)
    out, _ = expect(0, "compare", path)
    for way in ways_of(out):
        index = int(way[1].split(".")[1])
        name = scenario["variants"][index]["name"]
        # Nothing makes that one fit: what comes closest is said.
        expect(int(name == "too-large"), "run", path, "--variant", name, *way, "--no-ways-to-fit")


@case
def compares_with_infeasible(folder):
    """A comparison ends with 1 only if no variant is feasible"""
    expect(0, "compare", SMALL)
    out, _ = expect(1, "run", SMALL, *NO_MEMORY, "--json", "-q")
    require_equal(json.loads(out)["step_time_s"], None, "step time")
    with open(SMALL, encoding="utf-8") as file:
        scenario = json.load(file)
    scenario["variants"] = scenario["variants"][3:]
    scenario["baseline"] = "too-large"
    path = os.path.join(folder, "none.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(scenario, file)
    expect(1, "compare", path)
    with open(SMALL, encoding="utf-8") as file:
        scenario = json.load(file)
    scenario["baseline"] = "too-large"
    with open(path, "w", encoding="utf-8") as file:
        json.dump(scenario, file)
    variants = json.loads(expect(0, "compare", path, "--json", "-q")[0])["variants"]
    noted = [v["name"] for v in variants if any("baseline too-large has no step time" in w for w in v["warnings"])]
    require(len(noted) == 1 and noted != ["too-large"], f"noted by {noted}")


@case
def sets_values(folder):
    """--set changes a value, and may stand before the scenario"""
    out, _ = expect(0, "run", "--set", "training.global_batch=32", SMALL, "--json", "-q")
    require_equal(json.loads(out)["global_batch"], 32, "global batch")
    out, _ = expect(0, "run", SMALL, "--set", "/training/global_batch=64", "--json", "-q")
    require_equal(json.loads(out)["global_batch"], 64, "global batch")


@case
def refuses_unknown_keys(folder):
    """--set with an unknown key ends with 3 and names the nearest key"""
    out, err = expect(3, "run", SMALL, "--set", "training.global_bach=32")
    require("error:" in err and "global_batch" in err, err)
    require_equal(out, "", "standard output")


@case
def refuses_bad_files(folder):
    """A wrong scenario ends with 3, with file, line and column of every mistake"""
    path = os.path.join(folder, "bad.json")
    with open(SMALL, encoding="utf-8") as file:
        text = file.read()
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace('"global_batch": 16', '"global_bach": 16').replace('"layers": 4', '"layers": -4'))
    for command in ("run", "compare", "check", "explain"):
        out, err = expect(3, command, path)
        places = re.findall(rf"^{re.escape(path)}:(\d+):(\d+): error: ", err, re.M)
        require(len(places) >= 2, err)
        require_equal(out, "", "standard output")
    expect(3, "run", os.path.join(folder, "absent.json"))


@case
def offloads(folder):
    """Offload makes a network fit whose states do not, at the prices of docs/offload.md"""
    scenario = os.path.join(os.path.dirname(os.path.dirname(HERE)), "configs", "scenarios", "offload-one-server.json")
    out, _ = expect(0, "compare", scenario, "--json", cwd=folder)
    of = {v["name"]: v for v in json.loads(out)["variants"]}
    require_equal([n for n, v in of.items() if v["step_time_s"] is None], ["none", "keep-activations"], "no room")
    step = {n: v["step_time_s"] for n, v in of.items() if v["step_time_s"] is not None}
    require(step["optimizer-cpu"] < step["optimizer-nvme"] < step["all-states-nvme"], step)
    require(step["optimizer-cpu"] < 1.1 * of["none"]["simulated_step_s"], step)
    require_equal(step["layer-inputs-cpu"], step["optimizer-cpu"], "copies of layers' inputs are hidden")
    require(step["activations-cpu"] > step["optimizer-cpu"], "computing again is faster than moving")
    parameters = of["none"]["parameters"]
    update = of["optimizer-cpu"]["breakdown_s"]["host_optimizer"]
    require(abs(update / (28 * parameters / 409.6e9) - 1) < 0.01, f"the host's update takes {update} s")
    host = of["optimizer-cpu"]["host_memory"]
    require(abs(host["server_bytes"] / (14 * parameters) - 1) < 0.01, host)
    gone = of["optimizer-cpu"]["memory"]["peak_bytes"] - of["all-states-cpu"]["memory"]["peak_bytes"]
    require(abs(gone / (2 * parameters / 8) - 1) < 0.05, f"parameters of {gone} bytes left the GPU")
    for variant in of.values():
        total = sum(variant["breakdown_s"].values())
        require(abs(total - variant["simulated_step_s"]) < 1e-9 * total, variant["name"])
    out, _ = expect(1, "run", scenario, "--variant", "optimizer-cpu", "--set", "/cluster/node/host/memory=200GiB",
                    cwd=folder)
    require("288 GiB of 200 GiB of host memory" in out, out)


@case
def checks(folder):
    """check prints OK for every good file and goes on after a bad one"""
    out, err = expect(3, "check", SMALL, "absent.json", SMALL)
    require_equal(out, f"{SMALL}: OK\n" * 2, "standard output")
    require("absent.json" in err, err)
    out, _ = expect(3, "check", SMALL, "absent.json", "--json")
    files = json.loads(out)["files"]
    require_equal([(file["file"], file["ok"]) for file in files], [(SMALL, True), ("absent.json", False)], "files")
    require_equal(files[1]["diagnostics"][0]["severity"], "error", "what is wrong with it")


@case
def errors_as_json(folder):
    """With --json what is wrong is an object, too: file, place, message and cure of each mistake"""
    with open(SMALL, encoding="utf-8") as file:
        scenario = json.load(file)
    scenario["training"].update(micro_batch=0, global_batch=-1)
    path = os.path.join(folder, "two.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(scenario, file, indent=1)
    for command in (["run", path], ["compare", path]):
        out, err = expect(3, *command, "--json")
        errors = json.loads(out)["errors"]
        require_equal({error["pointer"] for error in errors}, {"/training/micro_batch", "/training/global_batch"},
                      " ".join(command))
        for error in errors:
            require(error["file"] == path and error["line"] > 0 and error["message"], str(error))
            place = f'{path}:{error["line"]}:{error["column"]}'
            require(f'{place}: error: {error["pointer"]}: {error["message"]}' in err, err)
    out, err = expect(2, "run", SMALL, "--variant", "nobody", "--json")
    require_equal(len(json.loads(out)["errors"]), 1, "an unknown variant")
    require("nobody" in json.loads(out)["errors"][0]["message"], out)


def synthetic_samples():
    """GEMMs and adds of an imaginary run of an A100, exactly as a simple law has them."""
    lines = [{"kind": "machine", "date": "2026-01-01", "gpus": [{"name": "NVIDIA A100-SXM4-80GB"}]}]
    for m in (256, 1024, 4096, 16384):
        for n in (512, 1536, 4096, 12288):
            for k in (512, 2048, 8192):
                time_us = 6 + 2e6 * m * n * k / (0.7 * 312e12) + 2e6 * (m * k + k * n + m * n) / (0.8 * 2039e9)
                for dtype in ("fp16", "bf16"):
                    lines.append({"kind": "gemm", "dtype": dtype, "m": m, "n": n, "k": k, "time_us": time_us})
    for power in range(16, 31):
        lines.append({"kind": "memory", "op": "elementwise", "variant": "add", "read_bytes": 2 ** power,
                      "written_bytes": 2 ** power, "time_us": 2 + 2e6 * 2 ** power / (0.9 * 2039e9)})
    return "".join(json.dumps(line) + "\n" for line in lines)


@case
def fits_and_runs(folder):
    """Samples become a profile and a page, and a scenario runs with that profile"""
    samples = os.path.join(folder, "samples.jsonl")
    with open(samples, "w") as file:
        file.write(synthetic_samples())
    profile = os.path.join(folder, "mine.json")
    out, err = expect(0, "fit", "samples.jsonl", "-o", "mine.json", "--name", "mine", cwd=folder)
    require("gemm fp16" in out and "MAPE" in out, out)
    require_equal(err, "", "standard error")
    require_equal(sorted(os.listdir(folder)), ["mine.html", "mine.json", "samples.jsonl"], "files")
    with open(profile) as file:
        fitted = json.load(file)
    law = next(law for law in fitted["gemm"] if law["dtype"] == "fp16")
    require(abs(law["compute_efficiency"] - 0.7) < 0.01, law)
    require(law["exponent"] < 1.05, law)
    _, err = expect(4, "fit", "samples.jsonl", "-o", "mine.json", cwd=folder)
    require_one_line(err, "mine.json: exists", "--force")
    _, err = expect(0, "fit", "samples.jsonl", "-o", "other.json", "--gpu", "h100", cwd=folder)
    require_one_line(err, "'NVIDIA A100-SXM4-80GB' is a100-sxm4-80gb by its name", "h100-sxm5-80gb")
    again, _ = expect(0, "fit", "samples.jsonl", "-o", "mine.json", "--force", "--json", cwd=folder)
    require(json.loads(again)["gpu"] == "a100-sxm4-80gb", again)
    configs = os.path.join(HERE, "..", "..", "configs")
    with open(os.path.join(configs, "scenarios", "gpt3-175b-1024xa100.json")) as file:
        require("a100" in file.read(), "a scenario of A100s")
    out, err = expect(0, "run", os.path.join(configs, "scenarios", "gpt3-175b-1024xa100.json"),
                      "--set", "cluster.calibration=mine.json", "--json", cwd=folder)
    require("interpolated" in out, out)


def samples_of(device, capability, seconds_per_byte):
    """Products on a GPU of one rate, as one machine of it might measure them."""
    gpu = {"name": device, "compute_capability": capability, "multiprocessors": 132, "memory_bytes": 80 << 30,
           "l2_bytes": 50 << 20, "memory_bus_bits": 5120, "memory_clock_mhz": 2619, "clock_mhz": 1980}
    lines = [{"kind": "machine", "date": "2026-01-01", "gpus": [gpu]}]
    for m in (256, 1024, 4096):
        for n in (512, 1536, 4096, 12288):
            for k in (512, 2048, 8192):
                time_us = 6 + m * n * k * 3e-9 + (m * k + k * n + m * n) * seconds_per_byte
                lines.append({"kind": "gemm", "dtype": "bf16", "m": m, "n": n, "k": k, "time_us": time_us})
    return "".join(json.dumps(line) + "\n" for line in lines)


@case
def takes_the_rest_from_a_base(folder):
    """fit takes what one GPU cannot measure from the profile of a GPU like it, and says so"""
    with open(os.path.join(folder, "s.jsonl"), "w") as file:
        file.write(samples_of("NVIDIA H20", "9.0", 6e-7))
    out, _ = expect(0, "fit", "s.jsonl", "-o", "p.json", cwd=folder)
    profile = json.loads(tree(folder)["p.json"])
    require_equal(profile["gpu"], "h20-96gb", "GPU")
    laws = profile["collectives"] + profile["point_to_point"]
    require(len(laws) > 3 and all(law["from"]["basis"] == "extrapolated" for law in laws), laws)
    require(profile["channels"]["collective"] > 0, profile["channels"])
    require(re.search(r"all-reduce on 8 ranks, 1 server +extrapolated, from profile h100-sxm5-80gb", out), out)
    # A GPU that no preset knows, of the same architecture.
    with open(os.path.join(folder, "other.jsonl"), "w") as file:
        file.write(samples_of("NVIDIA Test 9", "9.0", 6e-7))
    out, _ = expect(0, "fit", "other.jsonl", "-o", "other.json", cwd=folder)
    require("from profile h100-sxm5-80gb" in out, out)
    # By hand, by name, and not at all.
    out, _ = expect(0, "fit", "s.jsonl", "-o", "p.json", "--force", "--base", "none", "--channels", "16", cwd=folder)
    require("Not in the profile" in out and "a collective holds 16" in out, out)
    profile = json.loads(tree(folder)["p.json"])
    require("collectives" not in profile and profile["channels"]["collective"] == 16, profile)
    out, _ = expect(0, "fit", "s.jsonl", "-o", "p.json", "--force", "--base", "other.json", "--json", cwd=folder)
    require_equal(json.loads(out)["base"], "nvidia-test-9", "base")
    out, _ = expect(0, "fit", "s.jsonl", "-o", "p.json", "--force", "--base", "kind", "--json", cwd=folder)
    require(json.loads(out)["base"].startswith("medians of "), json.loads(out)["base"])
    _, err = expect(2, "fit", "s.jsonl", "-o", "p.json", "--force", "--base", "nothing", cwd=folder)
    require_one_line(err, "no profile 'nothing'", "--base")


@case
def refuses_bad_samples(folder):
    """Samples of an unknown GPU, with mistakes or without a name for the profile are refused"""
    with open(os.path.join(folder, "s.jsonl"), "w") as file:
        file.write(synthetic_samples().replace("A100-SXM4-80GB", "Imaginary 1"))
    _, err = expect(3, "fit", "s.jsonl", "-o", "p.json", cwd=folder)
    require_one_line(err, "no preset is known for 'NVIDIA Imaginary 1'", "--gpu")
    _, err = expect(2, "fit", "s.jsonl", "-o", "p.json", "--gpu", "imaginary", cwd=folder)
    require_one_line(err, "no GPU is called 'imaginary'", "a100-sxm4-80gb")
    _, err = expect(3, "fit", folder, "-o", "p.json", cwd=folder)
    require_one_line(err, "is not a regular file")
    _, err = expect(2, "fit", "s.jsonl", "-o", "profile", cwd=folder)
    require_one_line(err, "write -o NAME.json")
    with open(os.path.join(folder, "s.jsonl"), "a") as file:
        file.write('{"kind": "gemm", "m": 1}\n')
    _, err = expect(3, "fit", "s.jsonl", "-o", "p.json", "--gpu", "a100-sxm4-80gb", cwd=folder)
    require("s.jsonl:113:1: error: /dtype: is missing" in err, err)
    require_equal(os.listdir(folder), ["s.jsonl"], "files after errors")


@case
def refuses_bad_command_lines(folder):
    """A wrong command line ends with 2 and one line that says what was meant"""
    for words, parts in [
        ([], ["command"]),
        (["rnu", SMALL], ["'rnu'", "did you mean 'run'?"]),
        (["run", SMALL, "--sett", "a=1"], ["'--sett'", "did you mean '--set'?"]),
        (["run"], ["required"]),
        (["run", SMALL, "-o"], ["--output"]),
        (["run", SMALL, "--color", "purple"], ["purple"]),
        (["compare", SMALL, "-j", "0"], ["--jobs"]),
        (["run", SMALL, "--variant", "pipelin"], ["did you mean 'pipeline'?"]),
        (["run", SMALL, "--variant", "none"], ["data, tensor"]),
        (["compare", SMALL, "--baseline", "none"], ["'none'"]),
        (["explain", SMALL, "--stage", "none"], ["none"]),
        (["presets", "show", "no-such-thing"], ["no-such-thing"]),
    ]:
        out, err = expect(2, *words)
        require_one_line(err, *parts)
        require_equal(out, "", "standard output")


@case
def writes_files(folder):
    """-o writes summary, trace and report, and the last line says where the report is"""
    out, _ = expect(0, "run", SMALL, "--variant", "data", "-o", "a/b", cwd=folder)
    require_equal(out.splitlines()[-1], "report: a/b/report.html", "last line")
    files = tree(os.path.join(folder, "a/b"))
    require_equal(sorted(files), ["report.html", "summary.json", "trace.pftrace.gz"], "files")
    require(json.loads(files["summary.json"])["step_time_s"] > 0, "summary")
    require(len(gzip.decompress(files["trace.pftrace.gz"])) > 100, "trace")
    require(b"<html" in files["report.html"], "report")
    out, _ = expect(0, "run", SMALL, "--variant", "data", "-o", "a/b", "--json", cwd=folder)
    require_equal(out.encode(), files["summary.json"], "--json")


@case
def writes_comparison(folder):
    """compare -o writes one summary, one report and one trace of all variants"""
    out, _ = expect(0, "compare", SMALL, "-o", "out", cwd=folder)
    require_equal(out.splitlines()[-1], "report: out/report.html", "last line")
    files = tree(os.path.join(folder, "out"))
    require_equal(sorted(files), ["report.html", "summary.json", "trace.pftrace.gz"], "files")
    trace = gzip.decompress(files["trace.pftrace.gz"])
    for variant in ("data", "tensor", "pipeline", "too-large"):
        require(f"{variant}: rank 0".encode() in trace, f"{variant} is not in the trace")


@case
def shows_no_paths(folder):
    """Results hold neither the folder they were made in nor the scenario's"""
    root = os.path.dirname(os.path.dirname(HERE))
    for scenario in (SMALL, os.path.join(root, "configs/scenarios/resnet50-ddp-8xv100.json")):
        expect(0, "run", scenario, "-o", "out", "-q", cwd=folder)
        for name, content in tree(os.path.join(folder, "out")).items():
            for path in (folder, root):
                require(path.encode() not in content, f"{path} is in {name}")


@case
def replaces_results(folder):
    """An earlier result is replaced; a folder with other files is refused with 4 unless forced"""
    expect(0, "run", SMALL, "-q", "-o", "out", cwd=folder)
    expect(0, "run", SMALL, "-q", "-o", "out", cwd=folder)
    os.mkdir(os.path.join(folder, "mine"))
    with open(os.path.join(folder, "mine", "thesis.txt"), "w", encoding="utf-8") as file:
        file.write("mine")
    _, err = expect(4, "run", SMALL, "-q", "-o", "mine", cwd=folder)
    require_one_line(err, "--force")
    expect(0, "run", SMALL, "-q", "-o", "mine", "--force", cwd=folder)
    require_equal(tree(os.path.join(folder, "mine"))["thesis.txt"], b"mine", "the other file")


@case
def refuses_bad_folders(folder):
    """An output folder that cannot be one ends with 4 before anything is simulated"""
    with open(os.path.join(folder, "file"), "w", encoding="utf-8") as file:
        file.write("x")
    for path in ("file", "file/out", "/proc/trainyard", "x" * 5000):
        out, err = expect(4, "run", SMALL, "-q", "-o", path, cwd=folder)
        require_one_line(err)
        require_equal(out, "", "standard output")
    require_equal(os.listdir(folder), ["file"], "files")


@case
def keeps_inputs(folder):
    """An input is never overwritten"""
    os.mkdir(os.path.join(folder, "out"))
    path = os.path.join(folder, "out", "summary.json")
    with open(SMALL, "rb") as file:
        text = file.read()
    with open(path, "wb") as file:
        file.write(text)
    _, err = expect(4, "run", path, "-q", "-o", "out", "--force", cwd=folder)
    require_one_line(err, "input")
    require_equal(tree(os.path.join(folder, "out")), {"summary.json": text}, "files")


@case
def survives_full_disk(folder):
    """When the disk is full the earlier result stays, no half-written file is left, and 4 is returned"""
    expect(0, "run", SMALL, "-q", "-o", "out", cwd=folder)
    before = tree(os.path.join(folder, "out"))

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    for path in ("out", "new"):
        _, err = expect(4, "run", SMALL, "--variant", "tensor", "-q", "-o", path, cwd=folder, preexec_fn=limit)
        require_one_line(err, "too large")
    require_equal(tree(folder), {f"out/{name}": text for name, text in before.items()}, "files")
    require_equal(os.listdir(folder), ["out"], "folders")


@case
def one_run_per_folder(folder):
    """A folder that another run is writing to is refused with 4"""
    expect(0, "run", SMALL, "-q", "-o", "out", cwd=folder)
    lock = os.open(os.path.join(folder, "out"), os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    _, err = expect(4, "run", SMALL, "-q", "-o", "out", cwd=folder)
    require_one_line(err, "another trainyard")
    os.close(lock)
    expect(0, "run", SMALL, "-q", "-o", "out", cwd=folder)


@case
def ends_at_signals(folder):
    """SIGINT ends a long run with 130, SIGTERM with 143, within a second, and leaves nothing"""
    # A small network, but 42,500 micro-batches: seconds.
    long = ["run", SMALL, "--unfold", "-q", "-o", "out", "--set", "training.global_batch=170000"]
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        process = subprocess.Popen([PROGRAM, *long], cwd=folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL)
        try:
            for _ in range(200):
                if os.listdir(folder) or process.poll() is not None:
                    break
                time.sleep(0.05)
            require_equal(process.poll(), None, "the run is still going on; exit code")
            began = time.monotonic()
            process.send_signal(number)
            require_equal(process.wait(timeout=20), code, "exit code")
            require(time.monotonic() - began < 5, "the end took long")
        finally:
            process.kill()
            process.wait()
        require_equal(os.listdir(folder), [], "files")


@case
def long_timeline(folder):
    """A timeline of more passes than can be shown is refused, a step without one is not"""
    long = ["run", SMALL, "-q", "--set", "training.global_batch=340000"]
    _, err = expect(3, *long, "-o", "out", cwd=folder)
    require_one_line(err, "timeline", "262144")
    require_equal(os.listdir(folder), [], "files")
    expect(0, *long, cwd=folder)


@case
def closed_pipe(folder):
    """A reader that goes away early is no error"""
    read, write = os.pipe()
    os.close(read)
    _, err = expect(0, "schema", stdout=write)
    os.close(write)
    require_equal(err, "", "standard error")


@case
def broken_output(folder):
    """A result that cannot be printed ends with 4"""
    with open("/dev/full", "wb") as full:
        _, err = expect(4, "schema", stdout=full)
    require_one_line(err, "standard output")
    # The file that is opened next must not become standard output.
    expect(4, "run", SMALL, "-q", "-o", "out", cwd=folder, stdout=None, preexec_fn=lambda: os.close(1))
    require(b"MFU" not in b"".join(tree(folder).get(f"out/{n}", b"")[:200] for n in ("summary.json",)), "mixed")


@case
def colours(folder):
    """Colours and progress appear on terminals only, or when asked for"""
    for words, environment in [([], {"TERM": "xterm"}), (["--color", "never"], {"TERM": "xterm"})]:
        out, err = expect(0, "compare", SMALL, *words, environment=environment)
        require("\x1b" not in out + err, "escape sequences")
        require("\r" not in err, "progress")
    out, _ = expect(0, "compare", SMALL, "--color", "always")
    require("\x1b[" in out, "no escape sequences with --color always")
    _, err = expect(2, "run", SMALL, "--variant", "\x1b[31m")
    require("\x1b" not in err, "an escape sequence of the command line is shown as it is")


@case
def explains(folder):
    """explain shows every value with its origin, and every stage by itself"""
    out, err = expect(0, "explain", SMALL, "--variant", "tensor", "--set", "training.global_batch=32")
    require(re.search(r"^/training/global_batch +32 +--set", out, re.M), out)
    require(re.search(r"^/model/layers +4 +\S*small\.json:\d+:\d+", out, re.M), out)
    require(re.search(r"^/parallelism/tp +4 +\S*small\.json:\d+:\d+", out, re.M), out)
    require(re.search(r" default$", out, re.M), out)
    for stage in ("scenario", "ranks", "layers", "memory", "kernels", "transfers", "classes", "links"):
        out, _ = expect(0, "explain", SMALL, "--variant", "tensor", "--stage", stage)
        require(len(out) > 40, f"{stage}: {out}")
    # A class names its ranks, and each is in one.
    classes, _ = expect(0, "explain", SMALL, "--variant", "tensor", "--stage", "classes")
    ranks = []
    for line in classes.splitlines()[1:]:
        for part in line.split()[-1].split(","):
            first, _, last = part.partition("-")
            ranks += range(int(first), int(last or first) + 1)
    world = json.loads(expect(0, "run", SMALL, "--variant", "tensor", "--json")[0])["world_size"]
    require_equal(sorted(ranks), list(range(world)), "ranks of classes")
    # A link is two whole numbers and its ends, and there is one back.
    links, _ = expect(0, "explain", SMALL, "--variant", "tensor", "--stage", "links")
    found = [re.fullmatch(r" *(\d+) +\d+  (.+) -> (.+)", line) for line in links.splitlines()[1:]]
    require(all(found), links)
    ends = {(link[2], link[3]) for link in found}
    require(all((b, a) in ends and int(link[1]) > 0 for link in found for a, b in [link.groups()[1:]]), links)


@case
def profile_of_other_gpu(folder):
    """A profile of another GPU is refused, or accepted as an extrapolation that the report warns of"""
    words = ["run", SMALL, "--variant", "data", "--json", "--set", "cluster.calibration=v100-sxm2-32gb"]
    _, err = expect(3, *words)
    require("/cluster/calibration" in err and "v100-sxm2-32gb" in err, err)
    require("cluster.calibration_of_other_gpu" in err, err)
    # A check says what a run would say, once and not for each variant.
    _, checked = expect(3, "check", SMALL, "--set", "cluster.calibration=v100-sxm2-32gb")
    require_equal(checked, err, "what check says")
    out, _ = expect(0, *words, "--set", "cluster.calibration_of_other_gpu=true")
    result = json.loads(out)
    require_equal(result["basis"]["measured"] + result["basis"]["interpolated"], 0, "basis")
    require(result["extrapolated"], "nothing is extrapolated")
    require("of the predicted time is extrapolated: " in result["warnings"][0], result["warnings"])
    require("made on v100-sxm2-32gb, the cluster has test-gpu" in result["warnings"][1], result["warnings"])


@case
def lists_presets(folder):
    """Every preset that is listed can be shown"""
    out, _ = expect(0, "presets")
    require_equal(out, expect(0, "presets", "list")[0], "presets list")
    presets = [line.split()[:2] for line in out.splitlines()]
    require(len(presets) > 3, out)
    for kind, name in presets:
        require(expect(0, "presets", "show", f"{kind}/{name}")[0], name)


@case
def shows_schedules(folder):
    """Every schedule that is listed is drawn, as text, JSON and a well-formed picture"""
    import xml.etree.ElementTree

    out, _ = expect(0, "schedules")
    require_equal(out, expect(0, "schedules", "list")[0], "schedules list")
    names = [line.split()[0] for line in out.splitlines() if not line.startswith(" ")]
    require(len(names) >= 16, out)
    picture = os.path.join(folder, "one.svg")
    for name in names:
        words = ["schedules", "show", name, "-p", "4", "-m", "8"]
        text, _ = expect(0, *words, "--svg", picture)
        require("stage 3 " in text and "in flight" in text, text)
        shown = json.loads(expect(0, *words, "--json")[0])
        require_equal((shown["schedule"], len(shown["orders"])), (name, 4), name)
        root = xml.etree.ElementTree.parse(picture).getroot()
        passes = sum(len(order["slots"].replace("+", " ").split()) for order in shown["orders"])
        require_equal(len(root.findall(".//{http://www.w3.org/2000/svg}title")), passes, name)
    require("11.1 %" in expect(0, "schedules", "show", "zb-h1")[0], "the bubble of ZB-H1")
    words = ["schedules", "show", "gpipe", "-p", "3", "-m", "4", "--at", "1,2,5,6"]
    text = expect(0, *words)[0]
    for line in ("t = 1     F0       .        .\n", "t = 2     F1       F0       .\n",
                 "t = 5     .        F3       F2\n", "t = 6     .        .        F3\n"):
        require(line in text, text)
    require_equal(json.loads(expect(0, *words, "--json")[0])["at"][1], {"tick": 2, "passes": ["F1", "F0", ""]}, words)
    words = ["schedules", "show", "interleaved_1f1b", "-p", "2", "-m", "4", "-v", "2", "--overlap-passes", "--json"]
    require_equal(json.loads(expect(0, *words)[0])["orders"][1]["slots"],
                  "F0a F1a F0b F1b+B0b F2a+B1b F3a+B0a F2b+B1a F3b+B2b B3b B2a B3a", words)
    for words in (["zb-h3"], ["dualpipe", "-m", "7"], ["1f1b", "-p", "0"], ["gpipe", "--overlap-passes"],
                  ["1f1b", "--overlap-passes"], ["1f1b", "--f", "x"],
                  ["1f1b", "--at", "0"], ["1f1b", "--at", "34"]):
        _, err = expect(2, "schedules", "show", *words)
        require_one_line(err)


@case
def writes_schema(folder):
    """The schema is draft-07 and accepts the small scenario and every shipped one"""
    import jsonschema  # Debian: python3-jsonschema

    schema = json.loads(expect(0, "schema")[0])
    jsonschema.Draft7Validator.check_schema(schema)
    shipped = os.path.join(HERE, "..", "..", "configs", "scenarios")
    paths = [SMALL] + [os.path.join(shipped, name) for name in sorted(os.listdir(shipped)) if name.endswith(".json")]
    for path in paths:
        with open(path, encoding="utf-8") as file:
            scenario = json.load(file)
        errors = [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(scenario)]
        require_equal(errors, [], path)
    with open(SMALL, encoding="utf-8") as file:
        wrong = json.load(file)
    wrong["training"]["global_bach"] = 1
    require(list(jsonschema.Draft7Validator(schema).iter_errors(wrong)), "an unknown key is accepted")


@case
def completes(folder):
    """Completion for bash is a script that completes commands, options and their values"""
    script = expect(0, "completion", "bash")[0]
    for typed, expected in [("r", {"run"}), ("run --var", {"--variant"}), ("presets s", {"show"}),
                            ("explain --stage ra", {"ranks"}), ("--color n", {"never"}),
                            ("ca", {"calibrate"}), ("calibrate --q", {"--quiet", "--quick"}), ("fi", {"fit"}),
                            ("fit --attention c", {"cudnn"}), ("import nv", {"nvbandwidth"})]:
        ask = (f"COMP_WORDS=(trainyard {typed}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _trainyard; "
               'echo "${COMPREPLY[@]}"')
        done = run("/bin/bash", "--norc", "-c", f"{script}\n{ask}")
        require_equal(set(done.stdout.decode().split()), expected, typed)


@case
def completes_elsewhere(folder):
    """Completion for zsh and fish is a script that those shells take, and so is the manual for man"""
    for shell in ("zsh", "fish"):
        path = os.path.join(folder, shell)
        with open(path, "w", encoding="utf-8") as file:
            file.write(expect(0, "completion", shell)[0])
        if shutil.which(shell) is not None:
            done = run(shutil.which(shell), "-n", path)
            require(done.returncode == 0 and done.stderr == b"", done.stderr.decode())
    if shutil.which("fish") is not None:
        for typed, expected in [("ru", {"run"}), ("run --var", {"--variant"}), ("presets s", {"show"}),
                                ("explain --stage ra", {"ranks"}), ("run --color n", {"never"})]:
            done = run(shutil.which("fish"), "-c", f"source {path}; complete -C 'trainyard {typed}'")
            words = {line.split("\t")[0] for line in done.stdout.decode().splitlines()}
            require_equal(words, expected, typed)
    page = expect(0, "manual")[0]
    for command in ("run", "compare", "presets show", "import nccl-tests"):
        require(f".SS trainyard {command.replace('-', chr(92) + '-')}\n" in page, command)
    if shutil.which("mandoc") is not None:
        path = os.path.join(folder, "trainyard.1")
        with open(path, "w", encoding="utf-8") as file:
            file.write(page)
        done = run(shutil.which("mandoc"), "-T", "lint", "-W", "error", path)
        require(done.returncode == 0, done.stdout.decode())


@case
def helps(folder):
    """Help and version go to standard output and end with 0"""
    for words in (["--help"], ["run", "--help"], ["presets", "show", "--help"], ["calibrate", "--help"],
                  ["fit", "--help"], ["import", "--help"], ["import", "smi-topo", "--help"]):
        out, err = expect(0, *words)
        require("Usage:" in out and err == "", out + err)
    out, _ = expect(0, "--help")
    for command in ("calibrate", "fit", "import"):
        require(re.search(rf"^  {command} ", out, re.M), f"{command} is not listed: {out}")
    out, _ = expect(0, "--version")
    require(re.fullmatch(r"trainyard \d+\.\d+\.\d+\n", out), out)


def with_probe(folder, script):
    """The program in a folder of its own, with `script` as the probe beside it (None: with none)."""
    program = os.path.join(folder, "bin", "trainyard")
    os.makedirs(os.path.dirname(program))
    try:
        os.link(PROGRAM, program)
    except OSError:
        shutil.copy(PROGRAM, program)
    if script is not None:
        probe = os.path.join(folder, "bin", "trainyard-probe")
        with open(probe, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + script)
        os.chmod(probe, 0o755)
    return program


def gemm_samples():
    """What a probe might write of a GPU that no preset describes, with one law behind it."""
    gpu = {"name": "NVIDIA Test 1", "compute_capability": "8.0", "multiprocessors": 108,
           "memory_bytes": 80 << 30, "l2_bytes": 40 << 20, "memory_bus_bits": 5120, "memory_clock_mhz": 1593,
           "clock_mhz": 1410}
    lines = [{"kind": "machine", "gpus": [gpu], "date": "2025-05-01T00:00:00Z"}]
    for m in (128, 512, 1000, 2048, 8192):
        for n in (256, 1024, 4096, 12288):
            for k in (128, 768, 4096, 10240):
                lines.append({"kind": "gemm", "dtype": "bf16", "m": m, "n": n, "k": k, "batch": 1, "layout": "TN",
                              "time_us": 4 + 2e-6 * m * n * k / 250, "spread": 0.01, "repeats": 9})
    return "".join(json.dumps(line) + "\n" for line in lines)


@case
def calibrates(folder):
    """calibrate runs the probe beside the program, appends its samples and writes profile, page and server"""
    with open(os.path.join(folder, "measured"), "w", encoding="utf-8") as file:
        file.write(gemm_samples())
    program = with_probe(folder, f'echo "$@" > {folder}/words\ncat {folder}/measured >> "$2"\necho busy >&2\n')
    done = run(program, "calibrate", "-o", "out/box.json", "--quick", "--suite", "gemm", "--budget", "9", cwd=folder)
    require_equal(done.returncode, 0, f"exit code; {done.stderr.decode()}")
    require(b"busy\n" in done.stderr, "what the probe says is not passed on")
    out = tree(os.path.join(folder, "out"))
    require_equal(sorted(out), ["box.html", "box.json", "box.samples.jsonl", "box.server.json"], "files")
    with open(os.path.join(folder, "words"), encoding="utf-8") as file:
        require_equal(file.read().split(), ["--output", "out/box.samples.jsonl", "--suite", "gemm", "--budget", "9",
                                            "--quick"], "words for the probe")
    require(json.loads(out["box.json"])["gemm"], "no law")
    server = json.loads(out["box.server.json"])
    require_equal(server["gpu"]["multiprocessors"], 108, "multiprocessors")
    # The server is one that a scenario can name.
    for kind in ("models", "servers"):
        os.makedirs(os.path.join(folder, "configs", kind))
    with open(os.path.join(folder, "configs/servers/box.json"), "wb") as file:
        file.write(out["box.server.json"])
    with open(SMALL, encoding="utf-8") as file:
        scenario = json.load(file)
    scenario["cluster"] = {"nodes": 1, "node": {"preset": "box"}, "calibration": "out/box.json"}
    for key in ("variants", "baseline", "parallelism"):
        scenario.pop(key, None)
    with open(os.path.join(folder, "mine.json"), "w", encoding="utf-8") as file:
        json.dump(scenario, file)
    text, err = expect(0, "check", "mine.json", cwd=folder)
    require_equal((text, err), ("mine.json: OK\n", ""), "check")
    # Nobody's profile is replaced unasked; with --force the samples of both runs are fitted.
    done = run(program, "calibrate", "-o", "out/box.json", cwd=folder)
    require_equal(done.returncode, 4, "exit code")
    require_one_line(done.stderr.decode(), "exists", "--force")
    done = run(program, "calibrate", "-o", "out/box.json", "--force", "--json", cwd=folder)
    require_equal(done.returncode, 0, done.stderr.decode())
    json.loads(done.stdout)
    require_equal(tree(folder)["out/box.samples.jsonl"], out["box.samples.jsonl"] * 2, "samples")


@case
def says_that_nothing_can_be_measured(folder):
    """calibrate without probes, or with probes that find no device, ends with 4 and leaves nothing"""
    program = with_probe(folder, None)
    done = run(program, "calibrate", "-o", "out/box.json", cwd=folder)
    require_equal(done.returncode, 4, "exit code")
    require_one_line(done.stderr.decode(), "no probes", "nvcc", "./dev calibrate", "trainyard fit")
    require_equal(os.listdir(folder), ["bin"], "files")
    script = "echo 'trainyard-probe: no CUDA device was found' >&2\nexit 4\n"
    os.mkdir(os.path.join(folder, "second"))
    program = with_probe(os.path.join(folder, "second"), script)
    done = run(program, "calibrate", "-o", "out/box.json", cwd=folder)
    require_equal(done.returncode, 4, "exit code")
    require_equal(done.stderr, b"trainyard-probe: no CUDA device was found\n", "standard error")
    require_equal(sorted(os.listdir(folder)), ["bin", "second"], "files")
    for words, part in ((["-o", "box"], "NAME.json"), (["-o", ".json"], "NAME.json"), (["--suit", "a"], "--suite"),
                        (["--suite", ""], "--suite"), (["--device", "tpu"], "--device"),
                        (["--device", "cpu", "--suite", "gemm"], "leave them out"),
                        (["--device", "cpu", "--devices", "0"], "leave them out"),
                        (["--threads", "2"], "add --device cpu")):
        done = run(program, "calibrate", *words, cwd=folder)
        require_equal(done.returncode, 2, f"exit code of {words}")
        require_one_line(done.stderr.decode(), part)


@case
def passes_signals_to_the_probe(folder):
    """A signal ends the probe first, and calibrate after it; what was measured is kept"""
    script = ("trap 'echo kept >> \"$out\"; exit 130' INT\ntrap 'echo kept >> \"$out\"; exit 143' TERM\n"
              'out=$2\necho begun >> "$out"\nwhile :; do sleep 0.05; done\n')
    program = with_probe(folder, script)
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        samples = os.path.join(folder, f"out{code}", "box.samples.jsonl")
        process = subprocess.Popen([program, "calibrate", "-o", f"out{code}/box.json"], cwd=folder, env=ENVIRONMENT,
                                   stdin=subprocess.DEVNULL)
        try:
            for _ in range(400):
                if os.path.exists(samples) and os.path.getsize(samples) > 0:
                    break
                time.sleep(0.05)
            require_equal(process.poll(), None, "the probe is still running; exit code")
            process.send_signal(number)
            require_equal(process.wait(timeout=20), code, "exit code")
        finally:
            process.kill()
            process.wait()
        require_equal(tree(os.path.dirname(samples)), {"box.samples.jsonl": b"begun\nkept\n"}, "files")


RECORDED = os.path.join(HERE, "..", "calibrate", "recorded")


@case
def imports(folder):
    """import makes samples of a log, on standard output or in a file that appears whole"""
    log = os.path.join(RECORDED, "h100-all-reduce.txt")
    out, err = expect(0, "import", "nccl-tests", log, "--collective", "all-reduce")
    lines = [json.loads(line) for line in out.splitlines()]
    require_equal([line["kind"] for line in lines], ["machine"] + ["collective"] * 6, "kinds")
    require_equal(len(lines[0]["gpus"]), 8, "GPUs")
    require_equal(lines[-1]["time_us"], 62648, "time")
    require_equal(err, "", "standard error")
    words = ("import", "nccl-tests", log, "--collective", "all-reduce", "-o", "s.jsonl")
    expect(0, *words, cwd=folder)
    with open(os.path.join(folder, "s.jsonl"), encoding="utf-8") as file:
        require_equal(file.read(), out, "file")
    _, err = expect(4, *words, cwd=folder)
    require_one_line(err, "s.jsonl", "--force")
    expect(0, *words, "--force", cwd=folder)
    require_equal(os.listdir(folder), ["s.jsonl"], "files")


XML = """<system version="1">
  <cpu numaid="{0}"><pci busid="ffff:ff:0{0}.0" class="0x060400">
    <pci busid="0{0}:00.0" class="0x030200" vendor="0x10de" device="0x20b2" link_speed="16 GT/s" link_width="16">
      <gpu dev="0" sm="80"><nvlink target="c4:00.0" count="12" tclass="0x068000"/></gpu></pci>
    <pci busid="1{0}:00.0" class="0x030200" vendor="0x10de" device="0x20b2" link_speed="16 GT/s" link_width="16">
      <gpu dev="1" sm="80"><nvlink target="c4:00.0" count="12" tclass="0x068000"/></gpu></pci>
    <pci busid="2{0}:00.0" class="0x020700"/>
  </pci></cpu>
</system>
"""


@case
def imports_servers(folder):
    """import server makes a preset of NCCL's XML or of nvidia-smi topo, which a scenario names at once"""
    path = os.path.join(folder, "topo.xml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(XML.format(0))
    _, err = expect(3, "import", "server", path)
    require_one_line(err, "1 NICs", "--nic-bandwidth")
    servers = os.path.join(folder, "configs", "servers")
    os.makedirs(servers)
    preset = os.path.join(servers, "mine.json")
    words = ("import", "server", path, "--nic-bandwidth", "200Gbps", "-o", preset)
    out, err = expect(0, *words)
    require('"preset": "mine"' in out and err == "", out + err)
    with open(preset, encoding="utf-8") as file:
        server = json.load(file)
    require_equal((server["gpu"], server["gpus"], server["intra"]["bandwidth_per_gpu"]),
                  ("a100-sxm4-80gb", 2, "300GB/s"), "GPUs")
    require_equal((server["nics"], server["nic"]["bandwidth"], server["host"]["gpus_per_pcie_switch"]),
                  (1, "200Gbps", 2), "NICs and switches")
    with open(SMALL, encoding="utf-8") as file:
        scenario = json.load(file)
    scenario["cluster"]["node"] = {"preset": "mine"}
    scenario["cluster"]["nodes"] = 4
    own = os.path.join(folder, "own.json")
    with open(own, "w", encoding="utf-8") as file:
        json.dump(scenario, file)
    expect(0, "check", own)
    _, err = expect(4, *words)
    require_one_line(err, "mine.json", "--force")
    path = os.path.join(folder, "topo.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-7\nGPU1\tNV4\t X \t0-7\n")
    _, err = expect(3, "import", "server", path)
    require_one_line(err, "--gpu NAME: a10")
    out, _ = expect(0, "import", "server", path, "--gpu", "NVIDIA H100 80GB HBM3")
    server = json.loads(out)
    require_equal((server["name"], server["gpu"], server["intra"]["mesh"]),
                  ("topo", "h100-sxm5-80gb", [{"a": 0, "b": 1, "links": 4}]), "mesh")
    _, err = expect(2, "import", "server", path, "--gpu", "h100-sxm5-80gb", "--pcie-bandwidth", "24")
    require_one_line(err, "--pcie-bandwidth")
    _, err = expect(3, "import", "server", path, "--gpu", "h9000")
    require_one_line(err, "no GPU preset is called 'h9000'", "--gpu NAME: a10")
    for word, name in (("a100-40gb", "a100-sxm4-40gb"), ("4090", "rtx-4090")):
        require_equal(json.loads(expect(0, "import", "server", path, "--gpu", word)[0])["gpu"], name, word)
    _, err = expect(2, "import", "server", path, "--gpu", "a100")
    require_one_line(err, "--gpu: 'a100' is each of a100-sxm4-40gb, a100-sxm4-80gb; say which")


@case
def imports_links(folder):
    """import smi-topo and nvbandwidth ask for the GPU's name, which their files do not have"""
    path = os.path.join(folder, "topo.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-7\nGPU1\tNV4\t X \t0-7\n")
    _, err = expect(3, "import", "smi-topo", path)
    require("--gpu" in err, err)
    out, _ = expect(0, "import", "smi-topo", path, "--gpu", "NVIDIA A40")
    require_equal(json.loads(out)["nvlinks"], [[0, 4], [4, 0]], "links")
    test = {"name": "device_to_host_memcpy_ce", "status": "Passed",
            "bandwidth_description": "bandwidth (GB/s)", "bandwidth_matrix": [["8.388608"]]}
    path = os.path.join(folder, "bandwidth.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"nvbandwidth": {"testcases": [test]}}, file)
    out, _ = expect(0, "import", "nvbandwidth", path, "--gpu", "NVIDIA A40", "--buffer", "8MiB")
    require_equal(json.loads(out.splitlines()[1])["time_us"], 1000, "time")
    _, err = expect(2, "import", "nvbandwidth", path, "--gpu", "NVIDIA A40", "--buffer", "8")
    require_one_line(err, "--buffer")


@case
def refuses_bad_logs(folder):
    """A log that cannot be right ends with 3, with the line of every mistake, and writes nothing"""
    with open(os.path.join(RECORDED, "h100-all-reduce.txt"), encoding="utf-8") as file:
        text = file.read()
    path = os.path.join(folder, "log.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace("27.37", "72.37").replace("4029.40", "nan"))
    words = ("import", "nccl-tests", path, "--collective", "all-reduce", "-o", "s.jsonl")
    out, err = expect(3, *words, cwd=folder)
    require_equal(re.findall(rf"^{re.escape(path)}:(\d+):", err, re.M), ["18", "19"], "lines")
    require_equal(out, "", "standard output")
    require_equal(os.listdir(folder), ["log.txt"], "files")
    expect(3, "import", "nccl-tests", "absent.txt")
    expect(3, "import", "nccl-tests", folder)
    _, err = expect(2, "import", "nccl-tets", path)
    require_one_line(err, "did you mean 'nccl-tests'?")
    _, err = expect(2, "import", "nccl-tests", path, "--collective", "allreduce")
    require_one_line(err, "--collective")


# One layer of products on one GPU that computes and does nothing else.
PRODUCTS = {"version": 1, "name": "products",
            "model": {"kind": "layers", "input": {"shape": [8192]}, "layers": [
                {"name": "product", "ops": [{"op": "linear", "in": 8192, "out": 8192}, {"op": "loss"}]}]},
            "cluster": {"nodes": 1, "node": {"preset": "dgx-a100-80gb", "gpus": 1}},
            "training": {"global_batch": 8192, "micro_batch": 8192, "precision": {"compute": "fp16"},
                         "optimizer": {"type": "sgd"}}}


@case
def refuses_more_than_the_peak(folder):
    """A profile by which a step does more than the GPU's peak is refused, with the kernel and both rates"""
    with open(os.path.join(HERE, "../../configs/profiles/a100-sxm4-80gb.json"), encoding="utf-8") as file:
        profile = json.load(file)
    law = profile["gemm"][0]
    law.update(compute_efficiency=1, memory_efficiency=1, exponent=8, fixed="1ns")
    law["residuals"] = [{"m": 8192, "n": 8192, "k": 8192, "factor": 0.1}]
    scenario = {**PRODUCTS, "cluster": {**PRODUCTS["cluster"], "calibration": "fast.json"}}
    for name, content in (("fast.json", profile), ("products.json", scenario)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(content, file)
    out, err = expect(3, "run", "./products.json", cwd=folder)
    require_equal(out, "", "standard output")
    require("calibration" in err and "gemm fp16" in err and "312 TFLOP/s" in err, err)
    law["residuals"] = []
    with open(os.path.join(folder, "fast.json"), "w", encoding="utf-8") as file:
        json.dump(profile, file)
    out, _ = expect(0, "run", "./products.json", "--json", cwd=folder)
    require(0.5 < json.loads(out)["hfu"] <= 1, out)


@case
def long_sequences_stay_below_the_peak(folder):
    """Half a million tokens with fused attention use less than all of the GPU, and PaLM's count stands beside it"""
    path = os.path.join(folder, "long.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"version": 1, "name": "long", "model": {"preset": "llama3-8b"},
                   "cluster": {"nodes": 8, "node": {"preset": "dgx-h100"}},
                   "training": {"global_batch": 4, "micro_batch": 1, "sequence_length": 524288, "recompute": "full",
                                "precision": {"compute": "bf16"}, "optimizer": {"type": "adam"},
                                "fused_attention": True},
                   "parallelism": {"tp": 8, "cp": 8}}, file)
    out, _ = expect(0, "run", path, "--json")
    result = json.loads(out)
    require(0.3 < result["mfu"] < result["hfu"] < 0.75, out)
    # 12 l h s FLOPs of the square per token beside 6 N.
    square = result["full_square"]
    masked = 6 * 32 * 4096 * 524288 * 4 * 524288
    require_equal(square["model_flops"] - result["model_flops"], masked, "masked FLOPs")
    require(abs(square["mfu"] / result["mfu"] - square["model_flops"] / result["model_flops"]) < 1e-9, out)
    out, _ = expect(0, "run", path)
    require("as PaLM and Megatron-LM count" in out, out)


@case
def says_what_a_training_takes(folder):
    """tokens, samples or epochs give steps, days, GPU-hours, dollars and energy; two of them at once are refused"""
    gpu = ["--set", 'cluster.node.gpu.power={"idle":"50W","busy":"300W"}', "--set", "cost.gpu_hour=2"]
    answers = []
    for sets in (["training.tokens=204800"], ["training.samples=1600"],
                 ["training.epochs=4", "training.dataset_size=400"]):
        words = [word for value in sets for word in ("--set", value)]
        out, _ = expect(0, "run", SMALL, "-q", "--json", *gpu, *words)
        answers.append(json.loads(out))
    for answer in answers:
        training = answer["training"]
        require_equal((training["steps"], training["samples"], training["tokens"]), (100, 1600, 204800), "length")
        hours = 100 * answer["step_time_s"] / 3600 * 4
        require(abs(training["gpu_hours"] - hours) < 1e-12 * hours and training["dollars"] == 2 * training["gpu_hours"],
                training)
        idle = answer["pipeline"]["bubble_fraction"]
        kwh = hours * (0.05 * idle + 0.3 * (1 - idle))
        require(abs(training["energy_kwh"] - kwh) < 1e-9 * kwh, training)
    out, _ = expect(0, "run", SMALL, "-q", *gpu, "--set", "training.samples=1600")
    require("205 k tokens: 100 steps" in out and "GPU-hour" in out and "(analytic)" in out, out)
    out, _ = expect(0, "compare", SMALL, "-q", *gpu, "--set", "training.samples=1600")
    require("GPU-hours" in out and "dollars" in out, out)
    _, err = expect(3, "run", SMALL, "--set", "training.samples=5", "--set", "training.tokens=5")
    require("more than one way: tokens and samples;" in err, err)
    _, err = expect(3, "run", SMALL, "--set", "training.epochs=5")
    require("dataset_size" in err, err)
    _, err = expect(0, "run", SMALL, "--set", "cost.gpu_hour=5")
    require("/cost/gpu_hour" in err, err)


@case
def ends_with_a_verdict(folder):
    """run ends with a verdict and what costs most; compare stands the fastest first, marks it, and has --csv"""
    out, _ = expect(0, "run", SMALL, "--variant", "tensor")
    end = "\n".join(out.splitlines()[-8:])
    require(0 <= end.find("\nFits with ") < end.find("\nCosts most: "), out)
    out, _ = expect(0, "compare", SMALL)
    rows = out.splitlines()
    require(rows[3].startswith("* ") and all(row.startswith("  ") for row in rows[4:7]), out)
    require("OOM" in rows[6], out)
    require("is the fastest" in out, out)
    table, _ = expect(0, "compare", SMALL, "--csv")
    head, *lines = [line.split(",") for line in table.splitlines()]
    require_equal(len(lines), 4, "rows")
    times = [float(line[head.index("step_time_s")]) for line in lines if line[head.index("step_time_s")]]
    require_equal(times, sorted(times), "step times")
    expect(2, "compare", SMALL, "--csv", "--json")


@case
def intervals_come_from_published_steps(folder):
    """An estimate says between which times 8 of 10 published steps of its class were, and what class that is"""
    out, _ = expect(0, "run", os.path.join(HERE, "../../configs/scenarios/llama3-70b-512xh100.json"), "--json")
    found = json.loads(out)["interval"]
    require(found["low_s"] < found["high_s"] and found["steps"] >= 10 and found["of_this_kind"], out)
    require("a transformer" in found["of"], found)
    with open(os.path.join(HERE, "../../configs/accuracy/steps.json"), encoding="utf-8") as file:
        errors = json.load(file)
    require("./dev validate --write" in errors["command"] and len(errors["sources"]) >= 3, "provenance")
    # The smallest and the largest error that the tenth and the ninetieth percentile of the class leave.
    kind = json.loads(out)["class"]
    rows = sorted(row["error"] for row in errors["steps"] if all(row[key] == kind[key] for key in kind))
    cut = (len(rows) - 1) // 10
    step = json.loads(out)["step_time_s"]
    for key, error in (("low_s", rows[-1 - cut]), ("high_s", rows[cut])):
        require(abs(found[key] * (1 + error) / step - 1) < 1e-9, (key, found))
    out, _ = expect(0, "run", SMALL, "--variant", "data", "--json")
    require(json.loads(out)["class"] == {"network": "a transformer", "profile": False, "one_server": True}, out)


@case
def small_stack(folder):
    """A stack of 256 KiB is enough"""
    limit = lambda: resource.setrlimit(resource.RLIMIT_STACK, (256 << 10, 256 << 10))
    expect(0, "compare", SMALL, "-q", "-o", "out", cwd=folder, preexec_fn=limit)


def peak_memory(*words, cwd):
    """The most bytes that a run of the program held."""
    with open(os.path.join(cwd, "printed"), "wb") as out:
        child = subprocess.Popen([PROGRAM, *words], cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        _, status, usage = os.wait4(child.pid, 0)
    require_equal(status, 0, "wait status")
    return usage.ru_maxrss * 1024


@case
def many_microbatches(folder):
    """Where nobody asks for a trace, a micro-batch costs what its calls take, and no span of its ops"""
    scenario = {
        "version": 1, "name": "many", "parallelism": {"pp": 4, "dp": 2},
        "model": {"layers": 8, "hidden": 1024, "heads": 16, "vocab": 32000, "ffn_hidden": 4096},
        "cluster": {"nodes": 1, "node": {"preset": "dgx-h100"}},
        "training": {"global_batch": 8192, "micro_batch": 1, "sequence_length": 1024,
                     "precision": {"compute": "bf16"}, "optimizer": {"type": "adam"}, "fused_attention": True}}
    with open(os.path.join(folder, "many.json"), "w") as file:
        json.dump(scenario, file)
    more = ("--set", "training.global_batch=40960")
    few, many = (peak_memory("run", "many.json", *words, cwd=folder) for words in ((), more))
    bytes_each = (many - few) / 16384
    require(bytes_each < 1500, f"{bytes_each} bytes for a micro-batch")


@case
def calls_nothing_outside(folder):
    """The program cannot open a socket or load code, and starts a process in one way only"""
    done = run("/usr/bin/nm", "-D", "--undefined-only", PROGRAM)
    names = {line.split()[-1].split("@")[0] for line in done.stdout.decode().splitlines()}
    require(len(names) > 20, done.stderr.decode())
    forbidden = {"socket", "connect", "getaddrinfo", "system", "popen", "dlopen", "fork", "vfork", "posix_spawnp"}
    found = sorted(name for name in names if name in forbidden or name.startswith("exec"))
    require_equal(found, [], "functions")


case.main()
