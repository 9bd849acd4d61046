#!/usr/bin/python3
"""Every converter of sources/ makes records that the program reads and predicts, and says what it leaves out.

usage: sources_test.py TRAINYARD
"""

import csv
import json
import os
import subprocess
import sys
import tempfile

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sources")
sys.path.insert(1, SOURCES)

import megatron_lm
from ultrascale import stage_layers

# Rows as the sources have them; the figures are made up.
GPT = {"name": "gpt", "layers": 8, "hidden": 1024, "heads": 16, "ffn": 4096, "vocab": 51200, "seq": 1024, "act": "gelu"}
LLAMA = {**GPT, "name": "llama3", "kv_heads": 8, "ffn": 3584, "act": "swiglu"}
H100 = {"profile": "DGX-H100", "gpu": "H100-SXM5-80GB", "num_gpus": 16}
A100 = {"profile": "DGX-A100", "gpu": "A100-SXM4-80GB", "num_gpus": 16}
TP2_PP2 = {"tp": 2, "pp": 2, "dp": 4, "cp": 1, "sp": True, "fsdp": 0}
TIME = {"name": "iteration_time", "value": 1.5, "unit": "s"}
RATE = {"name": "tokens_per_s_per_gpu", "value": 5000.0, "unit": "tokens/s/GPU"}
BATCH = {"gbs": 64, "mbs": 1}
PLAIN = {"id": "row", "source": {"title": "somebody", "license": "MIT"}, "batch": BATCH, "recompute": "none"}

ROWS = {
    "llm_foundry.json": {**PLAIN, "hardware": {**A100, "gpu": "a100_40gb"}, "model": GPT, "precision": "bf16",
                         "parallelism": {"fsdp": "SHARD_GRAD_OP", "mp_mode": "PURE"}, "metrics": [RATE]},
    "dgxc_benchmarking.json": {**PLAIN, "hardware": H100, "model": LLAMA, "precision": "FP8", "parallelism": TP2_PP2,
                               "check_tokens_per_s_rel_err": 0.001, "metrics": [TIME]},
    "efficient_layouts.json": {**PLAIN, "source": {"object": "a/sheet.xlsx trial 7"}, "hardware": A100, "model": LLAMA,
                               "kernel": "flash_attention2", "parallelism": TP2_PP2, "metrics": [TIME]},
    "korthikanti_mtnlg_llama.json": {**PLAIN, "hardware": A100, "model": GPT, "precision": "fp16", "recompute": "full",
                                     "parallelism": TP2_PP2, "metrics": [TIME]},
    "megatron_lm.json": {**PLAIN, "source": {"title": "README of April 2021"}, "batch": {"gbs": 64}, "model": GPT,
                         "hardware": A100, "parallelism": TP2_PP2, "metrics": [TIME]},
    "torchtitan.json": {**PLAIN, "hardware": H100, "model": LLAMA, "precision": "bf16", "recompute": "selective (op)",
                        "parallelism": {"fsdp": 4, "tp": 2, "pp": 2}, "technique": "FSDP + compile",
                        "schedule": "Interleaved1F1B",
                        "metrics": [RATE, {"name": "gpu_memory", "value": 20.5, "unit": "GiB"}]},
    "simumax_real.json": {**PLAIN, "hardware": {"gpu": "B200-SXM-180GB"}, "model": {"name": "llama3-70b"},
                          "case": "tp2_seq8192", "batch": {"mbs": 1, "micro_batches": 4}, "parallelism": {"tp": 2},
                          "metrics": [TIME, {"name": "gpu_memory_alloc", "value": 60.1, "unit": "GiB"}]},
    "nemo_2407_h100.json": {**PLAIN, "hardware": H100, "model": GPT, "parallelism": TP2_PP2,
                            "metrics": [{**TIME, "name": "iteration_time_derived"}]},
    "mlperf_llm.json": {**PLAIN, "benchmark": "gpt3", "model": GPT, "precision": "FP8", "parallelism": TP2_PP2,
                        "hardware": {**H100, "system": {"system_name": "dgxh100"}},
                        "metrics": [{**TIME, "name": "tracked_train_step_time"}]},
    "bloom_bigscience.json": {**PLAIN, "hardware": A100, "model": GPT, "precision": "bf16",
                              "parallelism": {**TP2_PP2, "zero": 1},
                              "metrics": [{"name": "hardware_tflops_per_gpu", "value": 90.5, "unit": "TFLOP/s"}]},
    "deep_learning_examples.json": {
        "id": "row", "source": {"headings": ["Results", "Pre-training"], "rev": "1234"}, "parallelism": {"dp": 16},
        "model": {"name": "TensorFlow/LanguageModeling/BERT"},
        "hardware": {"system": "DGX 1", "gpu": "V100", "mem_gb": 16, "num_gpus": 8, "nodes": 2},
        "batch": {"Sequence Length": "128", "Batch size / GPU: mixed precision, FP32": "16, 8"},
        "metrics": [{"column": "Throughput", "precision": "FP32", "value": 256.0}]},
    "lambda_paddle_dp.json": {**PLAIN, "id": "lam-1", "hardware": {"gpu": "A10", "num_gpus": 1},
                              "precision": "AMP fp16", "model": {"name": "resnet50"}, "batch": {"per_gpu_batch": 64.0},
                              "metrics": [{"name": "throughput", "value": 800.0, "unit": "image/s"}]},
    "tf_benchmarks_horovod.json": {**PLAIN, "hardware": {"gpu": "P100-SXM2-16GB", "num_gpus": 2},
                                   "model": {"name": "AlexNet"}, "batch": {"per_gpu": 32},
                                   "parallelism": {"strategy": {"variable_update": "replicated (with NCCL)"}},
                                   "metrics": [{"name": "images_per_s", "value": 250.0, "unit": "images/s"}]},
    "pollux_sia_dp.csv": {"id": "row", "cluster": "aws", "model": "BERT-base SQuAD", "placement": "22",
                          "num_nodes": "2", "num_gpus": "4", "local_batch": "8", "step_time_s": "1.5"},
    "gavel_throughputs.csv": {"gpu": "V100", "placement": "consolidated", "model": "ResNet-18", "batch_size_arg": "64",
                              "num_gpus": "1", "steps_per_s": "8.0"},
    "vtrain_multi_a100.csv": {"id": "row", "Parameters (billion)": "0.1", "# GPUs": "16", "global batch": "64",
                              "micro batch": "1", "hidden size": "1024", "attention heads": "16", "# layers": "8",
                              "sequence length": "1024", "tensor parallelism": "2", "data parallelism": "4",
                              "pipeline parallelism": "2", "iteration time (ms)": "1500"},
    "hf_ultrascale_h100.csv": {"id": "row", "gpus": "16", "model_params_b": "1.34", "layers": "16", "hidden": "2048",
                               "heads": "32", "kv_heads": "32.0", "ffn": "", "vocab": "131072", "tied_embeddings": "",
                               "seq": "4096", "dp": "4", "tp": "2", "pp": "2", "zero_stage": "1", "mbs": "1",
                               "gbs": "256", "outcome": "ok", "iteration_time_s": "3.2", "mem_reserved_GB": "30.5",
                               "allreduce_GBps": "330", "ar_intranode_GBps": "425", "usable": "yes"},
}
FROM_PAPER = {**PLAIN, "hardware": A100, "model": GPT, "precision": "bf16", "metrics": [TIME]}
EXPERTS = {**LLAMA, "head_dim": 64, "experts": 8, "topk": 2, "moe_ffn": 1024}
GH200 = {"gpu": "GH-96", "num_gpus": 4}
# Of these converters, what they share is above.
ROWS.update({
    "internevo.json": {**PLAIN, "hardware": A100, "model": LLAMA, "metrics": [RATE],
                       "parallelism": {"tp": 1, "pp": 1, "dp": 16, "zero1_size": 8}},
    "sailor_validation.json": {**PLAIN, "hardware": GH200, "model": {**GPT, "name": "opt"},
                               "parallelism": {"tp": 2, "pp": 2, "dp": 1,
                                               "layers_per_stage": [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]},
                               "metrics": [TIME, {"name": "max_peak_memory_per_gpu", "value": 9e9, "unit": "B"}]},
    "megatron_bridge_perf.json": {**PLAIN, "hardware": {"profile": "DGX-GB200", "num_gpus": 16}, "precision": "MXFP8",
                                  "model": {"name": "llama3-8b", "seq": 8192}, "parallelism": {"tp": 2, "fsdp": 0},
                                  "metrics": [RATE]},
    "misc_training.json": {**PLAIN, "id": "uci-0", "hardware": {**A100, "num_gpus": 4}, "model": LLAMA,
                           "parallelism": {"tp": 2, "pp": 1, "cp": 1, "dp": 2, "zero_stage": 3}, "metrics": [TIME]},
    "nemo_launcher_a100.json": {**PLAIN, "hardware": A100, "model": {"name": "t5-3b", "seq": 512},
                                "parallelism": {"tp": 2, "pp": 1, "dp": 8}, "metrics": [TIME]},
    "nemo_long_sequence.json": {**PLAIN, "hardware": {**H100, "profile": "DGX-B200"}, "model": {**LLAMA, "seq": 8192},
                                "parallelism": {"tp": 2, "pp": 1, "cp": 2},
                                "metrics": [{"name": "model_tflops_per_gpu", "value": 900.0, "unit": "TFLOP/s"}]},
    "fms_fsdp_megatron_llama.json": {**PLAIN, "hardware": A100, "model": LLAMA, "metrics": [RATE],
                                     "parallelism": {"fsdp": "HSDP"}},
    "neusight_models.json": {**PLAIN, "hardware": {"gpu": "NVIDIA_L4", "num_gpus": 1}, "mode": "training",
                             "model": GPT, "parallelism": {"dp": 1, "tp": 1, "pp": 1}, "batch": {"gbs": 2},
                             "metrics": [{"name": "e2e_latency", "value": 900.0, "unit": "ms"}]},
    "papers.json": {**FROM_PAPER, "id": "mlm-llama-1", "hardware": H100, "model": LLAMA,
                    "parallelism": {"tp": 2, "pp": 2, "vp": 2}},
    "papers2.json": {**FROM_PAPER, "id": "mpf-1", "hardware": H100, "model": EXPERTS, "schedule": "MCore",
                     "parallelism": {"tp": 2, "ep": 4},
                     "metrics": [{**TIME, "name": "iteration_time_derived"}]},
})
LORA = {**ROWS["dgxc_benchmarking.json"], "id": "lora", "peft": True}
ZERO_BUBBLE = {**FROM_PAPER, "id": "zb-1", "parallelism": {"tp": 1, "pp": 4, "dp": 4}, "schedule": "ZB-2p"}
FLASH_ATTENTION = {**FROM_PAPER, "id": "fatt-1", "batch": {"gbs_tokens": 500000.0},
                   "metrics": [{"name": "tokens_per_s", "value": 262144.0, "unit": "tokens/s"}]}
# Of files that several converters read: sets that are not called as a file is.
MORE_SETS = 2
UNEVEN = {**ROWS["pollux_sia_dp.csv"], "id": "uneven", "placement": "31"}
UNSTATED = {**ROWS["pollux_sia_dp.csv"], "id": "unstated", "placement": "", "num_gpus": "3"}
OUT_OF_MEMORY = {**ROWS["hf_ultrascale_h100.csv"], "id": "oom", "outcome": "oom", "iteration_time_s": "",
                 "mem_reserved_GB": ""}


def write(folder):
    more = {"dgxc_benchmarking.json": [LORA, {**LORA, "id": "broken", "peft": False, "hardware": None}, 7,
                                      {**LORA, "id": "endless", "peft": False,
                                       "metrics": [{**TIME, "value": float("inf")}]}],
            "hf_ultrascale_h100.csv": [OUT_OF_MEMORY], "pollux_sia_dp.csv": [UNEVEN, UNSTATED],
            "papers.json": [ZERO_BUBBLE], "papers2.json": [FLASH_ATTENTION]}
    for name, row in ROWS.items():
        rows = [row, *more.get(name, [])]
        with open(os.path.join(folder, name), "w", encoding="utf-8", newline="") as stream:
            if name.endswith(".json"):
                json.dump({"records": rows}, stream)
            else:
                writer = csv.DictWriter(stream, list(row))
                writer.writeheader()
                writer.writerows(rows)


def stages_are_as_nanotron_prints_them():
    """Llama 3 8B on 8 stages: huggingface/nanotron, docs/3d_parallelism.md"""
    split = stage_layers({"layers": 32, "hidden": 4096, "ffn": 14336, "vocab": 128256}, 8)
    assert split == [5, 4, 4, 5, 4, 4, 4, 2], split


def overlaps_what_its_flags_say():
    """Megatron-LM's rows on H100 state flags, of which Megatron Core sets none by itself."""
    row = {**PLAIN, "hardware": H100, "model": GPT, "metrics": [TIME]}
    for flags in ("--overlap-grad-reduce --overlap-param-gather", "--overlap-grad-reduce", ""):
        for one in megatron_lm.convert({**row, "parallelism": {**TP2_PP2, "overlap": flags}})["scenario"]:
            said = one["parallelism"]["data_parallel"]
            assert said["overlap_backward"] == ("grad" in flags), (flags, said)
            assert said["overlap_param_gather"] == ("param" in flags), (flags, said)


def shipped_is_predicted_alike(folder, records, sets):
    """What is said once of all records of a set, is said of each; only what may be passed on is."""
    small = os.path.join(folder, "small")
    subprocess.run([sys.executable, "-B", os.path.join(SOURCES, "ship.py"), records, small], check=True,
                   stderr=subprocess.DEVNULL)
    done = subprocess.run([sys.argv[1], "validate", "--records", small, "--json"], stdout=subprocess.PIPE, check=True)
    alike = json.loads(done.stdout)["sets"]
    assert {one["set"] for one in alike} >= {"dgxc", "papers"}, alike
    assert "ultrascale" not in {one["set"] for one in alike}, alike
    for one in alike:
        assert one["license"] and one["records"] == sets[one["set"]]["records"], one


def main():
    stages_are_as_nanotron_prints_them()
    overlaps_what_its_flags_say()
    with tempfile.TemporaryDirectory() as folder:
        write(folder)
        out = os.path.join(folder, "records")
        convert = [sys.executable, "-B", os.path.join(SOURCES, "convert.py")]
        said = subprocess.run([*convert, folder, out], check=True, stderr=subprocess.PIPE, text=True).stderr
        assert "left out 1: row endless: Out of range" in said, said
        assert "left out 1: row broken: " in said and "row that is no object: " in said, said
        assert len(os.listdir(out)) == len(ROWS) + MORE_SETS, os.listdir(out)
        done = subprocess.run([sys.argv[1], "validate", "--records", out, "--json"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 0, done.stderr
        sets = {one["set"]: one for one in json.loads(done.stdout)["sets"]}
        shipped_is_predicted_alike(folder, out, sets)
        for name, one in sets.items():
            assert one["step_time"]["rows"] == (2 if name in ("dgxc", "pollux") else 1) and one["source"], (name, one)
        assert sets["vtrain_multi"]["records"][0]["measured_s"] == 1.5, sets["vtrain_multi"]
        # 256 sequences of 2048 tokens at 2^18 tokens/s.
        assert sets["papers_misc"]["records"][0]["measured_s"] == 2, sets["papers_misc"]
        # 64 sequences of 1024 tokens on 16 GPUs of 5000 tokens/s each.
        assert sets["llm_foundry"]["records"][0]["measured_s"] == 64 * 1024 / 80000, sets["llm_foundry"]
        # 8 samples of each of 16 GPUs, since a server has 8, at 256 samples/s.
        assert sets["deep_learning_examples"]["records"][0]["measured_s"] == 0.5, sets["deep_learning_examples"]
        assert "left out 1: different numbers of GPUs on servers, which are not stated" in said, said
        assert sets["torchtitan"]["memory"]["rows"] == 1, sets["torchtitan"]
        verdicts = sets["ultrascale"]["out_of_memory"]
        assert verdicts["hits"] + verdicts["misses"] == 1, verdicts
        empty = os.path.join(folder, "empty")
        os.mkdir(empty)
        done = subprocess.run([*convert, empty, out], stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 1 and "no file that a converter is for" in done.stderr, done.stderr


main()
