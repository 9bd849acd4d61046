#!/usr/bin/python3
"""The capture of PyTorch modules. usage: capture_test.py [--quick]

Tiny modules give the rows that a person writes for them, and every shipped file is what the capture writes again.
Ends with 77 (skipped) where PyTorch or torchvision is missing. --quick leaves the shipped files out."""

import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
MODELS = os.path.join(ROOT, "configs", "models")
TOOL = os.path.join(ROOT, "calibrate", "capture", "torch_capture.py")
SKIPPED = 77
sys.path.insert(1, os.path.dirname(TOOL))

try:
    import torch
    import torchvision
    from torch import nn
    from torch.nn import functional
except ImportError as problem:
    print(f"skipped: {problem}; apt-get install python3-torch python3-torchvision")
    sys.exit(SKIPPED)

from layer_table import Network
from layers import text_of
from operators import CannotCapture
from shipped import NETWORKS
from torch_capture import capture


def layers_of(module, sizes, **options):
    table = capture(lambda: module, sizes, **options)
    assert capture(lambda: module, sizes, **options) == table, "two captures differ"
    return table


def ops_of(module, sizes, **options):
    """All rows of a module, its layers forgotten."""
    table = layers_of(module, sizes, loss=False, **options)
    return [row for layer in table["layers"] for row in layer.get("ops") or table["blocks"][layer["block"]]]


class Function(nn.Module):
    def __init__(self, function, *parts):
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, x):
        return self.function(x, *self.parts)


def check(got, wanted):
    assert got == wanted, f"{json.dumps(got)}\n!=\n{json.dumps(wanted)}"


def test_a_chain():
    """A convolution with what follows it is a layer, and so is a linear layer; counts are those of a hand."""
    table = layers_of(nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
                                    nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 4 * 4, 10)), (3, 16, 16))
    check(table["layers"], [
        {"name": "0", "ops": [
            {"op": "conv", "out": 8, "kernel": 3, "stride": 2, "padding": 1, "bias": True}, {"op": "batch_norm"},
            {"op": "relu"}, {"op": "max_pool", "kernel": 2}]},
        {"name": "5", "ops": [{"op": "linear", "in": 128, "out": 10, "bias": True}, {"op": "loss"}]}])
    assert table["parameters"] == (27 + 1) * 8 + 16 + 129 * 10
    assert table["multiply_adds"] == 8 * 8 * 27 * 8 + 128 * 10


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1, bias=False)

    def forward(self, x):
        return functional.relu(self.conv(x) + x, inplace=True)


def test_blocks():
    """Equal modules are one block, a skip is an edge, what no module does has its operation's name."""
    table = layers_of(nn.Sequential(Residual(), Residual()), (4, 8, 8))
    assert "blocks" not in table, "the last one computes the loss, so they are not equal"
    rows = [{"op": "conv", "out": 4, "kernel": 3, "padding": 1}, {"op": "add", "after": ["conv", "input"]},
            {"op": "relu"}]
    check(table["layers"], [{"name": "0", "ops": rows}, {"name": "1", "ops": [*rows, {"op": "loss"}]}])
    table = layers_of(nn.Sequential(Residual(), Residual()), (4, 8, 8), loss=False)
    check(table["blocks"], {"Residual": rows})
    check(table["layers"], [{"name": "0", "block": "Residual"}, {"name": "1", "block": "Residual"}])
    assert table["multiply_adds"] == 2 * 64 * 16 * 9


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.pool = nn.Conv2d(1, 2, 1), nn.MaxPool2d(2)
        self.up = nn.ConvTranspose2d(2, 3, 2, stride=2)
        self.out = nn.Conv2d(5, 1, 1)

    def forward(self, x):
        one = self.down(x)
        return self.out(torch.cat([one, self.up(self.pool(one))], 1))


def test_edges_between_layers():
    """What a later layer reads is named by layer and operation."""
    check(layers_of(Branches(), (1, 8, 8))["layers"], [
        {"name": "down", "ops": [{"op": "conv", "name": "down", "out": 2, "kernel": 1, "bias": True},
                                 {"op": "max_pool", "name": "pool", "kernel": 2}]},
        {"name": "up", "after": ["down", "down:down"], "ops": [
            {"op": "conv_transpose", "name": "up", "out": 3, "kernel": 2, "stride": 2, "bias": True},
            {"op": "concat", "after": ["input 2", "up"]}]},
        {"name": "out", "ops": [{"op": "conv", "name": "out", "out": 1, "kernel": 1, "bias": True}, {"op": "loss"}]}])


def test_operators():
    """Functions of PyTorch are rows, whichever way they are called."""
    image = (4, 8, 8)
    conv = {"op": "conv", "out": 4, "kernel": 1, "bias": True}
    for function, rows in [
        (lambda x: torch.relu(x), [{"op": "relu"}]),
        (lambda x: functional.hardswish(x), [{"op": "hardswish"}]),
        (lambda x: functional.relu6(x), [{"op": "relu6"}]),
        (lambda x: x.add(x), [{"op": "add", "after": ["conv", "conv"]}]),
        (lambda x: x * 2 + 1, [{"op": "scale"}, {"op": "shift"}]),
        (lambda x: x * x.sigmoid(), [{"op": "sigmoid"}, {"op": "mul", "after": ["conv", "sigmoid"]}]),
        (lambda x: x.flatten(1), []),
        (lambda x: x.permute(0, 2, 3, 1), []),
        (lambda x: x.permute(0, 2, 3, 1).contiguous(), [{"op": "copy"}]),
        (lambda x: torch.roll(x, 1, 2), [{"op": "copy", "name": "roll"}]),
        (lambda x: x.softmax(1), [{"op": "softmax"}]),
        (lambda x: functional.adaptive_avg_pool2d(x, 2), [{"op": "avg_pool", "to": [2, 2]}]),
        (lambda x: functional.adaptive_avg_pool2d(x, 1), [{"op": "avg_pool", "to": [1, 1]}]),
        (lambda x: x.mean((2, 3)), [{"op": "avg_pool", "to": [1, 1]}]),
        (lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"), [{"op": "resize", "by": 2}]),
        (lambda x: functional.interpolate(x, size=(9, 10)), [{"op": "resize", "to": [9, 10]}]),
        (lambda x: functional.dropout(x, 0.1), [{"op": "dropout"}]),
        (lambda x: torchvision.ops.stochastic_depth(x, 0.1, "row"), [{"op": "stochastic_depth"}]),
        (lambda x: functional.pad(x, (1, 1)), [{"op": "pad", "shape": [4, 8, 10]}]),
        (lambda x: x[:, 1:3].exp(), [{"op": "slice", "shape": [2, 8, 8]}, {"op": "function"}]),
        (lambda x: torch.cat(x.chunk(2, 1), 2), [
            {"op": "part", "shape": [2, 8, 8]}, {"op": "part", "after": ["conv"], "shape": [2, 8, 8]},
            {"op": "concat", "after": ["part", "part 2"], "axis": 1}]),
        (lambda x: x.flatten(2) @ x.flatten(2).transpose(1, 2), [
            {"op": "matmul", "after": ["input", "input"], "m": 4, "n": 4, "k": 64}]),
        (lambda x: functional.max_pool2d(x.transpose(1, 2), 2), [
            {"op": "view", "shape": [8, 4, 8]}, {"op": "max_pool", "kernel": 2}]),
        (lambda x: functional.layer_norm(x, (8, 8)), [{"op": "layer_norm", "width": 64, "affine": False}]),
    ]:
        module = Function(lambda x, part, function=function: function(part(x)), nn.Conv2d(4, 4, 1))
        check(ops_of(module, image), [conv, *rows])


def test_depthwise_and_grouped():
    """Convolutions with groups say so, and depthwise ones are an operation of their own."""
    check(ops_of(nn.Sequential(nn.Conv2d(8, 8, 3, groups=8, bias=False), nn.Conv2d(8, 16, 1, groups=4, bias=False)),
                 (8, 8, 8)),
          [{"op": "depthwise_conv", "kernel": 3}, {"op": "conv", "out": 16, "kernel": 1, "groups": 4}])


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(50, 8)
        self.positions = nn.Parameter(torch.zeros(6, 8))
        self.logits = nn.Linear(8, 50, bias=False)
        self.logits.weight = self.tokens.weight

    def forward(self, ids):
        return self.logits(self.tokens(ids) + self.positions)


def test_tied_weights():
    """Weights that two layers share count once, and parameters that are added are rows."""
    table = layers_of(Tokens(), (6,), ids=True, loss=False)
    check([row for layer in table["layers"] for row in layer["ops"]], [
        {"op": "embedding", "name": "tokens", "rows": 50, "width": 8},
        {"op": "parameter", "name": "positions", "shape": [6, 8]}, {"op": "add", "after": ["tokens", "positions"]},
        {"op": "linear", "name": "logits", "in": 8, "out": 50, "tied": True}])
    assert table["parameters"] == 50 * 8 + 6 * 8
    assert table["multiply_adds"] == 6 * 8 * 50


def test_modules_called_twice():
    """A module that is called twice holds its weights once, and each call is in its place."""
    shared = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4))
    table = layers_of(nn.Sequential(shared, nn.ReLU(), shared), (4, 8, 8), loss=False)
    assert table["parameters"] == 20 + 8 and table["multiply_adds"] == 2 * 64 * 16
    check([row for layer in table["layers"] for row in layer["ops"]], [
        {"op": "conv", "out": 4, "kernel": 1, "bias": True}, {"op": "batch_norm"}, {"op": "relu"},
        {"op": "conv", "out": 4, "kernel": 1, "bias": True, "tied": True}, {"op": "batch_norm", "tied": True}])


def why(module, sizes=(4,)):
    try:
        capture(lambda: module, sizes)
    except CannotCapture as problem:
        return str(problem)
    return ""


class Unread(nn.Linear):
    def forward(self, x):
        return x.relu()


def test_refusals():
    """What cannot be described is refused by name, with a cure."""
    odd = nn.Sequential(nn.Linear(4, 4), Function(lambda x: torch.cumsum(x, 1)))
    for module, words in [
        (odd, ("module 1 (Function) runs cumsum: no rule", "--treat cumsum=RULE", "calibrate/capture/rules.py")),
        (Unread(4, 4), ("2 parameters are never read, the first is weight",)),
        (nn.Linear(4, 4).requires_grad_(False), ("parameter weight is frozen",)),
        (Function(lambda x: x @ x.t()), ("whose rows or columns grow with the batch",)),
        (nn.Linear(5, 4), ("does not run with a batch of 4", "--input")),
        (nn.Sequential(nn.Conv1d(4, 4, 1)), ("does not run", "--input")),
        (3, ("the factory returned int",)),
    ]:
        said = why(module)
        assert all(word in said for word in words), f"{said!r} lacks one of {words}"
    assert "a convolution of 1 dimensions" in why(nn.Conv1d(4, 4, 1), (4, 9))
    check(capture(lambda: odd, (4,), treat={"cumsum": "copy"}, loss=False)["layers"][0]["ops"][1],
          {"op": "copy", "name": "cumsum"})


def run(*words):
    return subprocess.run([sys.executable, "-B", TOOL, *words], capture_output=True, text=True, check=False)


def test_command_line():
    """Exit codes and messages are those of the project."""
    with tempfile.TemporaryDirectory() as folder:
        mine = os.path.join(folder, "mine.py")
        with open(mine, "w", encoding="utf-8") as stream:
            stream.write("from torch import nn\nimport torch\ndef build():\n    return nn.Linear(4, 2)\n"
                         "class Odd(nn.Module):\n    def forward(self, x):\n        return torch.cumsum(x, 1)\n")
        out = os.path.join(folder, "mine.json")
        done = run(mine + ":build", "--input", "4", "-o", out)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert done.stdout == f"{out}: 10 parameters, 8 multiply-adds, 1 layers\n", done.stdout
        with open(out, encoding="utf-8") as stream:
            assert Network(json.load(stream)).parameters() == 10
        for words, code, said in [
            ((), 2, "expected one MODULE"),
            (("resnet50",), 2, "expected torchvision:NAME"),
            (("torchvision:resnet5",), 2, "has no resnet5"),
            (("shipped:resnet5",), 2, "no shipped network is called resnet5"),
            ((mine + ":missing",), 2, "has no missing; it has"),
            ((mine + ":build", "--input", "4y"), 2, "--input 4y: expected sizes"),
            ((mine + ":build", "--treat", "a=b"), 2, "--treat a=b: expected OPERATOR=RULE"),
            ((mine + ":Odd", "--input", "4"), 3, "runs cumsum: no rule"),
            (("nowhere.py:build",), 4, "no such file"),
            ((mine + ":build", "--input", "4", "-o", os.path.join(folder, "no", "f.json")), 4, "No such file"),
        ]:
            done = run(*words)
            assert (done.returncode, done.stdout) == (code, ""), (words, done.returncode, done.stdout, done.stderr)
            assert done.stderr.startswith("torch_capture.py: ") and said in done.stderr, (words, done.stderr)
    done = run("--list")
    assert done.returncode == 0 and [line.split()[0] for line in done.stdout.splitlines()] == list(NETWORKS)


def test_shipped_files():
    """Every shipped file is what the capture writes again, byte for byte."""
    for name, network in NETWORKS.items():
        text = text_of(capture(network.build, network.input, False, network.description, network.source,
                               network.layers))
        with open(os.path.join(MODELS, name + ".json"), encoding="utf-8") as stream:
            assert stream.read() == text, f"{name}: write it anew with torch_capture.py --shipped {name}"


def main():
    torch.set_num_threads(1)
    quick = sys.argv[1:] == ["--quick"]
    for name, test in list(globals().items()):
        if name.startswith("test_") and not (quick and test is test_shipped_files):
            test()
            print(f"{name}: {test.__doc__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
