#!/usr/bin/python3
"""The comparison itself. usage: proof_test.py TRAINYARD

Records become the scenarios of synthetic-scenarios.json (written anew with `proof_test.py --write`), what cannot be
described is said with its reason, and errors are those of a program whose answers are known."""

import contextlib
import copy
import importlib.util
import io
import json
import os
import stat
import subprocess
import sys
import tempfile
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
PROOF = os.path.join(HERE, "..", "..", "calibrate", "proof")
PROBE_CPU = os.path.join(HERE, "..", "..", "calibrate", "probe", "cpu", "probe_cpu.py")
sys.path.insert(1, PROOF)

import cases
import framework_cases
import frameworks
import measure
import measuring
import training
from scenario_of import BadRecord, Undescribable, is_same_gpu, load_profile, scenario_of

RECORDS = os.path.join(HERE, "synthetic-records.json")
SCENARIOS = os.path.join(HERE, "synthetic-scenarios.json")
PROFILES = [("PROFILE", "a100-sxm4-80gb")]
HOST_CASE = framework_cases.WAITS_FOR_HOST


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
        (("projections",), "apart", "BadRecord: \"projections\" is \"apart\", expected one of joint, separate"),
        (("loss",), 3, "BadRecord: \"loss\" is 3, expected one of eager, compiled"),
        (("mode",), "inference forward", "Undescribable: inference"),
        (("dry_run",), True, "Undescribable: a dry run measures nothing"),
        (("batch",), {}, "Undescribable: does not state mbs"),
        (("id",), "other", ""),
    ]:
        assert why(changed(good, path, value)) == reason, (path, value, why(changed(good, path, value)))
    resnet = read(RECORDS)["records"][2]
    assert why(changed(resnet, ("technique",), "compiled")) == "Undescribable: a compiled network of images"


def test_gelu_new():
    """Several kernels where execution is eager; elsewhere it is noted that it is one."""
    record = read(RECORDS)["records"][4]
    said = "gelu_new, several kernels in eager PyTorch, is taken to be one"
    for path, value, activation, noted in [
        (("id",), "eager", "operators", False),
        (("model", "hf_config", "activation_function"), "gelu", None, False),
        (("framework",), "Megatron-LM", None, True),
        (("technique",), "compiled", None, True),
    ]:
        scenario, notes = scenario_of(changed(record, path, value), PROFILES)
        assert scenario["training"].get("activation") == activation, (path, scenario["training"])
        assert (said in notes) == noted, (path, notes)


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


def test_networks_of_the_llama_kind():
    """Parameters are those of Llama 3 8B, and a scenario says how the script computes."""
    whole = cases.llama(32, 8192, 1, "fused")
    assert cases.parameters(whole) == 8030261248, cases.parameters(whole)
    # All weights but norms and the embedding take 6 operations a token, and queries meet keys 8192 times.
    multiplied = 8030261248 - 65 * 4096 - 128256 * 4096
    assert cases.model_flops(whole) == 6 * 8192 * multiplied + 12 * 8192 * 8192 * 4096 * 32
    assert cases.identity(cases.llama(4, 2048, 4, "compiled", recompute="full", accumulate=2)) == \
        "llama3-8b-4l-s2048-b4-x2-bf16-compiled-recompute-full"
    for technique, recompute, wanted in [
        ("fused", "none", {"execution": "eager", "fused_attention": True, "loss": "eager"}),
        ("compiled", "none", {"execution": "compiled", "fused_attention": True, "loss": "compiled"}),
        # A checkpoint ends early inside of an eager block; a compiled one is a whole.
        ("fused", "full", {"execution": "eager", "recompute_stops_early": True}),
        ("compiled", "full", {"execution": "compiled", "recompute_stops_early": None}),
    ]:
        case = cases.llama(4, 8192, 1, technique, recompute=recompute)
        result = {"outcome": "oom", "metrics": [], "optimizer": "adamw", "hardware": {"gpu": "A100-SXM4-80GB"}}
        scenario, notes = scenario_of(measure.record_of(case, result, "2000-01-01", dry=False), PROFILES)
        assert notes == [], notes
        wanted.update(projections="separate", gate_projection="separate", key_value_heads="repeated",
                      sequence_length=8192, recompute=recompute)
        assert {key: scenario["training"].get(key) for key in wanted} == wanted, scenario["training"]
        assert scenario["model"] == {
            "layers": 4, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn_hidden": 14336, "ffn": "swiglu",
            "vocab": 128256, "positional": "rope", "norm": "rms_norm", "biases": False, "dropout": False,
            "tied_embeddings": False}, scenario["model"]


def has_torch():
    return importlib.util.find_spec("torch") is not None


def test_the_dry_run_trains_a_llama(folder):
    """Its parameters are those that are expected, where this Python has PyTorch."""
    if not has_torch():
        print("no torch: no network is trained")
        return
    path = os.path.join(folder, "dry.json")
    done = subprocess.run([sys.executable, "-B", os.path.join(PROOF, "measure.py"), "--dry-run", "--only", "llama-tiny",
                           "-o", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = {record["id"]: record["outcome"] for record in read(path)["records"]}
    assert len(outcomes) == 3, outcomes
    for name, outcome in outcomes.items():
        # PyTorch before 2.0 has none, and eager cases do without.
        old = "fused" in name and "no attribute 'scaled_dot_product_attention'" in outcome
        assert outcome == "ok" or old, (name, outcome)


def run_frameworks(*arguments):
    done = subprocess.run([sys.executable, "-B", os.path.join(PROOF, "frameworks.py"), *arguments],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_frameworks(trainyard, folder):
    """Every case of frameworks.py is listed without PyTorch, and is a record that `validate` reads."""
    every = framework_cases.all_cases()
    ids = [case["id"] for case in every]
    assert len(set(ids)) == len(ids) > 20, ids
    assert run_frameworks("--list") == (0, "\n".join(ids) + "\n", "")
    code, output, _ = run_frameworks("--list", "--only", "tv-")
    assert code == 0 and len(output.splitlines()) == 4, output
    code, _, errors = run_frameworks("--only", "tv-")
    assert code == 2 and "--gpu is required" in errors, errors
    code, _, errors = run_frameworks("--gpu", "h100")
    assert code == 2 and "--gpu h100: expected one of" in errors and "h100-sxm5-80gb" in errors, errors
    code, _, errors = run_frameworks("--gpu", "h100-sxm5-80gb", "--only", "nonesuch")
    assert code == 1 and "no case is named like 'nonesuch'" in errors, errors

    metrics = frameworks.metrics_of([2.0, 1.0, 3.0], 2**31, 2**32, (7, 1500.0, 6))
    assert {metric["name"]: metric["value"] for metric in metrics} == {
        "step_time": 2.0, "allocated_memory": 2.0, "reserved_memory": 4.0, "step_time_spread": 0.5,
        "step_time_least": 1.0, "steps": 3, "kernels": 7, "busy_time": 1.5}, metrics
    records = [frameworks.record_of(case, {"outcome": "ok", "metrics": metrics}) for case in every]
    records[0].update(outcome="out of memory", metrics=[])
    records[1].update(outcome="failed: RuntimeError: no", metrics=[])
    path = os.path.join(folder, "frameworks.json")
    with open(path, "w", encoding="utf-8") as stream:
        about = {"date": "2000-01-01", "hardware": {"gpu": "NVIDIA H100"}, "software": {"torch": "2.11"}}
        json.dump(frameworks.document_of("h100-sxm5-80gb", records, about), stream)
    done = subprocess.run([trainyard, "validate", "--records", path, "--json"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    rows = {row["record"]: row for row in json.loads(done.stdout)["sets"][0]["records"]}
    assert sorted(rows) == sorted(ids[:1] + ids[2:]), sorted(rows)


def measured_by_hand(case):
    """As an H100 took it, and the others ten times as long."""
    step = 87.672 if case["id"] == HOST_CASE else 876.72
    profile = (2210, 25480.0, 2128)
    return {"outcome": "ok", "metrics": frameworks.metrics_of([step, step], 2**31, 2**32, profile), "launches": 2128}


def run_main(path, *arguments, card="NVIDIA H100 80GB HBM3", order=list, result=measured_by_hand):
    """frameworks.main() with a card that is not there: its exit code or message, the documents that it wrote, and the
    cases that it measured."""
    documents, cases_run, every = [], [], order(framework_cases.all_cases())

    def measured(case):
        cases_run.append(case["id"])
        return result(case)

    write_file = measuring.write_whole

    def write_whole(where, document):
        documents.append(copy.deepcopy(document))
        write_file(where, document)

    stubs = {"all_cases": lambda: every, "check_device": lambda on_cpu: "", "hardware": lambda: {"gpu": card},
             "versions": lambda: {}, "release_memory": lambda: None, "measured": measured}
    arguments = ["frameworks.py", "-o", path, *arguments]
    with mock.patch.multiple(frameworks, **stubs), mock.patch.object(sys, "argv", arguments), \
            mock.patch.object(measuring, "write_whole", write_whole), contextlib.redirect_stdout(io.StringIO()):
        try:
            code = frameworks.main()
        except SystemExit as end:
            code = end.code
    return code, documents, cases_run


def launch_times(document):
    return {record["id"]: record["scenario"]["training"].get("launch_time") for record in document["records"]}


def test_the_hosts_time_of_frameworks(trainyard, folder):
    """All records of Hugging Face get it as soon as its case is measured, in whatever order."""
    names = ["Memset (Device)", "Memcpy HtoD (Pageable -> Device)", "Memcpy DtoD (Device -> Device)", "sgemm"]
    assert training.counted([(name, 2.0) for name in names]) == (3, 6.0, 2)
    path = os.path.join(folder, "host.json")
    for order in (list, lambda every: every[::-1]):
        code, documents, ids = run_main(path, "--gpu", "h100-sxm5-80gb", order=order)
        assert code == 0 and len(documents) == len(ids) > 20, (code, len(documents))
        for number, document in enumerate(documents, 1):
            times, known = launch_times(document), HOST_CASE in ids[:number]
            assert list(times) == ids[:number], times
            for name, time in times.items():
                assert time == ("41.2us" if known and name.startswith("hf ") else None), (number, name, time)
            assert ("41.2 us, is the step of" in document["notes"]) == known, document["notes"]
            assert ("launch_time is the software's habit" in document["notes"]) != known, document["notes"]
        assert f"\"{HOST_CASE}\", which waits for the host, over its 2128 launches." in documents[-1]["notes"]
        assert "is taken to be" not in documents[-1]["notes"], documents[-1]["notes"]
        done = subprocess.run([trainyard, "validate", "--records", path, "--json"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 0 and done.stderr == "", done.stderr

    def failing(case):
        return {"outcome": "failed: no", "metrics": []} if case["id"] == HOST_CASE else measured_by_hand(case)

    def unprofiled(case):
        metrics = frameworks.metrics_of([2.0, 2.0], 2**31, 2**32, None)
        return {"outcome": "ok", "metrics": metrics} if case["id"] == HOST_CASE else measured_by_hand(case)

    def slow_gpu(case):
        metrics = frameworks.metrics_of([90.0, 90.0], 2**31, 2**32, (2210, 85000.0, 2128))
        return {"outcome": "ok", "metrics": metrics, "launches": 2128}

    for arguments, result in [(["--only", "autocast"], measured_by_hand), ([], failing), ([], unprofiled),
                              ([], slow_gpu)]:
        code, documents, _ = run_main(path, "--gpu", "h100-sxm5-80gb", *arguments, result=result)
        assert code == 0 and set(launch_times(documents[-1]).values()) == {None}, launch_times(documents[-1])
        assert "launch_time is the software's habit" in documents[-1]["notes"], documents[-1]["notes"]


def test_frameworks_on_another_gpu(folder):
    """Nothing is measured on a card that --gpu does not name, unless it is said that this is meant."""
    path = os.path.join(folder, "other.json")
    code, documents, ids = run_main(path, "--gpu", "h100-sxm5-80gb", card="NVIDIA H200")
    assert (documents, ids, os.path.exists(path)) == ([], [], False)
    # A message is what sys.exit() prints, and ends with 1.
    assert code == ("frameworks.py: this GPU is NVIDIA H200, which is not h100-sxm5-80gb: give --gpu its own preset, "
                    "or --other-gpu too if it is to be taken for h100-sxm5-80gb"), code
    code, documents, ids = run_main(path, "--gpu", "h100-sxm5-80gb", "--other-gpu", card="NVIDIA H200")
    assert code == 0 and len(ids) > 20, code
    assert documents[-1]["notes"].endswith(" NVIDIA H200 is taken to be h100-sxm5-80gb."), documents[-1]["notes"]
    assert documents[-1]["scenario"]["cluster"]["node"]["gpu"] == {"preset": "h100-sxm5-80gb"}
    code, _, _ = run_main(path, "--gpu", "h200-sxm5-141gb", "--only", "tv-", card="NVIDIA H200")
    assert code == 0, code
    code, output, _ = run_frameworks("--help")
    assert code == 0 and "--other-gpu" in output, output


def test_shipped_frameworks():
    """The shipped records name their metrics as the script does, and their launch_time is what it would set."""
    folder = os.path.join(frameworks.CONFIGS, "validation", "published")
    known = {metric["name"] for metric in frameworks.metrics_of([1.0, 1.0], 1, 1, (1, 1.0, 1))}
    for name, launch_time in [("pytorch_h100.json", "41.2us"), ("pytorch_h200.json", "29.3us")]:
        document = read(os.path.join(folder, name))
        for record in document["records"]:
            names = {metric["name"] for metric in record["metrics"]}
            assert names <= known and {"kernels", "busy_time"} <= names, (name, record["id"], names - known)
        # The files do not say how many of the kernels are memsets; their notes do.
        records = [{**record, "launches": 2128} for record in document["records"]]
        assert frameworks.host_of(records) == (launch_time, 2128), frameworks.host_of(records)
        times = {time for name, time in launch_times(document).items() if name.startswith("hf ")}
        assert times == {launch_time}, times


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
    if not has_torch():
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
    test_gelu_new()
    test_gpu_names()
    test_shipped_frameworks()
    test_measured_cases_are_described()
    test_networks_of_the_llama_kind()
    with tempfile.TemporaryDirectory() as folder:
        test_errors(folder)
        test_bad_input(folder)
        test_validate_reads_them(sys.argv[1], folder)
        test_the_probe_of_processors(sys.argv[1], folder)
        test_the_dry_run_trains_a_llama(folder)
        test_frameworks(sys.argv[1], folder)
        test_the_hosts_time_of_frameworks(sys.argv[1], folder)
        test_frameworks_on_another_gpu(folder)
    test_the_program_accepts_them(sys.argv[1])


main()
