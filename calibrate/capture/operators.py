"""One rule for each operator that needs more than a table: its row, and the keys of that row."""

import math

import rules
from recorder import Value


class CannotCapture(Exception):
    """What the format or the rules do not know: a sentence, and a cure."""


class Operators:
    """The rules, for Tracker."""

    def operands(self, event):
        """Tensors that take part; single numbers are left out."""
        found = []
        for value in event.values():
            node = self.node(value)
            if node.role == "empty":
                continue
            if node.role in ("constant", "buffer") and node.count == 1 and node.row is None:
                continue
            found.append((value, node))
        return found

    def broadcast(self, op, event, label=""):
        nodes = [node for _, node in self.operands(event)]
        for value, node in self.operands(event):
            if node.row is None and node.base is None:
                node.shape = node.shape or self.shape_of(value)
        self.append(op, nodes, {}, event.outputs[0], label)

    def simple(self, op):
        return lambda event, in_place: self.append(op, [self.node(event.values()[0])], {}, event.outputs[0])

    def activation(self, event, in_place):
        word = rules.ACTIVATIONS[event.name.rstrip("_")]
        # In place, hardswish and its like keep a copy; for those that keep their output it is all the same.
        keys = {"in_place": True} if in_place and word not in ("relu", "sigmoid", "tanh") else {}
        self.append(word, [self.node(event.values()[0])], keys, event.outputs[0])

    def window(self, args, start):
        kernel = args[start]
        kernel = kernel * 2 if len(kernel) == 1 else kernel
        stride = args[start + 1] if len(args) > start + 1 and args[start + 1] else kernel
        padding = args[start + 2] if len(args) > start + 2 else [0, 0]
        keys = {"kernel": short(kernel)}
        if tuple(pair_of(stride)) != tuple(kernel):
            keys["stride"] = short(pair_of(stride))
        if any(pair_of(padding)):
            keys["padding"] = short(pair_of(padding))
        return keys

    def pool(self, event, in_place):
        args, word = event.args["args"], event.name
        keys = self.window(args, 1)
        rest = args[4:]
        if word.startswith("max"):
            if rest and any(d != 1 for d in pair_of(rest[0])):
                keys["dilation"] = short(pair_of(rest[0]))
            rest = rest[1:]
        if rest and rest[0]:
            keys["ceil"] = True
        self.append(rules.POOLS[word], [self.node(args[0])], keys, event.outputs[0])

    def adaptive(self, event, in_place):
        args = event.args["args"]
        to = list(event.outputs[0].shape[-2:])
        self.append(rules.ADAPTIVE[event.name], [self.node(args[0])], {"to": to}, event.outputs[0])

    def reduce(self, event, in_place):
        args = event.args["args"]
        source, output = args[0], event.outputs[0]
        dims = args[1] if len(args) > 1 and isinstance(args[1], list) else None
        if event.name == "mean" and dims is not None and len(source.shape) == 4:
            if sorted(d % 4 for d in dims) == [2, 3]:
                self.append("avg_pool", [self.node(source)], {"to": [1, 1]}, output)
                return
        self.append("reduce", [self.node(source)], {"shape": list(self.shape_of(output) or (1,))}, output,
                    event.name.strip("_"))

    def copy(self, event, in_place):
        source = event.values()[0]
        node = self.node(source)
        if node.role == "noise" or (node.role in ("constant",) and node.count == 1 and node.row is None):
            self.nodes[event.outputs[0].number] = node
            return
        count, fixed = self.measured(event.outputs[0])
        keys = {"shape": list(self.shape_of(event.outputs[0]))} if count != node.count or fixed != node.fixed else {}
        if node.row is None and node.base is None:
            node.shape = node.shape or self.shape_of(source)
        label = "" if event.name in ("clone", "_to_copy", "copy") else event.name
        self.append("copy", [node], keys, event.outputs[0], label)

    def pad(self, event, in_place):
        source = event.values()[0]
        count, _ = self.measured(event.outputs[0])
        if count == self.node(source).count:
            return self.append("copy", [self.node(source)], {}, event.outputs[0], "pad")
        return self.append("pad", [self.node(source)], {"shape": list(self.shape_of(event.outputs[0]))},
                           event.outputs[0])

    def elementwise(self, event, in_place):
        self.broadcast("elementwise", event, event.name.rstrip("_"))

    def on_add(self, event, in_place):
        operands = self.operands(event)
        if len(operands) == 1:
            return self.append("shift", [operands[0][1]], {}, event.outputs[0])
        (_, left), (right_value, right) = operands[:2]
        # The bias of a product whose input is no matrix: PyTorch adds it by itself.
        if right.role == "parameter" and left.row is not None and left.row.op == "linear" and (
                not left.row.keys.get("bias") and right.count == left.row.keys["out"] and left.row is self.rows[-1]):
            left.row.keys["bias"] = True
            self.take_weight(right_value)
            self.nodes[event.outputs[0].number] = left
            return None
        return self.broadcast("add", event)

    def on_mul(self, event, in_place):
        operands = self.operands(event)
        if len(operands) == 1:
            return self.append("scale", [operands[0][1]], {}, event.outputs[0])
        return self.broadcast("mul", event)

    def on_div(self, event, in_place):
        operands = self.operands(event)
        if len(operands) == 1:
            return self.append("scale", [operands[0][1]], {}, event.outputs[0])
        return self.broadcast("mul", event, "div")

    def on_neg(self, event, in_place):
        self.append("scale", [self.node(event.values()[0])], {}, event.outputs[0], "neg")

    def on_cat(self, event, in_place):
        values = event.args["args"][0]
        nodes = [self.node(v) for v in values]
        for value, node in zip(values, nodes):
            if node.row is None and node.base is None:
                node.shape = node.shape or self.shape_of(value)
        dim = event.args["args"][1] if len(event.args["args"]) > 1 else event.args.get("dim", 0)
        dim %= len(values[0].shape)
        self.append("concat", nodes, {"axis": dim - 1} if dim > 1 else {}, event.outputs[0])

    def on_stack(self, event, in_place):
        nodes = [self.node(v) for v in event.args["args"][0]]
        self.append("concat", nodes, {"shape": list(self.shape_of(event.outputs[0]))}, event.outputs[0], "stack")

    def on_index(self, event, in_place):
        source = event.args["args"][0]
        node = self.node(source)
        if node.row is None and node.base is None:
            node.shape = node.shape or self.shape_of(source)
        self.append("gather", [node], {"shape": list(self.shape_of(event.outputs[0]))}, event.outputs[0])

    on_index_select = on_gather = on_index

    def on_native_dropout(self, event, in_place):
        self.append("dropout", [self.node(event.values()[0])], {}, event.outputs[0])

    def on_embedding(self, event, in_place):
        weight, ids = event.args["args"][:2]
        keys = {"rows": weight.shape[0], "width": weight.shape[1]}
        if self.take_weight(weight):
            keys["tied"] = True
        self.append("embedding", [self.node(ids)], keys, event.outputs[0])

    def linear(self, event, source, weight, inputs, outputs, bias):
        keys = {"in": inputs, "out": outputs}
        if isinstance(bias, Value):
            keys["bias"] = True
        if self.take_weight(weight, bias):
            keys["tied"] = True
        self.append("linear", [self.node(source)], keys, event.outputs[0])

    def on_addmm(self, event, in_place):
        bias, source, weight = event.args["args"][:3]
        if not self.is_weight(weight):
            self.refuse("a product and a sum of computed tensors", "write them as two operations")
        if self.is_weight(bias):
            return self.linear(event, source, weight, *weight.shape, bias)
        # A computed bias is one more tensor.
        self.linear(event, source, weight, *weight.shape, None)
        output = event.outputs[0]
        return self.append("add", [self.nodes[output.number], self.node(bias)], {}, output)

    def on_mm(self, event, in_place):
        source, weight = event.args["args"][:2]
        if self.is_weight(weight):
            return self.linear(event, source, weight, *weight.shape, None)
        if self.is_weight(source):
            return self.linear(event, weight, source, source.shape[1], source.shape[0], None)
        return self.product(event, source, weight)

    def on_linear(self, event, in_place):
        source, weight = event.args["args"][:2]
        bias = event.args["args"][2] if len(event.args["args"]) > 2 else None
        self.linear(event, source, weight, weight.shape[1], weight.shape[0], bias)

    def product(self, event, left, right):
        output = event.outputs[0]
        m, k = left.shape[-2:]
        n = right.shape[-1]
        twin = self.twin[output.number].shape
        if tuple(twin[-2:]) != (m, n):
            self.refuse("a product whose rows or columns grow with the batch", "only batches of products are described")
        count, fixed = self.measured(output)
        count //= m * n
        keys = {"count": count} if count > 1 else {}
        self.append("matmul", [self.node(left), self.node(right)], {**keys, "m": m, "n": n, "k": k}, output)

    def on_bmm(self, event, in_place):
        self.product(event, *event.args["args"][:2])

    def on_baddbmm(self, event, in_place):
        bias, left, right = event.args["args"][:3]
        self.product(event, left, right)
        if self.node(bias).role == "empty":
            return
        output = event.outputs[0]
        self.append("add", [self.nodes[output.number], self.node(bias)], {}, output)

    def convolution(self, event, in_place):
        args = event.args["args"]
        source, weight, bias = args[:3]
        stride, padding, dilation = args[3:6]
        transposed, output_padding, groups = args[6:9] if len(args) > 8 else (False, [0], args[6])
        if len(source.shape) != 4:
            self.refuse(f"a convolution of {len(source.shape) - 2} dimensions",
                        "those of images, with two, are described")
        channels = source.shape[1]
        out = weight.shape[1] * groups if transposed else weight.shape[0]
        op = "conv_transpose" if transposed else "conv"
        keys = {"out": out, "kernel": short(weight.shape[2:])}
        if not transposed and groups == channels and channels > 1:
            op = "depthwise_conv"
            if out == channels:
                del keys["out"]
        elif groups > 1:
            keys["groups"] = groups
        for key, value, usual in (("stride", stride, 1), ("padding", padding, 0), ("dilation", dilation, 1)):
            if any(v != usual for v in value):
                keys[key] = short(pair_of(value))
        if transposed and any(output_padding):
            keys["output_padding"] = short(pair_of(output_padding))
        if isinstance(bias, Value):
            keys["bias"] = True
        if not self.is_weight(weight):
            self.refuse("a convolution with computed weights", "only trained weights are described")
        if self.take_weight(weight, bias):
            keys["tied"] = True
        self.append(op, [self.node(source)], keys, event.outputs[0])

    def norm(self, op, event, weight, bias, keys):
        keys = {**keys, **({} if isinstance(weight, Value) else {"affine": False})}
        if op == "layer_norm" and isinstance(weight, Value) and not isinstance(bias, Value):
            keys["bias"] = False
        if self.take_weight(weight, bias):
            keys["tied"] = True
        self.append(op, [self.node(event.args["args"][0])], keys, event.outputs[0])

    def batch_norm(self, event, in_place):
        self.norm("batch_norm", event, *event.args["args"][1:3], {})

    def on_native_group_norm(self, event, in_place):
        self.norm("group_norm", event, *event.args["args"][1:3], {})

    def on_native_layer_norm(self, event, in_place):
        shape, weight, bias = event.args["args"][1:4]
        self.norm("layer_norm", event, weight, bias, {"width": math.prod(shape)})

    def attention(self, event, in_place):
        query, key, value = event.args["args"][:3]
        if value.shape[-1] != query.shape[-1]:
            self.refuse("values of another width than queries", "only equal widths are described")
        rest = event.args["args"][3:]
        causal = any(item is True for item in rest) or bool(event.args.get("is_causal"))
        heads, length, width = query.shape[-3], query.shape[-2], query.shape[-1]
        # Windows of an image are folded into the batch: as many more heads.
        heads *= query.shape[0] // self.batch if query.shape[0] % self.batch == 0 else 1
        keys = {"heads": heads, "query": length, "key": key.shape[-2], "head": width}
        if key.shape[-3] != query.shape[-3]:
            keys["kv_heads"] = key.shape[-3]
        if causal:
            keys["causal"] = True
        self.append("attention", [self.node(query), self.node(key), self.node(value)], keys, event.outputs[0])

    def resize(self, event, in_place):
        source, output = event.values()[0], event.outputs[0]
        by = [b / a for a, b in zip(source.shape[-2:], output.shape[-2:])]
        keys = {"by": short([int(b) for b in by])} if all(b == int(b) for b in by) else {"to": list(output.shape[-2:])}
        self.append("resize", [self.node(source)], keys, output)


def pair_of(value):
    value = list(value) if isinstance(value, (list, tuple)) else [value]
    return value * 2 if len(value) == 1 else value


def short(value):
    value = [int(v) for v in value]
    return value[0] if value[0] == value[-1] else value
