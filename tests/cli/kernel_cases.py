#!/usr/bin/python3
"""What `trainyard kernel` promises. As cases.py."""

import csv
import io
import json
import os
import time

from process import Cases, require, require_equal, require_one_line

case = Cases()
expect = case.expect
SPECS = ["gemm:4096x4096x4096,dtype=bf16", "grouped_gemm:groups=8,m=512,n=4096,k=4096",
         "attention:batch=1,heads=32,kv_heads=8,sequence=8192,head_size=128,causal=true,kernel=fa2,pass=backward",
         "conv:n=32,c=64,h=56,w=56,k=64,r=3,s=3,stride=1,pad=1,dtype=fp16", "memory:op=rms_norm,bytes=1GiB"]


def write(folder, text):
    path = os.path.join(folder, "kernels.csv")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


@case
def predicts_kernels(folder):
    """kernel: text, JSON and CSV say the same of every kind, with basis, law and interval"""
    out, err = expect(0, "kernel", *SPECS, "--gpu", "h100")
    require_equal(err, "", "standard error")
    require_equal([spec for spec in SPECS if spec + " on h100-sxm5-80gb" not in out], [], "missing")
    require_equal(out.count("  basis  "), len(SPECS), "bases")
    answers = json.loads(expect(0, "kernel", *SPECS, "--gpu", "h100", "--json")[0])
    require(answers["calibrated"] and answers["gpu"] == "h100-sxm5-80gb", answers)
    rows = rows_of(expect(0, "kernel", *SPECS, "--gpu", "h100", "--csv")[0])
    for spec, answer, row in zip(SPECS, answers["kernels"], rows):
        require_equal((answer["kernel"], row["kernel"]), (spec, spec), "kernel")
        require_equal(float(row["time_us"]), answer["time_us"], "time")
        require_equal(row["law"], answer["law"]["source"], "law")
        require(0 < answer["interval"]["low_us"] < answer["interval"]["high_us"], answer)


@case
def dropout_in_attention(folder):
    """kernel: dropout takes its random numbers' time, in a kernel that nobody named too, and free it says so"""
    def ask(**words):
        words = {"head_size": 64, **words}
        spec = "attention:heads=16,sequence=1024,batch=8," + ",".join(f"{k}={v}" for k, v in words.items())
        return json.loads(expect(0, "kernel", spec, "--gpu", "h100", "--json")[0])["kernels"][0]
    plain, dropped = ask(kernel="cudnn"), ask(kernel="cudnn", dropout="true")
    require(1.5 < dropped["time_us"] / plain["time_us"] < 3, (plain, dropped))
    require_equal(ask(dropout="true")["time_us"], dropped["time_us"], "usual")
    unknown = ask(kernel="fa2", head_size=128, dropout="true")
    require_equal(unknown["time_us"], ask(kernel="fa2", head_size=128)["time_us"], "time")
    require("no law of dropout" in unknown["reach"], unknown)


@case
def refuses_rows(folder):
    """kernel --file: a row that the GPU cannot run is named with its line, as a wrong one is"""
    path = write(folder, "kind,m,n,k,dtype\ngemm,64,64,64,fp16\ngemm,64,64,64,fp8\ngemm,64,64,64,fp81\n")
    _, err = expect(3, "kernel", "--file", path, "--gpu", "a100-sxm4-80gb")
    require(f"{path}:3:1: error: " in err and "no fp8 units" in err and f"{path}:4:1: error: " in err, err)


@case
def kernels_in_short_runs(folder):
    """kernel: products of short runs are quicker where power holds settled ones back, and the same elsewhere"""
    def times(gpu, *specs):
        answers = json.loads(expect(0, "kernel", *specs, "--gpu", gpu, "--json")[0])["kernels"]
        return [answer["time_us"] for answer in answers]
    large = "gemm:8192x8192x8192,dtype=bf16"
    usual, settled, short = times("h100", large, large + ",run=settled", large + ",run=short")
    require_equal(usual, settled, "without run")
    require(1.08 < settled / short < 1.13, (settled, short))  # 1.13 less memory's and the start's part
    grouped = "grouped_gemm:groups=8,m=4096,n=4096,k=4096,dtype=bf16"
    require(times("h100", grouped)[0] > 1.05 * times("h100", grouped + ",run=short")[0], "experts")
    settled, short = times("a100-sxm4-80gb", large, large + ",run=short")
    require_equal(settled, short, "A100")
    path = write(folder, "kind,m,n,k,run\ngemm,8192,8192,8192,\ngemm,8192,8192,8192,short\n")
    rows = rows_of(expect(0, "kernel", "--file", path, "--gpu", "h100", "--csv")[0])
    require(float(rows[0]["time_us"]) > 1.08 * float(rows[1]["time_us"]), rows)
    for spec, complaint in ((large + ",run=long", "no run is called 'long'"),
                            ("conv:n=32,c=64,h=56,k=64,r=3,run=short", "no key of conv is called 'run'")):
        require_one_line(expect(2, "kernel", spec, "--gpu", "h100")[1], complaint)


@case
def kernels_by_calibration(folder):
    """kernel: a GPU without a profile borrows, --calibration chooses, and without one the datasheet answers"""
    def ask(gpu, *words):
        answer = json.loads(expect(0, "kernel", SPECS[0], "--gpu", gpu, "--json", *words)[0])
        return answer["calibrated"], answer["kernels"][0]
    calibrated, own = ask("h100")
    require(calibrated and own["basis"] in ("measured", "interpolated"), own)
    for gpu, words in (("gh200", ()), ("h100", ("--calibration", "kind")),
                       ("h100", ("--calibration", "a100-sxm4-80gb"))):
        calibrated, borrowed = ask(gpu, *words)
        require(not calibrated and borrowed["basis"] == "extrapolated", borrowed)
    calibrated, datasheet = ask("h100", "--calibration", "none")
    require(not calibrated and datasheet["basis"] == "analytic" and "law" not in datasheet, datasheet)
    # Nothing is faster than the datasheet: 2 m n k over 989.4 TFLOP/s.
    require(datasheet["time_us"] < own["time_us"] and abs(datasheet["time_us"] - 2 * 4096**3 / 989.4e6) < 1, datasheet)


@case
def kernels_wrong_words(folder):
    """kernel: a wrong word is named, with what is known"""
    for spec, *parts in (
            ("gem:1x2x3", "'gem'", "did you mean 'gemm'"), ("gemm:m=3", "needs n"),
            ("gemm:mm=3,n=3,k=3", "needs m", "'mm'"), ("gemm:1x2x3,dtyp=bf16", "'dtyp'", "did you mean 'dtype'"),
            ("gemm:1x2x3,dtype=bf61", "'bf61'", "bf16"), ("gemm:1x2", "'1x2'", "MxNxK"), ("gemm:1x2x0", "'0'"),
            ("gemm:1x2x3,m=4", "m is said twice"), ("gemm:999999999x999999999x999999999", "beyond any memory"),
            ("attention:heads=3,kv_heads=2,sequence=4,head_size=4", "kv_heads"),
            ("attention:heads=1,sequence=4,head_size=4,kernel=unfused", "softmax"),
            ("attention:heads=1,sequence=4,keys=4,head_size=4", "sequence"),
            ("conv:n=1,c=1,h=1,k=1,r=3", "filter"), ("conv:n=1,c=3,h=9,k=4,r=3,groups=2", "groups"),
            ("memory:op=rms,bytes=3", "'rms'", "rms_norm"), ("memory:op=rope", "bytes"),
            ("memory:op=rope,bytes=3,read=1", "bytes"), ("memory:op=rope,bytes=-3", "'-3'")):
        out, err = expect(2, "kernel", spec, "--gpu", "h100")
        require_equal(out, "", "standard output")
        require_one_line(err, spec.split(",", maxsplit=1)[0], *parts)
    for words, part in (([SPECS[0], "--gpu", "h1000"], "h1000"),
                        ([SPECS[0], "--gpu", "h100", "--calibration", "x"], "'x'"),
                        (["--gpu", "h100"], "--file"), ([SPECS[0]], "--gpu"),
                        (["gemm:64x64x64,dtype=fp8", "--gpu", "a100-sxm4-80gb"], "no fp8 units; it has fp32"),
                        (["attention:heads=1,sequence=64,head_size=64,kernel=fa3", "--gpu", "t4"], '"fa1" runs there'),
                        ([SPECS[0], "--gpu", "h100", "--csv", "--json"], "--csv")):
        _, err = expect(2, "kernel", *words)
        require_one_line(err, part)


@case
def reads_kernels(folder):
    """kernel --file: thousands of rows in a second; every wrong line is named"""
    lines = [f"gemm,{64 * i},4096,4096,bf16,,\n" for i in range(1, 3001)]
    path = write(folder, "kind,m,n,k,dtype,op,bytes\n# said\n\n" + "".join(lines) + "memory,,,,,rope,64MiB\n")
    began = time.monotonic()
    rows = rows_of(expect(0, "kernel", "--file", path, "--gpu", "a100-sxm4-80gb", "--csv")[0])
    require(time.monotonic() - began < 20, "slow")  # with sanitizers, on a busy machine
    require_equal(len(rows), 3001, "rows")
    require_equal(rows[-1]["kernel"], "memory:op=rope,bytes=64MiB", "last")
    alone = json.loads(expect(0, "kernel", "gemm:6400x4096x4096,dtype=bf16", "--gpu", "a100-sxm4-80gb", "--json")[0])
    require_equal(float(rows[99]["time_us"]), alone["kernels"][0]["time_us"], "time")
    for text, *parts in (("kind,m\ngemm,1\ngem,1\ngemm,1,2\n", ":2:1", ":3:1", ":4:1", "3 cells"),
                         ("m,n\n1,2\n", "kind"), ("", "empty"), ("kind,m,n,k\n# later\n", ":3:1", "no kernel")):
        _, err = expect(3, "kernel", "--file", write(folder, text), "--gpu", "h100")
        require(all(part in err for part in parts), err)
    expect(3, "kernel", "--file", os.path.join(folder, "none.csv"), "--gpu", "h100")


case.main()
