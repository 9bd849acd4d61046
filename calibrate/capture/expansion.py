"""Kernels of a table of layers, and what is kept between the passes: the rules of docs/layers.md in Python, which tests
compare with what the program does. Texts are those of models/kernel.cpp, bytes as plain numbers."""

from layer_table import ACTIVATIONS, KEEP_INPUT, KEEP_OUTPUT, KEEP_OUTPUT_IN_PLACE, convolution_shape, pair

SIZE_WORDS = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}
INDEX_BYTES = 8
MASK_BYTES = 1
FP32_BYTES = 4


class Expansion:
    """The kernels of a network for one micro-batch: [(layer, name, text)] of both passes, and what is kept."""

    def __init__(self, network, batch, dtype="fp16"):
        self.network, self.batch, self.dtype = network, batch, dtype
        self.size = SIZE_WORDS[dtype]
        self.forward, self.backward = [], []
        self.last_reader = {}
        for index, op in enumerate(network.operations):
            for tensor in op.inputs:
                if tensor.maker is not None:
                    self.last_reader[tensor.maker] = index
        for op in network.operations:
            self._forward(op)
        for index in range(len(network.operations) - 1, -1, -1):
            self._backward(index, network.operations[index])

    def bytes(self, tensor):
        return tensor.elements(self.batch) * self.size

    def _add(self, items, op, name, text):
        items.append((self.network.layer_names[op.layer], name, text))

    def _memory(self, items, op, name, kind, read, written):
        self._add(items, op, name, f"{kind} reading {read} B, writing {written} B")

    def _gemm(self, items, op, name, m, n, k, count=1):
        of = "" if count == 1 else f"{count} of "
        self._add(items, op, name, f"gemm {self.dtype} {of}{m}x{n}x{k}")

    def _convolution(self, items, op, name, which):
        first, out = op.inputs[0].shape, op.output.shape
        if op.word == "conv_transpose":  # the data gradient of the convolution from its output to its input
            first, out = out, first
            which = {"forward": "data gradient", "data gradient": "forward"}.get(which, which)
        kernel = pair(op.row["kernel"])
        groups = convolution_shape(op.row, op.inputs[0])[1]
        text = (f"convolution {which} {self.dtype} {self.batch}x{first[0]}x{first[1]}x{first[2]} by "
                f"{kernel[0]}x{kernel[1]} to {out[0]}x{out[1]}x{out[2]}")
        self._add(items, op, name, text + (f" in {groups} groups" if groups > 1 else ""))

    def _linear_sizes(self, op):
        """Rows, outputs, inputs of the product with the weights."""
        row = op.row
        if op.word == "gemm":
            return row["m"] * self.batch, row["n"], row["k"]
        return op.inputs[0].elements(self.batch) // row["in"], row["out"], row["in"]

    def _count(self, op):
        return op.row.get("count", 1) * (1 if op.output.fixed else self.batch)

    def _forward(self, op):
        word, row, name, out = op.word, op.row, op.name, op.output
        items, size = self.forward, self.size
        read = sum(self.bytes(t) for t in op.inputs)
        wrote = self.bytes(out)

        def memory(kind, r, w, what=name):
            self._memory(items, op, what, kind, r, w)

        if word in ("conv", "depthwise_conv", "conv_transpose"):
            self._convolution(items, op, name, "forward")
        elif word in ("linear", "gemm"):
            self._gemm(items, op, name, *self._linear_sizes(op))
        elif word == "matmul":
            self._gemm(items, op, name, row["m"], row["n"], row["k"], self._count(op))
        elif word == "attention":
            self._attention(items, op, name, False)
        elif word in ("batch_norm", "group_norm"):
            memory("batch_norm", 2 * read, wrote)
        elif word == "layer_norm":
            memory("layer_norm", read, wrote)
        elif word in ACTIVATIONS:
            if word in KEEP_INPUT and row.get("in_place"):
                memory("elementwise", read, wrote, name + " copy")
            memory("activation", read, wrote)
        elif word == "max_pool":
            memory("pooling", read, wrote + INDEX_BYTES * out.elements(self.batch))
        elif word in ("avg_pool", "resize"):
            memory("pooling", read, wrote)
        elif word == "softmax":
            memory("softmax", read, wrote)
        elif word == "dropout":
            memory("dropout", read, wrote + MASK_BYTES * out.elements(self.batch))
        elif word == "stochastic_depth":
            memory("elementwise", 0, self.batch * size, name + " numbers")
            memory("elementwise", self.batch * size, self.batch * size, name + " factors")
            memory("elementwise", read + self.batch * size, wrote)
        elif word in ("add", "mul", "elementwise", "function", "scale", "shift", "concat", "copy", "pad", "reduce"):
            memory("elementwise", read, wrote)
        elif word == "constant":
            memory("elementwise", 0, wrote)
        elif word in ("embedding", "gather"):
            memory("embedding", wrote, wrote)
        elif word == "loss":
            probabilities = FP32_BYTES * out.elements(self.batch)
            memory("cross_entropy", probabilities, probabilities)
        elif word == "memory":
            self._written(items, op, name, row["forward"])
        elif word == "time":
            self._add(items, op, name, f"{row['forward']} for {row['micro_batch']} samples")

    def _attention(self, items, op, name, backward):
        row = op.row
        self._add(items, op, name,
                  f"{'causal ' if row.get('causal') else ''}attention{' backward' if backward else ''} {self.dtype} "
                  f"{self.batch}x{row['heads']}/{row.get('kv_heads', row['heads'])} heads "
                  f"{row['query']}x{row['key']}x{row['head']}")

    def _written(self, items, op, name, traffic):
        scale = self.size * (1 if op.output.fixed else self.batch)
        self._memory(items, op, name, op.row.get("as", "elementwise"), traffic.get("read", 0) * scale,
                     traffic.get("write", 0) * scale)

    def _backward(self, index, op):
        if not op.output.gradient:
            return
        word, row, name, out = op.word, op.row, op.name, op.output
        items = self.backward
        wanted = [t for t in op.inputs if t.gradient]
        first = op.inputs[0] if op.inputs else None
        back = name + " backward"
        wrote = self.bytes(out)

        def memory(kind, r, w, what=back):
            self._memory(items, op, what, kind, r, w)

        def shrink(tensor):
            """Sums a gradient of the output's size over what the input was repeated for."""
            if tensor.elements(self.batch) < out.elements(self.batch):
                memory("elementwise", wrote, self.bytes(tensor), name + " sum over copies")

        if word in ("conv", "depthwise_conv", "conv_transpose"):
            if first.gradient:
                self._convolution(items, op, name + " data gradient", "data gradient")
            self._convolution(items, op, name + " weight gradient", "weight gradient")
        elif word in ("linear", "gemm"):
            m, n, k = self._linear_sizes(op)
            if first.gradient:
                self._gemm(items, op, name + " input gradient", m, k, n)
            self._gemm(items, op, name + " weight gradient", n, k, m)
        elif word == "matmul":
            m, n, k, count = row["m"], row["n"], row["k"], self._count(op)
            if op.inputs[0].gradient:
                self._gemm(items, op, name + " left gradient", m, k, n, count)
            if op.inputs[1].gradient:
                self._gemm(items, op, name + " right gradient", k, n, m, count)
        elif word == "attention":
            self._attention(items, op, back, True)
        elif word in ("batch_norm", "group_norm"):
            read = self.bytes(first)
            memory("batch_norm", 4 * read, read) if first.gradient else memory("batch_norm", 2 * read, 0)
        elif word == "layer_norm":
            read = self.bytes(first)
            if first.gradient:
                memory("layer_norm", 2 * read, read)
            if row.get("affine", True):
                memory("layer_norm", 2 * read, 0, name + " weight gradient")
        elif word == "loss":
            probabilities = FP32_BYTES * out.elements(self.batch)
            memory("cross_entropy", probabilities, probabilities)
        elif word == "memory":
            if "backward" in row:
                self._written(items, op, back, row["backward"])
        elif word == "time":
            if "backward" in row:
                self._add(items, op, back, f"{row['backward']} for {row['micro_batch']} samples")
        elif word == "embedding":
            memory("elementwise", 0, row["rows"] * row["width"] * self.size, name + " gradient zeros")
            memory("embedding", 2 * wrote, wrote)
        elif wanted:
            self._backward_of_memory(op, memory, shrink, wanted, back)
        self._gradient_sums(index, op)

    def _backward_of_memory(self, op, memory, shrink, wanted, back):
        word, out = op.word, op.output
        first = op.inputs[0]
        read, wrote, batch = self.bytes(first), self.bytes(out), self.batch
        if word in ACTIVATIONS:
            memory("activation", 2 * wrote, read)
        elif word == "max_pool":
            memory("pooling", wrote + INDEX_BYTES * out.elements(batch), read)
        elif word in ("avg_pool", "resize"):
            memory("pooling", wrote, read)
        elif word == "softmax":
            memory("softmax", 2 * wrote, read)
        elif word == "dropout":
            memory("dropout", wrote + MASK_BYTES * out.elements(batch), read)
        elif word == "stochastic_depth":
            memory("elementwise", wrote + batch * self.size, read)
        elif word == "function":
            memory("elementwise", wrote + read, read)
        elif word in ("scale", "copy", "pad", "reduce"):
            memory("elementwise", wrote, read)
        elif word == "part":
            memory("elementwise", wrote, wrote)
        elif word == "slice":
            memory("elementwise", 0, read, op.name + " gradient zeros")
            memory("elementwise", wrote, wrote)
        elif word == "gather":
            memory("elementwise", 0, read, op.name + " gradient zeros")
            memory("embedding", 2 * wrote, wrote)
        elif word == "add":
            for tensor in wanted:
                shrink(tensor)
        elif word == "mul":
            for place, tensor in enumerate(op.inputs):
                if not tensor.gradient:
                    continue
                others = sum(self.bytes(t) for n, t in enumerate(op.inputs) if n != place)
                memory("elementwise", wrote + others, wrote)
                shrink(tensor)
        elif word == "elementwise":
            for tensor in wanted:
                memory("elementwise", wrote, wrote)
                shrink(tensor)

    def _gradient_sums(self, index, op):
        if op.word == "part":
            return
        for tensor in op.inputs:
            if tensor.maker is None or not tensor.gradient or self.last_reader[tensor.maker] <= index:
                continue
            self._memory(self.backward, op, op.name + " gradient sum", "elementwise", 2 * self.bytes(tensor),
                         self.bytes(tensor))

    # What stays between the passes, in bytes.

    def _keeps(self, op):
        """(tensors, other bytes) that an operation needs for its backward pass."""
        word, row, out = op.word, op.row, op.output
        if not out.gradient:
            return [], 0
        if word in ("conv", "depthwise_conv", "conv_transpose", "linear", "gemm", "batch_norm", "group_norm",
                    "layer_norm"):
            return op.inputs, 0
        if word == "matmul":
            left, right = op.inputs
            return [t for t, other in ((left, right), (right, left)) if other.gradient], 0
        if word == "attention":
            statistics = FP32_BYTES * self.batch * row["heads"] * row["query"]
            return [*op.inputs, out], statistics
        if word == "max_pool":
            return op.inputs, INDEX_BYTES * out.elements(self.batch)
        if word == "avg_pool":
            return ([] if pair(row.get("to", 0)) == (1, 1) else op.inputs), 0
        if word in KEEP_OUTPUT or word == "softmax" or (word in KEEP_OUTPUT_IN_PLACE and row.get("in_place")):
            return [out], 0
        if word in KEEP_INPUT and row.get("in_place"):
            return [], self.bytes(out)  # its own copy of the input
        if word in ACTIVATIONS or word == "function":
            return op.inputs, 0
        if word == "dropout":
            return [], MASK_BYTES * out.elements(self.batch)
        if word == "stochastic_depth":
            return [], self.batch * self.size
        if word == "mul":
            return [t for n, t in enumerate(op.inputs)
                    if any(o.gradient for m, o in enumerate(op.inputs) if m != n)], 0
        if word == "loss":
            return [], FP32_BYTES * out.elements(self.batch)
        if word in ("memory", "time"):
            return [], row.get("keeps", 0) * self.size * (1 if out.fixed else self.batch)
        return [], 0

    def kept(self):
        """[(layer, bytes of what it reads from other layers, other bytes)]: each tensor once. Parameters are not
        activations."""
        operations = self.network.operations
        kept, rest = {}, {}
        for op in operations:
            tensors, other = self._keeps(op)
            rest[op.layer] = rest.get(op.layer, 0) + other
            for tensor in tensors:
                made = None if tensor.maker is None else operations[tensor.maker]
                if made is None or made.word not in ("parameter", "buffer"):
                    kept[tensor.maker] = tensor
        first_reader = {}
        for op in operations:
            for tensor in op.inputs:
                made_in = None if tensor.maker is None else operations[tensor.maker].layer
                if made_in != op.layer:
                    first_reader.setdefault(tensor.maker, op.layer)
        inputs = dict.fromkeys(range(len(self.network.layer_names)), 0)
        for maker, tensor in kept.items():
            if maker in first_reader:
                inputs[first_reader[maker]] += self.bytes(tensor)
            else:
                layer = operations[maker].layer
                rest[layer] = rest.get(layer, 0) + self.bytes(tensor)
        return [(name, inputs[n], rest.get(n, 0)) for n, name in enumerate(self.network.layer_names)]
