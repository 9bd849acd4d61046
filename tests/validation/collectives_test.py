#!/usr/bin/python3
"""Tables of nccl-tests are predicted, classed, and left out with a reason; a table of predictions is exact.

usage: collectives_test.py TRAINYARD
"""

import json
import os
import subprocess
import sys
import tempfile

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "collectives.py")
CSV = "test_id,profile,nodes,gpus_per_node,collective,environment,size_bytes,oop_time_us\n"


def main():
    program = os.path.abspath(sys.argv[1])
    asked = [program, "collective", "all-reduce", "--cluster", "dgx-h100", "--servers", "2", "--per-server", "4",
             "-b", "4", "-e", "64M", "--json"]
    told = json.loads(subprocess.run(asked, check=True, capture_output=True).stdout)
    rows = [[row["bytes"], 0, "float", "sum", row["time_us"]] for row in told["rows"]]
    record = {"id": "own", "op": "all_reduce", "ranks": 8, "hosts": 2, "devices": {"NVIDIA H100 80GB HBM3": 8},
              "source": {"repo": "ours", "path": "log"}}
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "nccl_tests_outputs.json"), "w", encoding="utf-8") as file:
            json.dump({"records": [{**record, "rows": [[0, 0, "float", "sum", 9.0], *rows]}]}, file)
        with open(os.path.join(folder, "nccl_tests_multinode.csv"), "w", encoding="utf-8") as file:
            file.write(CSV + "a,Polaris,8,4,all_gather,NCCL 2_18; env3: plugin,1024,60\n"
                       "b,Polaris,8,4,all_gather,NCCL 2_18; env ?,1024,60\n"
                       "c,Polaris,8,4,sendrecv,NCCL 2_18; env3: plugin,1024,60\n")
        words = [sys.executable, "-B", SCRIPT, program, folder, "--json"]
        done = subprocess.run(words, check=True, capture_output=True)
    found = json.loads(done.stdout)
    exact = {"mape": 0, "median": 0, "p90": 0, "bias": 0}
    assert found["classes"]["InfiniBand, up to 4 MiB"] == {"rows": 21, **exact}, found
    assert found["classes"]["InfiniBand, above 4 MiB"] == {"rows": 4, **exact}, found
    assert found["classes"]["slingshot, up to 4 MiB"]["rows"] == 1, found
    assert found["left_out"] == {"an empty buffer": 1, "environment not named": 1, "operation sendrecv": 1}, found


main()
