"""The program expands a table as docs/layers.md says: its kernels of each operation, held in a golden text, are
those of calibrate/capture/expansion.py."""

import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "calibrate/capture"))

import layer_table  # noqa: E402
from expansion import Expansion  # noqa: E402


def lines_of(network):
    found = Expansion(network, 4, "fp16")
    for word, items in (("forward", found.forward), ("backward", found.backward)):
        for layer, name, text in items:
            yield f"{word} | {layer} | {layer} {name} | {text}"
    for layer, inputs, rest in found.kept():
        yield f"keeps | {layer} | {inputs} | {rest}"


def main():
    with open(os.path.join(ROOT, "tests/scenario/tables/every-operation.json"), encoding="utf-8") as file:
        network = layer_table.Network(json.load(file)["model"])
    with open(os.path.join(ROOT, "tests/golden/layers-kernels.txt"), encoding="utf-8") as file:
        golden = file.read().splitlines()
    expected = list(lines_of(network))
    assert len(golden) == len(expected), f"{len(golden)} lines, the expansion has {len(expected)}"
    for mine, theirs in zip(golden, expected):
        # Times are spelled in two ways.
        same = mine == theirs or "given time" in mine and theirs.endswith("for 8 samples")
        assert same, f"the program says {mine}\nthe expansion {theirs}"
    used = {operation.word for operation in network.operations} | {"view"}
    assert used == set(layer_table.KEYS), f"left out: {set(layer_table.KEYS) - used}"


if __name__ == "__main__":
    main()
