"""A network as a table of layers (docs/layers.md): reads a file, infers shapes, counts parameters and multiply-adds.

The capture checks what it writes with it. Needs nothing but Python."""

import json
import math


class BadTable(Exception):
    """A file that is no network: what is wrong, and where."""


# Activations by what PyTorch keeps of them, derivatives.yaml.
KEEP_OUTPUT = ("relu", "sigmoid", "tanh")
KEEP_OUTPUT_IN_PLACE = ("leaky_relu", "elu")
KEEP_INPUT = ("gelu", "silu", "relu6", "hardswish", "hardsigmoid", "mish", "softplus")
ACTIVATIONS = KEEP_OUTPUT + KEEP_OUTPUT_IN_PLACE + KEEP_INPUT

WINDOW = {"kernel", "stride", "padding", "dilation"}
KEYS = {
    "conv": WINDOW | {"out", "groups", "bias", "tied"},
    "depthwise_conv": WINDOW | {"out", "bias", "tied"},
    "conv_transpose": WINDOW | {"out", "groups", "bias", "tied", "output_padding"},
    "linear": {"in", "out", "bias", "tied"},
    "gemm": {"m", "n", "k", "bias", "tied"},
    "matmul": {"count", "m", "n", "k"},
    "attention": {"heads", "kv_heads", "query", "key", "head", "causal"},
    "batch_norm": {"affine", "tied"},
    "group_norm": {"affine", "tied"},
    "layer_norm": {"width", "affine", "bias", "tied"},
    "max_pool": WINDOW | {"ceil", "to"},
    "avg_pool": WINDOW | {"ceil", "to"},
    "resize": {"by", "to"},
    "softmax": set(),
    "dropout": set(),
    "stochastic_depth": set(),
    "add": {"shape"},
    "mul": {"shape"},
    "elementwise": {"shape"},
    "function": set(),
    "scale": set(),
    "shift": set(),
    "concat": {"axis", "shape"},
    "view": {"shape"},
    "slice": {"shape"},
    "part": {"shape"},
    "copy": {"shape"},
    "pad": {"shape"},
    "reduce": {"shape"},
    "parameter": {"shape"},
    "buffer": {"shape"},
    "constant": {"shape", "fixed"},
    "embedding": {"rows", "width", "tied"},
    "gather": {"shape"},
    "loss": set(),
    "memory": {"as", "forward", "backward", "keeps", "parameters", "shape"},
    "time": {"forward", "backward", "micro_batch", "keeps", "parameters", "shape"},
    **{word: {"in_place"} for word in ACTIVATIONS},
}
REQUIRED = {
    "conv": ("out", "kernel"), "depthwise_conv": ("kernel",), "conv_transpose": ("out", "kernel"),
    "linear": ("in", "out"), "gemm": ("m", "n", "k"), "matmul": ("m", "n", "k"),
    "attention": ("heads", "query", "key", "head"), "layer_norm": ("width",), "view": ("shape",), "slice": ("shape",),
    "part": ("shape",), "pad": ("shape",), "reduce": ("shape",), "parameter": ("shape",), "buffer": ("shape",),
    "constant": ("shape",), "embedding": ("rows", "width"), "gather": ("shape",), "memory": ("forward",),
    "time": ("forward", "micro_batch"),
}
SOURCES = ("parameter", "buffer", "constant")
MEMORY_KINDS = ("elementwise", "dropout", "activation", "layer_norm", "rms_norm", "batch_norm", "softmax", "rope",
                "pooling", "embedding", "embedding_bag", "permutation", "cross_entropy")


class Tensor:
    """What an operation hands on. `count` elements: of a sample, or in all if `fixed`."""

    def __init__(self, shape, fixed=False, gradient=False, maker=None):
        self.shape = tuple(shape)
        self.count = math.prod(shape)
        self.fixed = fixed
        self.gradient = gradient
        self.maker = maker  # index of the operation, or None: the network's input

    def elements(self, batch):
        return self.count * (1 if self.fixed else batch)


class Operation:
    """One row in its place: `layer` is the index of its layer, `inputs` are tensors."""

    def __init__(self, row, layer, name, inputs):
        self.row, self.layer, self.name, self.inputs = row, layer, name, inputs
        self.output = None
        self.parameters = 0
        self.multiply_adds = 0

    @property
    def word(self):
        return self.row["op"]


def pair(value):
    return (value, value) if isinstance(value, int) else tuple(value)


def window_of(row):
    kernel = pair(row["kernel"])
    default = kernel if row["op"] in ("max_pool", "avg_pool") else 1
    return kernel, pair(row.get("stride", default)), pair(row.get("padding", 0)), pair(row.get("dilation", 1))


def reduced(row, size):
    """Height and width behind a window."""
    found = []
    for length, kernel, stride, padding, dilation in zip(size, *window_of(row)):
        room = length + 2 * padding - dilation * (kernel - 1) - 1
        if room < 0:
            raise BadTable(f"a window of {kernel} does not fit into {length} pixels")
        steps = -(-room // stride) if row.get("ceil") else room // stride
        # With ceil, a window that would begin in the padding behind the image is left out, as PyTorch does.
        if row.get("ceil") and steps * stride >= length + padding:
            steps -= 1
        found.append(steps + 1)
    return tuple(found)


def image(tensor):
    if len(tensor.shape) != 3:
        raise BadTable(f"needs channels, height and width, got {list(tensor.shape)}; put a view before it")
    return tensor.shape


def convolution_shape(row, tensor):
    channels, *size = image(tensor)
    groups = channels if row["op"] == "depthwise_conv" else row.get("groups", 1)
    out = row.get("out", channels)
    if channels % groups or out % groups:
        raise BadTable(f"{groups} groups do not divide {channels} and {out} channels")
    if row["op"] == "conv_transpose":
        extra = pair(row.get("output_padding", 0))
        size = tuple((length - 1) * stride - 2 * padding + dilation * (kernel - 1) + more + 1
                     for length, kernel, stride, padding, dilation, more in zip(size, *window_of(row), extra))
    else:
        size = reduced(row, size)
    return (out, *size), groups


def joined(row, inputs):
    if "shape" in row:
        return row["shape"]
    axis = row.get("axis", 0)
    first = inputs[0].shape
    for other in inputs[1:]:
        if len(other.shape) != len(first) or any(
                a != b for place, (a, b) in enumerate(zip(first, other.shape)) if place != axis):
            raise BadTable(f"{list(first)} and {list(other.shape)} cannot be joined along axis {axis}")
    return [sum(t.shape[axis] for t in inputs) if place == axis else size for place, size in enumerate(first)]


def same_count(row, expected, tensor):
    if tensor.count != expected:
        raise BadTable(f"{tensor.count} elements where {expected} are needed")


def shape_of(row, inputs):
    """The shape that an operation hands on."""
    word = row["op"]
    if word in ("conv", "depthwise_conv", "conv_transpose"):
        return convolution_shape(row, inputs[0])[0]
    if word in ("max_pool", "avg_pool"):
        channels, *size = image(inputs[0])
        return (channels, *(pair(row["to"]) if "to" in row else reduced(row, size)))
    if word == "resize":
        channels, *size = image(inputs[0])
        return (channels, *(pair(row["to"]) if "to" in row
                            else (length * by for length, by in zip(size, pair(row["by"])))))
    if word == "linear":
        rows, rest = divmod(inputs[0].count, row["in"])
        if rest:
            raise BadTable(f"{inputs[0].count} elements are not rows of {row['in']}")
        return (row["out"],) if rows == 1 else (rows, row["out"])
    if word == "layer_norm" and inputs[0].count % row["width"]:
        raise BadTable(f"{inputs[0].count} elements are not rows of {row['width']}")
    if word == "gemm":
        return (row["m"], row["n"])
    if word == "matmul":
        count = row.get("count", 1)
        for tensor, size in ((inputs[0], row["m"] * row["k"]), (inputs[1], row["k"] * row["n"])):
            if not tensor.fixed:
                same_count(row, count * size, tensor)
        return (count, row["m"], row["n"])
    if word == "attention":
        return (row["heads"], row["query"], row["head"])
    if word == "embedding":
        return (*inputs[0].shape, row["width"])
    if word == "concat":
        return joined(row, inputs)
    if word == "view":
        same_count(row, math.prod(row["shape"]), inputs[0])
        return row["shape"]
    if "shape" in row:
        return row["shape"]
    return max(inputs, key=lambda t: (not t.fixed, t.count)).shape


def parameters_of(row, inputs, shape):
    word = row["op"]
    if row.get("tied"):
        return 0
    if word in ("conv", "depthwise_conv", "conv_transpose"):
        groups = convolution_shape(row, inputs[0])[1]
        bias = shape[0] if row.get("bias") else 0
        return inputs[0].shape[0] // groups * shape[0] * math.prod(pair(row["kernel"])) + bias
    if word == "linear":
        return (row["in"] + (1 if row.get("bias") else 0)) * row["out"]
    if word == "gemm":
        return (row["k"] + (1 if row.get("bias") else 0)) * row["n"]
    if word in ("batch_norm", "group_norm"):
        return 2 * inputs[0].shape[0] if row.get("affine", True) else 0
    if word == "layer_norm":
        return (2 if row.get("bias", True) else 1) * row["width"] if row.get("affine", True) else 0
    if word == "embedding":
        return row["rows"] * row["width"]
    if word == "parameter":
        return math.prod(shape)
    return row.get("parameters", 0)


def multiply_adds_of(row, inputs, shape):
    word = row["op"]
    if word in ("conv", "depthwise_conv", "conv_transpose"):
        groups = convolution_shape(row, inputs[0])[1]
        pixels = math.prod((inputs[0].shape if word == "conv_transpose" else shape)[1:])
        return pixels * inputs[0].shape[0] // groups * shape[0] * math.prod(pair(row["kernel"]))
    if word == "linear":
        return inputs[0].count * row["out"]
    if word in ("gemm", "matmul"):
        return row.get("count", 1) * row["m"] * row["n"] * row["k"]
    if word == "attention":
        return 2 * row["heads"] * row["query"] * row["key"] * row["head"]
    return 0


def checked_row(row, where):
    if not isinstance(row, dict) or row.get("op") not in KEYS:
        word = row.get("op") if isinstance(row, dict) else row
        raise BadTable(f"{where}: no such operation: {word}; there are {', '.join(sorted(KEYS))}")
    unknown = set(row) - KEYS[row["op"]] - {"op", "name", "after"}
    if unknown:
        raise BadTable(f"{where}: {row['op']} has no {', '.join(sorted(unknown))}")
    for key in REQUIRED.get(row["op"], ()):
        if key not in row:
            raise BadTable(f"{where}: {row['op']} needs {key}")
    return row


class Network:
    """A file in its expanded form: operations in the order of the forward pass."""

    def __init__(self, table):
        self.table = table
        unknown = set(table) - {"description", "source", "kind", "input", "parameters", "multiply_adds", "blocks",
                                "layers"}
        if unknown:
            raise BadTable(f"unknown keys: {', '.join(sorted(unknown))}")
        self.operations = []
        self.layer_names = []
        size = table["input"].get("image_size") or table["input"]["shape"]
        self.input = Tensor(size)
        by_name = {"input": self.input}
        last = self.input
        for index, layer in enumerate(table["layers"]):
            name = layer["name"]
            if name in by_name:
                raise BadTable(f"two layers are called {name}")
            unknown = set(layer) - {"name", "block", "ops", "after"}
            if unknown or ("block" in layer) == ("ops" in layer):
                raise BadTable(f"{name}: expected name, after, and either block or ops")
            given = [self._named(by_name, other, name) for other in layer["after"]] if "after" in layer else [last]
            rows = layer["ops"] if "ops" in layer else table["blocks"][layer["block"]]
            self.layer_names.append(name)
            own = self._place(index, name, rows, given)
            last = list(own.values())[-1]
            by_name[name] = last
            for row_name, tensor in own.items():
                by_name[f"{name}:{row_name}"] = tensor
        self._check_totals()

    @staticmethod
    def _named(by_name, name, where):
        if name not in by_name:
            raise BadTable(f"{where}: nothing before it is called {name}")
        return by_name[name]

    def _place(self, layer, layer_name, rows, given):
        inputs = {"input" if n == 0 else f"input {n + 1}": tensor for n, tensor in enumerate(given)}
        own = {}
        before = given[0]
        for row in rows:
            name = row.get("name", row.get("op"))
            taken, number = name, 2
            while taken in own:
                taken, number = f"{name} {number}", number + 1
            name = taken
            where = f"{layer_name}:{name}"
            checked_row(row, where)
            tensors = [] if row["op"] in SOURCES else [before]
            if "after" in row:
                tensors = []
                for other in row["after"]:
                    tensors += given if other == "inputs" else [self._named({**inputs, **own}, other, where)]
            try:
                own[name] = before = self._append(row, layer, name, tensors)
            except BadTable as problem:
                raise BadTable(f"{where}: {problem}") from None
        return own

    def _append(self, row, layer, name, tensors):
        operation = Operation(row, layer, name, tensors)
        word = row["op"]
        shape = shape_of(row, tensors)
        if word == "view":
            # The same tensor by another shape.
            seen = Tensor(shape, tensors[0].fixed, tensors[0].gradient, tensors[0].maker)
            return seen
        operation.parameters = parameters_of(row, tensors, shape)
        operation.multiply_adds = multiply_adds_of(row, tensors, shape)
        fixed = word in ("parameter", "buffer") or bool(row.get("fixed")) or (
            bool(tensors) and all(t.fixed for t in tensors))
        trained = operation.parameters > 0 or bool(row.get("tied"))
        gradient = trained or any(t.gradient for t in tensors)
        operation.output = Tensor(shape, fixed, gradient, len(self.operations))
        self.operations.append(operation)
        return operation.output

    def _check_totals(self):
        for key, sum_of in (("parameters", self.parameters), ("multiply_adds", self.multiply_adds)):
            if key in self.table and self.table[key] != sum_of():
                raise BadTable(f"{key}: the file says {self.table[key]}, its layers add up to {sum_of()}")

    def parameters(self, leave_out=()):
        return sum(op.parameters for op in self.operations if self.layer_names[op.layer] not in leave_out)

    def multiply_adds(self, leave_out=()):
        return sum(op.multiply_adds for op in self.operations if self.layer_names[op.layer] not in leave_out)


def load(path):
    with open(path, encoding="utf-8") as stream:
        return Network(json.load(stream))
