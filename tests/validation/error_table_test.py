#!/usr/bin/python3
"""The gauge itself: rows are joined, the fastest variant of a row counts, and what does not fit does not."""

import json
import os
import stat
import subprocess
import sys
import tempfile

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "error_table.py")

REFERENCES = {"a1": ("a", 2), "a2": ("a", 2), "a3": ("a", 2), "b": ("b", 4)}
GIB = {"parameters": 1, "activations": 2, "fragmentation": 1, "context": 8, "nccl_buffers": 16}
MEMORY = {"by_category": {name: gib << 30 for name, gib in GIB.items()}}
STEPS = {"a1": 1.5, "a2": 1.0, "a3": None, "b": 5.0}


def run(folder, references, steps, metric="step_time", memory=None):
    """Exit code and output of the table for a program that answers `steps`."""
    variants = [{"name": name, "with": {"references": [{"label": label, "metric": metric, "value": value}]}}
                for name, (label, value) in references.items()]
    scenario, program = os.path.join(folder, "set.json"), os.path.join(folder, "program")
    with open(scenario, "w", encoding="utf-8") as stream:
        json.dump({"variants": variants}, stream)
    answer = json.dumps({"variants": [{"name": n, "step_time_s": s, "memory": memory} for n, s in steps.items()]})
    with open(program, "w", encoding="utf-8") as stream:
        stream.write(f"#!/bin/sh\ncat <<'TEXT'\n{answer}\nTEXT\nexit 1\n")
    os.chmod(program, os.stat(program).st_mode | stat.S_IXUSR)
    done = subprocess.run([sys.executable, "-B", TABLE, program, "--json", scenario], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False)
    return done.returncode, done.stdout or done.stderr


def main():
    with tempfile.TemporaryDirectory() as folder:
        code, output = run(folder, REFERENCES, STEPS)
        assert code == 0, output
        (result,) = json.loads(output)
        rows = [(row["row"], row["variant"], row["error"]) for row in result["rows"]]
        assert rows == [("a", "a2", -0.5), ("b", "b", 0.25)], rows
        summary = [result[key] for key in ("name", "mape", "median", "max", "bias")]
        assert summary == ["set", 0.375, 0.375, 0.5, -0.125], summary

        # What the program reads: one row per published step, its class as the program said it, and the source.
        scenario, program = os.path.join(folder, "set.json"), os.path.join(folder, "program")
        with open(scenario, encoding="utf-8") as stream:
            content = json.load(stream)
        with open(scenario, "w", encoding="utf-8") as stream:
            json.dump({**content, "description": "somebody measured"}, stream)
        of = {"network": "a transformer", "profile": True, "one_server": False}
        answer = {"trainyard": "0", "variants": [{"name": n, "step_time_s": s, "class": of} for n, s in STEPS.items()]}
        with open(program, "w", encoding="utf-8") as stream:
            stream.write(f"#!/bin/sh\ncat <<'TEXT'\n{json.dumps(answer)}\nTEXT\n")
        errors = os.path.join(folder, "errors.json")
        subprocess.run([sys.executable, "-B", TABLE, program, "--write", errors, scenario], check=True,
                       stdout=subprocess.DEVNULL)
        with open(errors, encoding="utf-8") as stream:
            written = json.load(stream)
        assert written["sources"] == [{"set": "set", "source": "somebody measured"}], written
        assert written["steps"] == [{"set": "set", "step": "a", **of, "error": -0.5},
                                    {"set": "set", "step": "b", **of, "error": 0.25}], written
        assert written["command"] == "./dev validate --write" and written["program"] == "trainyard 0", written

        code, output = run(folder, REFERENCES, {**STEPS, "b": None})
        assert code != 0 and b"no variant fits in memory: b" in output, output
        code, output = run(folder, {**REFERENCES, "a3": ("a", 3)}, STEPS)
        assert code != 0 and b"has two values" in output, output

        for metric, gib in (("allocated_memory", 3), ("reserved_memory", 4)):
            code, output = run(folder, {"m": ("m", 2)}, {"m": None}, metric, MEMORY)
            assert code == 0, output
            (result,) = json.loads(output)
            found = (result["metric"], result["rows"][0]["predicted"], result["max"])
            assert found == (metric, gib, gib / 2 - 1), result


main()
