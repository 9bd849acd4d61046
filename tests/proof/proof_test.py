#!/usr/bin/python3
"""The comparison itself. usage: proof_test.py TRAINYARD

Records become the scenarios of synthetic-scenarios.json (written anew with `proof_test.py --write`), what cannot be
described is said with its reason, and errors are those of a program whose answers are known."""

import copy
import importlib.util
import json
import os
import stat
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PROOF = os.path.join(HERE, "..", "..", "calibrate", "proof")
PROBE_CPU = os.path.join(HERE, "..", "..", "calibrate", "probe", "cpu", "probe_cpu.py")
sys.path.insert(1, PROOF)

import cases
import measure
from scenario_of import BadRecord, Undescribable, is_same_gpu, load_profile, scenario_of

RECORDS = os.path.join(HERE, "synthetic-records.json")
SCENARIOS = os.path.join(HERE, "synthetic-scenarios.json")
PROFILES = [("PROFILE", "a100-sxm4-80gb")]


def read(path):
    with open(path, encoding="utf-8") as stream:
        return json.load(stream)


def converted():
    found = []
    for record in read(RECORDS)["records"]:
        scenario, notes = scenario_of(record, PROFILES)
        found.append({"scenario": scenario, "notes": notes})
    return found


def test_scenarios():
    for got, wanted in zip(converted(), read(SCENARIOS), strict=True):
        assert got == wanted, f"{json.dumps(got, indent=1)}\n!=\n{json.dumps(wanted, indent=1)}"


def changed(record, path, value):
    """A copy with the value at `path` replaced, or removed if it is None."""
    result = copy.deepcopy(record)
    owner = result
    for key in path[:-1]:
        owner = owner.setdefault(key, {})
    if value is None:
        owner.pop(path[-1], None)
    else:
        owner[path[-1]] = value
    return result


def why(record):
    try:
        scenario_of(record, PROFILES)
    except (Undescribable, BadRecord) as reason:
        return f"{type(reason).__name__}: {reason}"
    return ""


def test_reasons():
    good = read(RECORDS)["records"][0]
    for path, value, reason in [
        (("hardware", "gpu"), "NVIDIA L4", "Undescribable: no profile of NVIDIA L4; given: a100-sxm4-80gb"),
        (("hardware", "gpu"), None, "BadRecord: \"hardware\" names no \"gpu\""),
        (("hardware",), [1], "BadRecord: \"hardware\" is [1], expected an object"),
        (("model", "layers"), None, "Undescribable: does not state layers"),
        (("model", "layers"), 2.5, "BadRecord: \"layers\" is 2.5, expected a positive whole number"),
        (("model", "heads"), "many", "BadRecord: \"heads\" is \"many\", expected a positive whole number"),
        (("model", "act"), "tanh", "Undescribable: activation tanh"),
        (("model",), {"name": "other", "hidden": 256}, "Undescribable: does not state the activation (act)"),
        (("model", "act"), None, ""),
        (("model", "hf_config"), {"model_type": "bert"}, "Undescribable: an encoder; decoders are described"),
        (("parallelism", "cp"), 2, "BadRecord: tp 1 x pp 1 x cp 2 do not divide 1 GPUs"),
        (("parallelism", "fsdp"), 8, "Undescribable: FSDP"),
        (("parallelism", "ep"), 4, "Undescribable: a mixture of experts"),
        (("parallelism", "tp"), 3, "BadRecord: tp 3 x pp 1 x cp 1 do not divide 1 GPUs"),
        (("precision",), "int4", "Undescribable: precision \"int4\""),
        (("optimizer",), "lamb", "Undescribable: optimizer lamb"),
        (("recompute",), "some", "Undescribable: recompute \"some\""),
        (("mode",), "inference forward", "Undescribable: inference"),
        (("dry_run",), True, "Undescribable: a dry run measures nothing"),
        (("batch",), {}, "Undescribable: does not state mbs"),
        (("id",), "other", ""),
    ]:
        assert why(changed(good, path, value)) == reason, (path, value, why(changed(good, path, value)))
    resnet = read(RECORDS)["records"][2]
    assert why(changed(resnet, ("technique",), "compiled")) == "Undescribable: a compiled network of images"


def test_gpu_names():
    for device, preset, same in [
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb", True), ("NVIDIA A100-SXM4-40GB", "a100-sxm4-80gb", False),
        ("NVIDIA A100 80GB PCIe", "a100-sxm4-80gb", False), ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb", True),
        ("NVIDIA H100 PCIe", "h100-sxm5-80gb", False), ("NVIDIA GeForce RTX 4090", "rtx-4090", True),
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16gb", True), ("Tesla V100-SXM2-16GB", "v100-sxm2-32gb", False),
        ("NVIDIA H200", "h100-sxm5-80gb", False),
    ]:
        assert is_same_gpu(device, preset) == same, (device, preset)
    path, preset = load_profile("a100-sxm4-80gb")
    assert os.path.isabs(path) and preset == "a100-sxm4-80gb", (path, preset)


def test_measured_cases_are_described():
    """Every case of measure.py says all that a scenario needs, without PyTorch."""
    ids = set()
    for case in cases.all_cases(quick=False):
        result = {"outcome": "oom", "metrics": [], "optimizer": "adamw", "hardware": {"gpu": "A100-SXM4-80GB"}}
        record = measure.record_of(case, result, "2000-01-01", dry=False)
        scenario, notes = scenario_of(record, PROFILES)
        assert notes == [], notes
        assert record["id"] not in ids, record["id"]
        ids.add(record["id"])
        assert scenario["training"]["global_batch"] == case["batch"] * case["accumulate"]
    assert len(ids) > 40
    for case in cases.dry_cases():
        assert why(measure.record_of(case, {"outcome": "ok", "metrics": []}, "2000-01-01", dry=True)) != ""
    gpt = cases.gpt("gpt-125m", 1024, 8, "fused")
    assert cases.parameters(gpt) == 124475904, cases.parameters(gpt)
    assert cases.model_flops(gpt) == 8192 * 12 * (72 * 768 * 768 + 12 * 1024 * 768) + 6 * 8192 * 768 * 50304


def compare(program, *arguments):
    done = subprocess.run([sys.executable, "-B", os.path.join(PROOF, "compare.py"), program, *arguments],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_errors(folder):
    """A program that predicts 3 ms, of them 1 ms optimizer, 1 GiB, and that the first scenario does not fit."""
    program = os.path.join(folder, "program")
    answer = {"status": "ok", "step_time_s": 0.003, "simulated_step_s": 0.003, "breakdown_s": {"optimizer": 0.001},
              "memory": {"fits": True, "allocated_bytes": 2**30}}
    full = dict(answer, step_time_s=None, memory={"fits": False, "allocated_bytes": 2**30})
    with open(program, "w", encoding="utf-8") as stream:
        stream.write(f"#!/bin/sh\ncase $2 in *0001-*) echo '{json.dumps(full)}'; exit 1;; "
                     f"*0003-*) echo 'scenario: error: no' >&2; exit 2;; esac\necho '{json.dumps(answer)}'\n")
    os.chmod(program, os.stat(program).st_mode | stat.S_IXUSR)
    code, output, errors = compare(program, RECORDS, "--profile", "a100-sxm4-80gb", "--json")
    assert code == 0, errors
    report = json.loads(output)
    rows = {row["id"]: row for row in report["rows"]}
    assert abs(rows["synthetic-eager"]["step_ms_error"] - 0.5) < 1e-12
    assert abs(rows["synthetic-eager"]["memory_gib_error"] - 1.0) < 1e-12
    assert abs(rows["synthetic-no-optimizer"]["step_ms_error"] - (2 / 3 - 1)) < 1e-12
    assert rows["synthetic-resnet50"]["skipped"] == "trainyard refuses it: scenario: error: no"
    assert rows["synthetic-compiled"]["step_ms_error"] is None
    # Fits though it ran out of memory, and the other way round.
    assert report["out_of_memory"] == {"hits": 0, "misses": 1, "false_alarms": 1, "fits": 2}, report["out_of_memory"]
    assert report["step_time"]["rows"] == 3
    expected = sum([0.5, 0.003 / 0.02 - 1, -1 / 3]) / 3
    assert abs(report["step_time"]["bias"] - expected) < 1e-12, report["step_time"]
    assert sorted(report["by_technique"]) == ["compiled", "eager", "fused, fused attention"], report["by_technique"]
    code, text, _ = compare(program, RECORDS, "--profile", "a100-sxm4-80gb")
    assert code == 0 and "out of memory: 0 of 1 foreseen, 1 of 3 that ran said not to fit" in text, text
    assert "left out: 1" in text and "does not fit" in text, text


def test_bad_input(folder):
    path = os.path.join(folder, "bad.json")
    for text, said in [("{", "not JSON"), ("[]", "a list \"records\""), ("{\"records\": 3}", "a list \"records\"")]:
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text)
        code, _, errors = compare("/bin/false", path, "--profile", "a100-sxm4-80gb")
        assert code == 1 and said in errors, errors
    code, _, errors = compare("/bin/false", "/nonexistent", "--profile", "a100-sxm4-80gb")
    assert code == 1 and "No such file" in errors, errors
    code, _, errors = compare("/bin/false", RECORDS, "--profile", "nonesuch")
    assert code == 1 and "no such profile" in errors, errors
    code, _, errors = compare("/bin/false", RECORDS, "--profile", "a100-sxm4-80gb", "--gpu", "L4=h100")
    assert code == 1 and "expected DEVICE=PRESET" in errors, errors
    with open(path, "w", encoding="utf-8") as stream:
        record = read(RECORDS)["records"][0]
        json.dump({"records": [7, changed(record, ("metrics",), [{"name": "step_time", "value": -1, "unit": "ms"}]),
                               changed(record, ("metrics",), [{"name": "step_time", "value": 1, "unit": "h"}]),
                               changed(record, ("metrics",), []), changed(record, ("outcome",), "failed: x")]}, stream)
    code, output, _ = compare("/bin/false", path, "--profile", "a100-sxm4-80gb", "--json")
    reasons = [row["skipped"] for row in json.loads(output)["rows"]]
    assert code == 1 and reasons == [
        "bad record: 7, expected an object",
        "bad record: step_time is -1, expected a positive number",
        "bad record: step_time has the unit \"h\", expected one of ms, s, us",
        "has neither a step time nor a memory",
        "was not measured (failed: x)",
    ], reasons


def test_the_program_accepts_them(trainyard):
    code, output, errors = compare(trainyard, RECORDS, "--profile", "a100-sxm4-80gb", "--json")
    assert code == 0, errors
    report = json.loads(output)
    refused = [(row["id"], row["skipped"]) for row in report["rows"] if row["skipped"]]
    assert refused == [], refused
    assert report["out_of_memory"] == {"hits": 0, "misses": 1, "false_alarms": 0, "fits": 4}
    # Host-bound: 6.25 us for each of the kernels of four micro-batches.
    first = report["rows"][0]["predicted"]
    assert 4 * 60 * 6.25e-3 < first["step_ms"] < 10, first


def test_validate_reads_them(trainyard, folder):
    """What --write writes has the errors of the comparison, but for a record without an optimizer."""
    path = os.path.join(folder, "records.json")
    code, output, errors = compare(trainyard, RECORDS, "--profile", "a100-sxm4-80gb", "--json", "--write", path)
    assert code == 0, errors
    wanted = {row["id"]: row for row in json.loads(output)["rows"] if row["id"] != "synthetic-no-optimizer"}
    done = subprocess.run([trainyard, "validate", "--records", path, "--json"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = {row["record"]: row for row in json.loads(done.stdout)["sets"][0]["records"]}
    assert sorted(rows) == sorted(wanted), sorted(rows)
    for name, row in rows.items():
        for ours, theirs in (("error_s", "step_ms_error"), ("error_bytes", "memory_gib_error")):
            assert abs((row.get(ours) or 0) - (wanted[name][theirs] or 0)) < 1e-9, (name, row, wanted[name])


def test_the_probe_of_processors(trainyard, folder):
    """Its samples are read and fitted, where this Python has PyTorch."""
    if importlib.util.find_spec("torch") is None:
        print("no torch: the probe of processors is not run")
        return
    samples, profile = os.path.join(folder, "samples.jsonl"), os.path.join(folder, "profile.json")
    subprocess.run([sys.executable, PROBE_CPU, "--dry-run", "--output", samples], check=True)
    with open(samples, encoding="utf-8") as stream:
        kinds = {json.loads(line)["kind"] for line in stream}
    # What lies between operators is a difference of two times, which one call of each may not tell.
    assert kinds - {"launch"} == {"machine", "gemm", "convolution", "memory", "copy"}, kinds
    done = subprocess.run([trainyard, "fit", samples, "--gpu", "epyc-9004-core", "-o", profile, "--json"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert read(profile)["gpu"] == "epyc-9004-core", "the preset that was asked for"


def main():
    if sys.argv[1:] == ["--write"]:
        with open(SCENARIOS, "w", encoding="utf-8") as stream:
            json.dump(converted(), stream, indent=1)
            stream.write("\n")
        return
    test_scenarios()
    test_reasons()
    test_gpu_names()
    test_measured_cases_are_described()
    with tempfile.TemporaryDirectory() as folder:
        test_errors(folder)
        test_bad_input(folder)
        test_validate_reads_them(sys.argv[1], folder)
        test_the_probe_of_processors(sys.argv[1], folder)
    test_the_program_accepts_them(sys.argv[1])


main()
