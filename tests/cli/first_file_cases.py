#!/usr/bin/python3
"""What a new user meets: the scenario of README, `new`, what is assumed. As cases.py."""

import json
import os
import re

from process import Cases, require, require_equal

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
FIRST = os.path.join(SOURCE, "configs", "scenarios", "first.json")
case = Cases()
expect = case.expect


def text_of(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def write(folder, name, value):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file)
    return path


def new(folder, *words):
    """What `new` writes, as a file; it runs, fits, and nothing in it is assumed."""
    text, _ = expect(0, "new", *words, cwd=folder)
    path = os.path.join(folder, "my.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    result = json.loads(expect(0, "run", "my.json", "--json", cwd=folder)[0])
    require(result["step_time_s"] > 0, result)
    require("assumed" not in result, result.get("assumed"))
    require_equal(expect(0, "new", *words, cwd=folder)[0], text, "the same words give the same file")
    return json.loads(text), result


@case
def readme_shows_ten_lines(folder):
    """README's first scenario is a shipped file of ten lines, and its answer is what run prints"""
    readme = text_of(SOURCE, "README.md")
    scenario = text_of(FIRST)
    require_equal(scenario.count("\n"), 10, "lines")
    require(f"```json\n{scenario}```" in readme, "README does not show configs/scenarios/first.json")
    out, _ = expect(0, "run", FIRST, cwd=folder)
    shown = readme.split("configs/scenarios/first.json\n")[1].split("...\n")[0]
    require("step time" in shown and "memory" in shown, shown)
    for line in shown.splitlines():
        require(line in out.splitlines(), f"README shows {line!r}, run prints:\n{out}")


@case
def names_what_is_assumed(folder):
    """What a scenario leaves out is named in text, in JSON and in a comparison, and what it says is not"""
    with open(FIRST, encoding="utf-8") as file:
        scenario = json.load(file)
    keys = ["/cluster/nodes", "/training/micro_batch", "/training/precision/compute", "/training/optimizer/type",
            "/training/fused_attention"]
    result = json.loads(expect(0, "run", FIRST, "--json")[0])
    require_equal([line["pointer"] for line in result["assumed"]], keys, "assumed")
    require_equal([line["value"] for line in result["assumed"]], ["1", "1", "bf16", "adam", "cudnn"], "values")
    said = ["--set", "cluster.nodes=1", "--set", "training.micro_batch=1", "--set", "training.precision.compute=bf16",
            "--set", "training.optimizer.type=adam", "--set", "training.fused_attention=cudnn"]
    full = json.loads(expect(0, "run", FIRST, "--json", *said)[0])
    require("assumed" not in full, full)
    require_equal(full["step_time_s"], result["step_time_s"], "what is assumed is what may be said")
    require("Assumed" not in expect(0, "run", FIRST, *said)[0], "nothing is assumed")
    del scenario["training"]["fused_attention"]
    unsaid = json.loads(expect(1, "run", write(folder, "eager.json", scenario), "--json", *said[:-2])[0])
    require_equal([(line["pointer"], line["value"]) for line in unsaid["assumed"]],
                  [("/training/fused_attention", "false")], "attention that the file does not name")
    scenario["training"]["fused_attention"] = True
    scenario["variants"] = [{"name": "a", "with": {}}, {"name": "b", "with": {"training": {"micro_batch": 2}}}]
    out, _ = expect(0, "compare", write(folder, "two.json", scenario))
    require("Assumed in a" in out and "Assumed in b" in out, out)
    text = " ".join(out.split("Assumed in b")[1].split())
    require("cluster.nodes = 1" in text and "micro_batch" not in text, out)


@case
def assumes_what_the_gpu_has(folder):
    """Without a precision a GPU without bf16 computes in fp16; networks of images take SGD with momentum"""
    out, _ = expect(0, "run", FIRST, "--json", "--set", "cluster.node=dgx-1v-32gb", "--set", "model.preset=resnet50",
                    "--set", "training.sequence_length=null", "--set", "training.fused_attention=null", "--set",
                    "training.global_batch=256", "--set", "parallelism=null")
    assumed = {line["pointer"]: line["value"] for line in json.loads(out)["assumed"]}
    require_equal(assumed["/training/precision/compute"], "fp16", "precision")
    require_equal(assumed["/training/optimizer/type"], "sgd", "optimizer")
    require_equal(assumed["/training/micro_batch"], "32", "a replica's part of the batch")


@case
def writes_scenarios_that_run(folder):
    """new writes a file that runs and fits, the same one twice, for networks of every kind"""
    for words in (["--model", "llama3-8b", "--gpus", "8xh100"], ["--model", "gpt-1.7b", "--gpus", "2x4090"],
                  ["--model", "resnet50", "--gpus", "8xv100-16gb"], ["--model", "bert-large", "--gpus", "4xh200"],
                  ["--model", "dlrm-criteo-terabyte", "--gpus", "8xa100-80gb"]):
        scenario, _ = new(folder, *words)
        require_equal(scenario["name"], f"{words[1]}-{words[3]}", "name")
    for gpus, kernel in (("8xv100-32gb", False), ("2x4090", "fa2"), ("8xh100", "cudnn")):
        scenario, _ = new(folder, "--model", "gpt-1.7b", "--gpus", gpus)
        require_equal(scenario["training"]["fused_attention"], kernel, f"fused attention on {gpus}")
    scenario, _ = new(folder, "--model", "llama3-8b", "--gpus", "16xa100-80gb", "--global-batch", "32",
                      "--sequence-length", "2048")
    require_equal(scenario["training"]["global_batch"], 32, "global batch")
    require_equal(scenario["training"]["sequence_length"], 2048, "sequence length")
    require_equal(scenario["cluster"], {"preset": "selene", "nodes": 2}, "cluster")


@case
def batches_can_be_divided(folder):
    """new takes a batch of which a GPU's share has many divisors, and all of them as micro-batches"""
    for count in (3, 5, 6, 7):
        scenario, result = new(folder, "--model", "bert-large", "--gpus", f"{count}xh100")
        share = scenario["training"]["global_batch"] // count
        require(share in (256, 384, 512, 768), f"{share} samples of each of {count} GPUs")
        require(scenario["training"]["micro_batch"] > 8, f"micro-batch on {count} GPUs")


@case
def puts_all_cards_in_one_box(folder):
    """new puts GPUs of a server without NICs into one server, as many as are asked for"""
    for count in (3, 4, 8):
        scenario, _ = new(folder, "--model", "gpt-1.7b", "--gpus", f"{count}x4090")
        require_equal(scenario["cluster"], {"nodes": 1, "node": {"preset": "pcie-2x4090", "gpus": count}}, "cluster")


@case
def writes_scenarios_of_hugging_face(folder):
    """new --hf writes a file for a network's config.json"""
    os.makedirs(os.path.join(folder, "tiny"))
    write(folder, "tiny/config.json", {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 2048, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 128256,
        "tie_word_embeddings": True, "hidden_act": "silu", "max_position_embeddings": 131072})
    scenario, _ = new(folder, "--hf", "tiny/config.json", "--gpus", "8xh100")
    require_equal(scenario["model"], {"hf_config": "tiny/config.json"}, "model")
    require_equal(scenario["name"], "tiny-8xh100", "name")
    require_equal(scenario["training"]["sequence_length"], 4096, "tokens")
    with open(os.path.join(folder, "tiny/config.json"), encoding="utf-8") as file:
        short = dict(json.load(file), max_position_embeddings=2048)
    os.makedirs(os.path.join(folder, "short"))
    write(folder, "short/config.json", short)
    scenario, _ = new(folder, "--hf", "short/config.json", "--gpus", "8xh100")
    require_equal(scenario["training"]["sequence_length"], 2048, "tokens of a network made for fewer")


@case
def refuses_what_cannot_be_written(folder):
    """new says which word is wrong and what would be right, or why nothing fits"""
    for words, code, part in (
            (["--model", "llama3-8b", "--gpus", "8"], 2, "as 8xh100"),
            (["--model", "llama3-8b", "--gpus", "8xa100"], 2, "a100-sxm4-40gb, a100-sxm4-80gb"),
            (["--model", "llama3-8b", "--gpus", "8xabacus"], 2, "there are a10, "),
            (["--model", "llama3-8b", "--gpus", "12xh100"], 2, "take 8 or 16"),
            (["--model", "llama3-8b", "--gpus", "32x4090"], 2, "take 16 or fewer"),
            (["--gpus", "8xh100"], 2, "which network?"),
            (["--model", "llama3-8b", "--gpus", "8xh100", "--global-batch", "13"], 2, "take 16"),
            (["--model", "resnet50", "--gpus", "8xh100", "--sequence-length", "512"], 2, "reads no tokens"),
            (["--model", "deepseek-v3", "--gpus", "16xv100-sxm2-32gb"], 2, "capability 8.0 and later"),
            (["--model", "llama3-8b", "--hf", "x", "--gpus", "8xh100"], 2, "two networks"),
            (["--model", "llama3-8c", "--gpus", "8xh100"], 3, "llama3-8b"),
            (["--hf", "no.json", "--gpus", "8xh100"], 3, "no.json"),
            (["--model", "gpt-1t", "--gpus", "2x4090"], 1, "take more GPUs")):
        out, err = expect(code, "new", *words, cwd=folder)
        require_equal(out, "", f"standard output of {words}")
        require(part in err, f"{words}: {err}")


def explained(folder, path, *sets):
    """Values of `explain` by pointer, with their origins."""
    lines = expect(0, "explain", path, "--stage", "scenario", *sets, cwd=folder)[0].splitlines()
    return {pointer: (value, origin) for pointer, value, origin in
            (re.fullmatch(r"(\S+) +(.*?)  +(\S.*)", line).groups() for line in lines)}


@case
def explains_what_the_run_uses(folder):
    """explain says links that others decide, none that is not there, and the same run where all is said"""
    slot = ('"24GB/s"', "default")
    for more in ({}, {"host": {"sockets": 2}}, {"nics": 1, "nic": {"bandwidth": "50GB/s"}, "host": {"sockets": 2}}):
        path = write(folder, "box.json", {
            "version": 1, "name": "box", "model": {"preset": "gpt-1.7b"},
            "cluster": {"nodes": 1, "node": {"gpu": "rtx-4090", "gpus": 4, "intra": {"kind": "pcie"}, **more}},
            "training": {"global_batch": 64, "sequence_length": 2048, "fused_attention": True},
            "parallelism": {"data_parallel": {"kind": "fsdp"}}, "simulation": {"fidelity": "flow"}})
        values = explained(folder, path)
        node = {key[14:]: value for key, value in values.items() if key.startswith("/cluster/node/")}
        require_equal(values["/label"][0], '"box"', "label")
        require_equal(node["intra/bandwidth_per_gpu"], slot, "slot")
        require_equal(node.get("host/pcie_bandwidth"), None if "nics" in more else slot, "host")
        require_equal("host/socket_bandwidth" in node, "host" in more, "sockets")
        require_equal("nic/rail" in node, "nics" in more, "NIC")
        require("/model/latent_attention/q_rank" not in values, "no latent attention")
        require(not any(value in ('"0B/s"', '""') for value, _ in values.values()), values)
        sets = [word for key, (value, origin) in values.items()
                if origin == "default" and not key.endswith("/calibration") for word in ("--set", f"{key}={value}")]
        said = explained(folder, path, *sets)
        for key in {**values, **said}:
            require_equal(said.get(key, [None])[0], values.get(key, [None])[0], key)
        times = [json.loads(expect(0, "run", path, "--json", *words, cwd=folder)[0])["step_time_s"]
                 for words in ([], sets)]
        require(times[0] is not None, "does not fit")
        require_equal(times[1], times[0], "step time")


case.main()
