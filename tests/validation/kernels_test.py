#!/usr/bin/python3
"""Every table of measured kernels becomes kernels that the program predicts, and says what it leaves out.

usage: kernels_test.py TRAINYARD
"""

import csv
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, HERE)

import kernels

# Rows as the sources have them; the figures are made up. The last of each table is left out.
CONV = {"precision": "fp16", "W": 56, "H": 56, "C": 64, "N": 16, "K": 64, "S_filter_w": 3, "R_filter_h": 3, "pad_w": 1,
        "pad_h": 1, "stride_w": 1, "stride_h": 1, "fwd_ms": 0.1, "bwd_inputs_ms": 0.1, "bwd_params_ms": 0}
FLASH = {"source": "a", "gpu": "H100-SXM", "kernel": "fa2", "dtype": "bf16", "direction": "bwd", "batch": 1,
         "heads": 16, "kv_heads": 16, "head_size": 128, "v_head_size": "", "seq_q": 4096, "seq_kv": 4096, "causal": 1,
         "window": "", "time_us": "", "tflops": 300, "flops_convention": "causal = full/2"}
PRODUCT = {"source": "b", "gpu": "H100-SXM-80GB", "dtype": "bf16", "recipe": "bf16", "direction": "fwd", "kind": "gemm",
           "m": 4096, "n": 4096, "k": 4096, "groups": "", "time_us": 220, "tflops": "", "sustained": 0}
SUM = {**PRODUCT, "direction": "wgrad fp32 accumulate"}
MEMORY = {"source": "microsoft/vidur@1", "gpu": "A100-80GB", "op": "rms_norm", "implementation": "fused",
          "direction": "fwd", "bytes_if_given": "", "time_us": 200, "gbps": 700, "dtype": "fp16", "shape": ""}
# As long as its numbers take one by one, an eighth longer than its bytes.
SOFTMAX = {**MEMORY, "op": "softmax", "implementation": "eager", "shape": "8192x4096 BT=8192", "time_us": 122,
           "gbps": 1100}
CONV2 = {"source": "c", "gpu": "A100", "layout": "NHWC", "dtype": "fp16", "direction": "wgrad", "n": 8, "c": 64,
         "h": 56, "w": 56, "kout": 64, "r": 3, "s": 3, "stride": 1, "pad": 1, "time_us": 50}
TABLES = {
    "gemm_fp16": [{"gpu": "a10", "m": 64, "n": 4096, "k": 4096, "time_us": 60}, {"gpu": "x", "m": 1}],
    "kernels_gemm2": [PRODUCT, {**PRODUCT, "kind": "grouped", "groups": 8}, SUM, {**SUM, "time_us": 180},
                      {**PRODUCT, "dtype": "nvfp4"}],
    "deepbench_gemm": [{"device": "NV_V100", "precision": "fp16", "M": 1760, "N": 128, "K": 1760, "time_ms": 0.1},
                       {"device": "IA_KNL7250", "precision": "fp32"}],
    "deepbench_conv": [{"device": "NV_V100", **CONV}, {"device": "NV_V100", **CONV, "pad_w": ""}],
    "kernels_conv2": [CONV2, {**CONV2, "h": "64x64"}],
    "kernels_attention": [FLASH, {**FLASH, "kernel": "other:trtllm"}],
    "kernels_membound": [MEMORY, SOFTMAX, {**MEMORY, "direction": "bwd"}],
}
ROWS = {"gemm_fp16": 1, "kernels_gemm2": 3, "deepbench_gemm": 1, "deepbench_conv": 2, "kernels_conv2": 1,
        "kernels_attention": 1, "kernels_membound": 2}


def main():
    with tempfile.TemporaryDirectory() as folder:
        for name, rows in TABLES.items():
            with open(os.path.join(folder, name + ".csv"), "w", encoding="utf-8", newline="") as stream:
                writer = csv.DictWriter(stream, rows[0].keys())
                writer.writeheader()
                writer.writerows(rows)
        path = os.path.join(folder, "page.md")
        with open(path, "w", encoding="utf-8") as stream:
            stream.write("Before.\n" + kernels.HEAD + "\n|---|\n| gemm | of last year |\n\nBehind.\n")
        run = subprocess.run([sys.executable, "-B", os.path.join(HERE, "kernels.py"), sys.argv[1], folder, "--json",
                              "--table", path], capture_output=True, text=True, check=True)
        with open(path, encoding="utf-8") as stream:
            page = stream.read()
    result = json.loads(run.stdout)
    found = {name: sum(entry["n"] for entry in result["tables"] if entry["table"] == name) for name in TABLES}
    assert found == ROWS, found
    assert page.startswith("Before.\n" + kernels.HEAD + "\n|---|\n| ") and page.endswith(" |\n\nBehind.\n"), page
    assert "last year" not in page and page.count("\n| ") == 1 + len(result["operations"]), page
    assert {entry["table"] for entry in result["left_out"]} == set(TABLES), result["left_out"]
    assert result["all"]["n"] == sum(ROWS.values()), result["all"]
    softmax = next(entry for entry in result["tables"] if entry["group"] == "softmax eager")
    assert abs(softmax["bias"]) < 2, softmax
    origins = {entry["table"]: entry["origin"] for entry in result["tables"]}
    assert origins["gemm_fp16"] == "borrowed" and origins["deepbench_gemm"] == "own, law's source", origins


if __name__ == "__main__":
    main()
