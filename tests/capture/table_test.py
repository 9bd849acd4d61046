#!/usr/bin/python3
"""Tables of layers, without PyTorch. usage: table_test.py

The shipped networks have their published totals, and rows become the kernels of docs/layers.md."""

import copy
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
MODELS = os.path.join(ROOT, "configs", "models")
sys.path.insert(1, os.path.join(ROOT, "calibrate", "capture"))

from expansion import Expansion
from layer_table import BadTable, Network, load

MOST_BYTES = 60 * 1024

# Parameters: `num_params` of the weights' metadata in torchvision 0.14 (googlenet: without its auxiliary heads).
# Multiply-adds in millions: `_ops` of the same metadata from torchvision 0.15 on, which are measured in evaluation,
# where auxiliary heads do not run. name: (parameters, multiply-adds in millions, layers that these leave out).
PUBLISHED = {
    "alexnet": (61100840, 714, ()),
    "vgg11": (132863336, 7609, ()),
    "vgg16": (138357544, 15470, ()),
    "vgg19": (143667240, 19632, ()),
    "resnet18": (11689512, 1814, ()),
    "resnet34": (21797672, 3664, ()),
    "resnet50": (25557032, 4089, ()),
    "resnet101": (44549160, 7801, ()),
    "resnet152": (60192808, 11514, ()),
    "resnext50-32x4d": (25028904, 4230, ()),
    "inception-v3": (27161264, 5713, ("AuxLogits",)),
    "googlenet": (6624904, 1498, ("aux1", "aux2")),
    "densenet121": (7978856, 2834, ()),
    "mobilenet-v3-large": (5483032, 217, ()),
    "mobilenet-v3-small": (2542856, 57, ()),
    "efficientnet-b0": (5288548, 386, ()),
    "efficientnet-b4": (19341616, 4394, ()),
    "swin-t": (28288354, 4491, ()),
    "ssd300-vgg16": (35641826, 34858, ()),
}
WITH_HEADS = ("inception-v3",)  # whose published parameters hold the auxiliary heads

# To the digit. alexnet to densenet121: sums of the layers' products; all: what the published figures round.
EXACT = {
    "alexnet": (61100840, 714188480),
    "vgg11": (132863336, 7609090048),
    "vgg16": (138357544, 15470264320),
    "vgg19": (143667240, 19632062464),
    "resnet18": (11689512, 1814073344),
    "resnet34": (21797672, 3663761408),
    "resnet50": (25557032, 4089184256),
    "resnet101": (44549160, 7801405440),
    "resnet152": (60192808, 11513626624),
    "cifar-resnet18": (11173962, 555422720),  # parameters: kuangliu/pytorch-cifar's ResNet18
    "resnext50-32x4d": (25028904, 4230479872),
    "inception-v3": (27161264, 5718899296),
    "googlenet": (13004888, 1506748416),
    "densenet121": (7978856, 2834161664),
    "mobilenet-v3-large": (5483032, 216589760),
    "mobilenet-v3-small": (2542856, 56510400),
    "efficientnet-b0": (5288548, 385814752),
    "efficientnet-b4": (19341616, 4393771024),
    "swin-t": (28288354, 4490566656),
    "ssd300-vgg16": (35641826, 34858153472),
    "unet": (31030658, 192384335872),
    "unet-resnet34": (24436369, 7813988352),  # parameters: segmentation_models_pytorch's Unet("resnet34")
    "alexnet-2012": (60965224, 724406816),  # Caffe's bvlc_alexnet, whose groups are the two towers
    "ssd300-resnet50": (22894902, 20150906112),  # by hand, as are those below: the sums of their layers
    "ncf-ml-20m": (31832577, 106624),
    "transformer-xl-base-dense": (191948759, 41821569024),
    "transformer-xl-large-dense": (519963095, 159574130688),
    "amoebanet-d-18-256": (122470120, 15170093056),  # the sums of its layers; nowhere published at this size
}


def shipped(name):
    return load(os.path.join(MODELS, name + ".json"))


def test_published_totals():
    """Every network of torchvision has its published parameters and multiply-adds."""
    for name, (parameters, millions, left_out) in PUBLISHED.items():
        network = shipped(name)
        assert set(left_out) <= set(network.layer_names), name
        counted = network.parameters(() if name in WITH_HEADS else left_out)
        assert counted == parameters, f"{name}: {counted} parameters, published {parameters}"
        counted = network.multiply_adds(left_out)
        assert (counted + 500_000) // 1_000_000 == millions, f"{name}: {counted} multiply-adds, published {millions} M"


def test_exact_totals():
    """Sums of the layers are the totals that the file states, to the digit."""
    for name, totals in EXACT.items():
        network = shipped(name)
        assert (network.parameters(), network.multiply_adds()) == totals, name
        assert (network.table["parameters"], network.table["multiply_adds"]) == totals, name


def test_every_table_is_counted():
    """Every file of kind layers is in these lists, and is small."""
    for file in sorted(os.listdir(MODELS)):
        path = os.path.join(MODELS, file)
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
        if json.loads(text).get("kind") == "layers":
            assert file.removesuffix(".json") in EXACT, file
            assert len(text) < MOST_BYTES, f"{file}: {len(text)} bytes"


def test_unet_by_hand():
    """U-Net's totals follow from figure 1 of Ronneberger et al."""
    parameters = multiply_adds = 0

    def convolution(channels, out, side, kernel):
        nonlocal parameters, multiply_adds
        parameters += (channels * kernel * kernel + 1) * out
        multiply_adds += side * side * channels * kernel * kernel * out

    before, side = 1, 512
    for width in (64, 128, 256, 512, 1024):
        convolution(before, width, side, 3)
        convolution(width, width, side, 3)
        before, side = width, side // 2
    side *= 2
    for width in (512, 256, 128, 64):
        parameters += (2 * width * 4 + 1) * width
        multiply_adds += side * side * 2 * width * 4 * width
        side *= 2
        convolution(2 * width, width, side, 3)
        convolution(width, width, side, 3)
    convolution(64, 2, side, 1)
    assert (parameters, multiply_adds) == EXACT["unet"]


def test_resnet50_kernels():
    """ResNet-50 runs one kernel per operator, and keeps each tensor once."""
    network = shipped("resnet50")
    expansion = Expansion(network, 128)
    # 53 convolutions, 53 batch norms, 49 ReLUs, 16 sums, two pools, classifier and loss.
    assert len(expansion.forward) == 53 + 53 + 49 + 16 + 2 + 2
    # A weight gradient each, data gradients of all but the first; sums run none; a block's input has two readers.
    assert len(expansion.backward) == 2 * 54 - 1 + 53 + 49 + 2 + 1 + 16
    assert [text for _, name, text in expansion.backward if name == "conv1 weight gradient"][-1] == (
        "convolution weight gradient fp16 128x3x224x224 by 7x7 to 64x112x112")
    assert not [name for layer, name, _ in expansion.backward if (layer, name) == ("conv1", "conv1 data gradient")]
    kept = {layer: (given, rest) for layer, given, rest in expansion.kept()}
    pixels = 128 * 56 * 56
    assert kept["layer1.1"] == (2 * pixels * 256, 2 * pixels * (4 * 64 + 256))
    assert kept["conv1"] == (2 * 128 * 3 * 224 * 224, 2 * 2 * 128 * 64 * 112 * 112 + 8 * pixels * 64)
    assert kept["fc"] == (2 * 128 * 2048 * 7 * 7, 2 * 128 * 2048 + 4 * 128 * 1000)


def table(ops, shape=(4, 8, 8)):
    return {"kind": "layers", "input": {"shape": list(shape)}, "layers": [{"name": "a", "ops": ops}]}


def kernels(ops, batch=2, shape=(4, 8, 8)):
    expansion = Expansion(Network(table(ops, shape)), batch)
    return ([f"{name}: {text}" for _, name, text in expansion.forward],
            [f"{name}: {text}" for _, name, text in expansion.backward])


FIRST = {"op": "conv", "out": 4, "kernel": 1}  # makes its output need a gradient: 2 x 4 x 8 x 8 elements, 1024 bytes


def behind_first(*ops):
    """Kernels of operations that read a trained tensor of 512 elements in 1024 bytes, without those of FIRST."""
    forward, backward = kernels([FIRST, *ops])
    return forward[1:], [line for line in backward if not line.startswith("conv weight gradient")]


def test_rules():
    """Each kind of operation runs the kernels of its rule."""
    reads = "reading 1024 B, writing 1024 B"
    for ops, forward, backward in [
        ([{"op": "relu"}], [f"relu: activation {reads}"], ["relu backward: activation reading 2048 B, writing 1024 B"]),
        ([{"op": "silu", "in_place": True}], [f"silu copy: elementwise {reads}", f"silu: activation {reads}"],
         ["silu backward: activation reading 2048 B, writing 1024 B"]),
        ([{"op": "batch_norm"}], ["batch_norm: batch_norm reading 2048 B, writing 1024 B"],
         ["batch_norm backward: batch_norm reading 4096 B, writing 1024 B"]),
        ([{"op": "attention", "after": ["conv"] * 3, "heads": 4, "query": 8, "key": 8, "head": 8}],
         ["attention: attention fp16 2x4/4 heads 8x8x8"],
         ["attention backward: attention backward fp16 2x4/4 heads 8x8x8"]),
        ([{"op": "embedding", "rows": 10, "width": 2}], ["embedding: embedding reading 2048 B, writing 2048 B"],
         ["embedding gradient zeros: elementwise reading 0 B, writing 40 B",
          "embedding backward: embedding reading 4096 B, writing 2048 B"]),
        ([{"op": "max_pool", "kernel": 2}], ["max_pool: pooling reading 1024 B, writing 1280 B"],
         ["max_pool backward: pooling reading 1280 B, writing 1024 B"]),
        ([{"op": "avg_pool", "to": [1, 1]}], ["avg_pool: pooling reading 1024 B, writing 16 B"],
         ["avg_pool backward: pooling reading 16 B, writing 1024 B"]),
        ([{"op": "resize", "by": 2}], ["resize: pooling reading 1024 B, writing 4096 B"],
         ["resize backward: pooling reading 4096 B, writing 1024 B"]),
        ([{"op": "dropout"}], ["dropout: dropout reading 1024 B, writing 1536 B"],
         ["dropout backward: dropout reading 1536 B, writing 1024 B"]),
        ([{"op": "softmax"}], [f"softmax: softmax {reads}"],
         ["softmax backward: softmax reading 2048 B, writing 1024 B"]),
        ([{"op": "layer_norm", "width": 8}], [f"layer_norm: layer_norm {reads}"],
         ["layer_norm backward: layer_norm reading 2048 B, writing 1024 B",
          "layer_norm weight gradient: layer_norm reading 2048 B, writing 0 B"]),
        ([{"op": "slice", "shape": [4, 4, 8]}], [],
         ["slice gradient zeros: elementwise reading 0 B, writing 1024 B",
          "slice backward: elementwise reading 512 B, writing 512 B"]),
        ([{"op": "memory", "as": "softmax", "forward": {"read": 10, "write": 5}, "backward": {"read": 7}}],
         ["memory: softmax reading 40 B, writing 20 B"], ["memory backward: softmax reading 28 B, writing 0 B"]),
        ([{"op": "time", "forward": "120us", "micro_batch": 8}], ["time: 120us for 8 samples"], []),
        ([{"op": "depthwise_conv", "kernel": 3, "padding": 1}],
         ["depthwise_conv: convolution forward fp16 2x4x8x8 by 3x3 to 4x8x8 in 4 groups"],
         ["depthwise_conv data gradient: convolution data gradient fp16 2x4x8x8 by 3x3 to 4x8x8 in 4 groups",
          "depthwise_conv weight gradient: convolution weight gradient fp16 2x4x8x8 by 3x3 to 4x8x8 in 4 groups"]),
        ([{"op": "conv_transpose", "out": 2, "kernel": 2, "stride": 2}],
         ["conv_transpose: convolution data gradient fp16 2x2x16x16 by 2x2 to 4x8x8"],
         ["conv_transpose data gradient: convolution forward fp16 2x2x16x16 by 2x2 to 4x8x8",
          "conv_transpose weight gradient: convolution weight gradient fp16 2x2x16x16 by 2x2 to 4x8x8"]),
        ([{"op": "linear", "in": 8, "out": 3}], ["linear: gemm fp16 64x3x8"],
         ["linear input gradient: gemm fp16 64x8x3", "linear weight gradient: gemm fp16 3x8x64"]),
        ([{"op": "matmul", "after": ["conv", "conv"], "count": 4, "m": 8, "n": 8, "k": 8}],
         ["matmul: gemm fp16 8 of 8x8x8"],
         ["matmul left gradient: gemm fp16 8 of 8x8x8", "matmul right gradient: gemm fp16 8 of 8x8x8"]),
        # A parameter is repeated over the samples: its gradient is summed over them.
        ([{"op": "parameter", "shape": [4, 8, 8]}, {"op": "add", "after": ["conv", "parameter"]}],
         ["add: elementwise reading 1536 B, writing 1024 B"],
         ["add sum over copies: elementwise reading 1024 B, writing 512 B"]),
        ([{"op": "avg_pool", "to": 1}, {"op": "mul", "after": ["avg_pool", "conv"]}],
         ["avg_pool: pooling reading 1024 B, writing 16 B", "mul: elementwise reading 1040 B, writing 1024 B"],
         ["mul backward: elementwise reading 2048 B, writing 1024 B",
          "mul sum over copies: elementwise reading 1024 B, writing 16 B",
          "mul backward: elementwise reading 1040 B, writing 1024 B",
          "avg_pool backward: pooling reading 16 B, writing 1024 B",
          "avg_pool gradient sum: elementwise reading 2048 B, writing 1024 B"]),
    ]:
        got = behind_first(*ops)
        assert got == (forward, backward), f"{ops}:\n{got}\n!=\n{(forward, backward)}"


def test_no_gradient_of_the_input():
    """Nothing runs backward for what no parameter has touched."""
    forward, backward = kernels([{"op": "avg_pool", "kernel": 2}, {"op": "batch_norm"}, {"op": "relu"}])
    assert len(forward) == 3
    assert backward == ["relu backward: activation reading 512 B, writing 256 B",
                        "batch_norm backward: batch_norm reading 512 B, writing 0 B"]


def test_windows():
    """Windows are rounded as PyTorch rounds them."""
    for size, row, wanted in [
        (112, {"kernel": 3, "stride": 2, "padding": 1}, 56),
        (75, {"kernel": 2}, 37),
        (75, {"kernel": 2, "ceil": True}, 38),
        # The last window would begin behind the image: left out.
        (6, {"kernel": 1, "stride": 3, "ceil": True}, 3 - 1),
        (4, {"kernel": 2, "stride": 3, "padding": 1, "ceil": True}, 2),
        (19, {"kernel": 3, "stride": 1, "padding": 6, "dilation": 6}, 19),
    ]:
        network = Network(table([{"op": "max_pool", **row}], (1, size, size)))
        assert network.operations[0].output.shape == (1, wanted, wanted), (size, row)


def test_the_page():
    """The example of the page is one, and its totals are right."""
    with open(os.path.join(ROOT, "docs", "layers.md"), encoding="utf-8") as stream:
        example = json.loads(re.search(r"```json\n(.*?)```", stream.read(), re.S).group(1))
    network = Network(example)
    convolution = 16 * 16 * 9
    assert network.parameters() == 3 * 16 * 9 + 16 + 4 * (convolution + 32) + 33 * 10
    assert network.multiply_adds() == 32 * 32 * (3 * 16 * 9 + 4 * convolution) + 32 * 10


def test_mistakes():
    """A table that is none is refused, with the place."""
    good = table([FIRST, {"op": "relu"}])
    for change, wanted in [
        (lambda t: t.update(parameter=1), "unknown keys: parameter"),
        (lambda t: t.update(parameters=17), "parameters: the file says 17, its layers add up to 16"),
        (lambda t: t["layers"][0]["ops"][1].update(op="rleu"), "a:rleu: no such operation: rleu"),
        (lambda t: t["layers"][0]["ops"][0].update(pading=1), "a:conv: conv has no pading"),
        (lambda t: t["layers"][0]["ops"][0].pop("out"), "a:conv: conv needs out"),
        (lambda t: t["layers"][0]["ops"][0].update(groups=3), "a:conv: 3 groups do not divide 4 and 4 channels"),
        (lambda t: t["layers"][0]["ops"][1].update(after=["conv 2"]), "a:relu: nothing before it is called conv 2"),
        (lambda t: t["layers"][0].update(block="b"), "a: expected name, after, and either block or ops"),
        (lambda t: t["layers"].append(t["layers"][0]), "two layers are called a"),
        (lambda t: t["layers"][0]["ops"].append({"op": "linear", "in": 5, "out": 1}),
         "a:linear: 256 elements are not rows of 5"),
    ]:
        wrong = copy.deepcopy(good)
        change(wrong)
        try:
            Network(wrong)
        except BadTable as problem:
            assert str(problem).startswith(wanted), f"{problem}\n!=\n{wanted}"
        else:
            raise AssertionError(f"accepted, expected: {wanted}")


def main():
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"{name}: {test.__doc__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
