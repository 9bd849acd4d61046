"""From a recording to rows: follows every tensor, writes one row for each kernel, cuts the rows into layers."""

import math

import rules
from operators import CannotCapture, Operators
from recorder import Value


NEED_IMAGE = ("conv", "depthwise_conv", "conv_transpose", "batch_norm", "group_norm", "max_pool", "avg_pool", "resize")


class Node:
    """A tensor as rows know it. `row` is the row that makes it, None until it is needed; views share the node."""

    def __init__(self, count, fixed, row=None, role=None, base=None, how="slice"):
        self.count, self.fixed, self.row, self.role, self.base, self.how = count, fixed, row, role, base, how
        self.shape = None  # as the file's own rules infer it
        self.name = ""


class Row:
    def __init__(self, op, inputs, keys, label, callers, output):
        # Inputs are rows, or None for the module's input: what a node is made by may change behind us.
        self.op, self.inputs, self.keys, self.label, self.callers = op, [n.row for n in inputs], keys, label, callers
        self.output = output
        self.seen_shape = None  # of its first input, where the operation needs an image
        self.heavy = op in ("conv", "depthwise_conv", "conv_transpose", "linear", "matmul", "attention", "embedding")


class Tracker(Operators):
    """`events` and `others` record the same module with batches of `batch` and `other_batch`."""

    def __init__(self, recording, other, batch, other_batch, treat=None):
        self.recording, self.other = recording, other
        self.batch, self.other_batch = batch, other_batch
        self.treat = treat or {}
        self.rows, self.nodes, self.true_shape = [], {}, {}
        self.used_parameters = set()
        self.event = None
        if len(recording.events) != len(other.events) or any(
                a.name != b.name for a, b in zip(recording.events, other.events)):
            raise CannotCapture("the module runs other operators for another batch size; "
                                "capture a module whose forward pass does not look at the batch")
        self.twin = {}
        for mine, theirs in zip(recording.inputs, other.inputs):
            self.twin[mine.number] = theirs
        for mine, theirs in zip(recording.events, other.events):
            for a, b in zip((*mine.values(), *mine.outputs), (*theirs.values(), *theirs.outputs)):
                self.twin.setdefault(a.number, b)
        for value in recording.inputs:
            node = Node(*self.measured(value), role="input")
            self.nodes[value.number] = node
        for mine in recording.events:
            self.event = mine
            self.step(mine)
        self.check_parameters()

    # What a tensor is, whatever the batch.

    def refuse(self, what, cure):
        name, module, _ = self.event.callers[-1] if self.event.callers else ("", None, 0)
        where = f"module {name or '(the module itself)'} ({type(module).__name__})" if module else "the module"
        raise CannotCapture(f"{where} runs {self.event.name}: {what}; {cure}")

    def measured(self, value):
        """(elements, fixed): of a sample, or in all where they do not grow with the batch."""
        mine, theirs = value.count, self.twin.get(value.number, value).count
        if mine == theirs:
            return mine, True
        if mine * self.other_batch == theirs * self.batch and mine % self.batch == 0:
            return mine // self.batch, False
        self.refuse(f"a tensor of {mine} elements for {self.batch} samples has {theirs} for {self.other_batch}",
                    "only work that grows with the batch can be described")

    def shape_of(self, value):
        """The shape of one sample: the batch, or its factor in a size, is left out."""
        found, left = [], True
        for mine, theirs in zip(value.shape, self.twin.get(value.number, value).shape):
            if left and mine != theirs:
                left = False
                if mine // self.batch > 1:
                    found.append(mine // self.batch)
            else:
                found.append(mine)
        return tuple(found)

    def node(self, value):
        if value.number not in self.nodes:
            count, fixed = self.measured(value)
            role = value.role or "constant"
            self.nodes[value.number] = Node(count, fixed, role=role)
            self.nodes[value.number].name = value.name
        return self.nodes[value.number]

    def is_weight(self, value):
        return isinstance(value, Value) and self.root(self.node(value)).role == "parameter"

    @staticmethod
    def root(node):
        while node.base is not None:
            node = node.base
        return node

    # Rows.

    def append(self, op, inputs, keys, output_value, label=""):
        node = self.nodes.get(output_value.number) if self.event.name.endswith("_") else None
        made = Node(*self.measured(output_value))
        if node is None or (node.count, node.fixed) != (made.count, made.fixed):
            node = made
        shape = self.shape_of(output_value)
        row = Row(op, [self.ready(n) for n in inputs], keys, label, self.event.callers, node)
        row.true_shape = shape
        if op in NEED_IMAGE:
            row.seen_shape = self.shape_of(self.event.values()[0])
        # In place the tensor itself changes, and with it every view of it.
        node.row, node.role, node.base = row, None, None
        self.rows.append(row)
        self.nodes[output_value.number] = node
        return row

    def ready(self, node):
        """The node with a row that makes it: slices, parameters and constants are written when they are read."""
        if node.row is not None or node.role == "input":
            return node
        if node.base is not None:
            base = self.ready(node.base)
            row = Row(node.how, [base], {"shape": list(node.shape)}, node.name, self.event.callers, node)
        elif node.role == "parameter":
            self.used_parameters.add(node.name)
            row = Row("parameter", [], {"shape": list(node.shape or (node.count,))}, node.name.rsplit(".", 1)[-1],
                      self.event.callers, node)
        elif node.role in ("buffer", "constant"):
            row = Row("buffer", [], {"shape": list(node.shape or (node.count,))}, node.name.rsplit(".", 1)[-1],
                      self.event.callers, node)
        else:
            self.refuse("it reads memory that nothing was written to", "this is a mistake of the module")
        row.true_shape = tuple(row.keys["shape"])
        node.row = row
        self.rows.append(row)
        return node

    def take_weight(self, *values):
        """Marks parameters as held by the next row. Whether they were held before."""
        names = [self.root(self.node(v)).name for v in values if isinstance(v, Value)]
        seen = [name in self.used_parameters for name in names]
        self.used_parameters.update(names)
        return bool(seen) and seen[0]

    def check_parameters(self):
        unread = [name for name, p in self.recording.module.named_parameters() if name not in self.used_parameters]
        if unread:
            raise CannotCapture(f"{len(unread)} parameters are never read, the first is {unread[0]}; they would be "
                                f"trained all the same, so remove them from the module")

    # Operators.

    def step(self, event):
        name = event.name
        in_place = name.endswith("_") and not name.startswith("_")
        word = name.rstrip("_") if in_place else name
        first = next((v for v in event.values()), None)
        if name in rules.IGNORED or self.treat.get(name) == "ignore":
            return
        if first is not None and in_place and first.role == "buffer":
            return  # running statistics and counters
        if name in self.treat:
            return self.treated(self.treat[name], event)
        if name in rules.VIEWS:
            return self.view(first, event.outputs[0])
        if name in rules.SLICES:
            return self.slice(first, event.outputs[0])
        if name in rules.PARTS:
            return self.parts(first, event.outputs)
        if name in rules.EMPTY:
            return self.empty(event)
        if name in rules.RANDOM:
            return self.random(event)
        if word in ("div", "mul") and self.noise(event, in_place):
            return
        if name in rules.FILLED:
            return self.filled(event)
        if in_place and word in ("fill", "zero", "copy"):
            return self.written(event)
        if in_place and first is not None:
            target = self.node(first)
            if target.base is not None and target.row is None:
                self.refuse("it changes a part of a tensor in place", "write it as a concatenation")
        handler = getattr(self, "on_" + word.lstrip("_"), None)
        if handler is None:
            handler = self.table_handler(word)
        if handler is None:
            self.refuse("no rule says what it costs",
                        f"say what it is like, --treat {name}=RULE with RULE one of "
                        f"{', '.join(rules.TREATMENTS)}, or add a rule to calibrate/capture/rules.py")
        handler(event, in_place)

    def table_handler(self, word):
        for table, handler in (
                (rules.ACTIVATIONS, self.activation), (rules.POOLS, self.pool), (rules.ADAPTIVE, self.adaptive),
                (rules.PADS, self.pad), (rules.SOFTMAXES, self.simple("softmax")), (rules.BATCH_NORMS, self.batch_norm),
                (rules.CONVOLUTIONS, self.convolution), (rules.ATTENTION, self.attention),
                (rules.FUNCTIONS, self.simple("function")), (rules.ELEMENTWISE, self.elementwise),
                (rules.COPIES, self.copy), (rules.REDUCTIONS, self.reduce)):
            if word in table:
                return handler
        return self.resize if word.startswith("upsample_") else None

    def treated(self, rule, event):
        first = event.values()[0]
        {"view": lambda: self.view(first, event.outputs[0]), "copy": lambda: self.copy(event, False),
         "elementwise": lambda: self.elementwise(event, False), "reduce": lambda: self.reduce(event, False),
         "function": lambda: self.append("function", [self.node(first)], {}, event.outputs[0]),
         "activation": lambda: self.append("silu", [self.node(first)], {}, event.outputs[0], event.name)}[rule]()

    def view(self, source, output):
        if output.number == source.number:
            return
        node = self.node(source)
        shape = self.shape_of(output)
        if node.row is None and node.base is None and node.role in ("parameter", "buffer", "constant"):
            node.shape = node.shape or self.shape_of(source)
        if math.prod(shape) < node.count:
            return self.slice(source, output)
        self.nodes[output.number] = node

    def slice(self, source, output, how="slice"):
        node = self.node(source)
        count, fixed = self.measured(output)
        if count == node.count:
            self.nodes[output.number] = node
            return
        if node.row is None and node.base is None:
            node.shape = node.shape or self.shape_of(source)
        base = node.base if node.base is not None and node.row is None and node.how == "slice" else node
        found = Node(count, fixed, base=base, how=how)
        found.shape = self.shape_of(output)
        self.nodes[output.number] = found

    def parts(self, source, outputs):
        for output in outputs:
            self.slice(source, output, "part")

    def empty(self, event):
        output = event.outputs[0]
        self.nodes[output.number] = Node(*self.measured(output), role="empty")

    def random(self, event):
        output = event.outputs[0]
        self.nodes[output.number] = Node(*self.measured(output), role="noise")

    def noise(self, event, in_place):
        """Dropout and stochastic depth: a product with random numbers. True if this is part of one."""
        values = event.values()
        roles = [self.node(v).role for v in values]
        if "noise" not in roles:
            return False
        if roles[0] == "noise" and (len(values) == 1 or roles[1] == "constant"):
            self.nodes[event.outputs[0].number] = self.node(values[0])
            return True
        source = values[1] if roles[0] == "noise" else values[0]
        noise = self.node(values[roles.index("noise")])
        node = self.node(source)
        if node.role == "noise" or noise.count not in (1, node.count):
            self.refuse(f"random numbers of {noise.count} elements for a tensor of {node.count}",
                        "dropout of single elements and of whole samples is described")
        self.append("dropout" if noise.count == node.count else "stochastic_depth", [node], {}, event.outputs[0])
        return True

    def filled(self, event):
        output = event.outputs[0]
        count, fixed = self.measured(output)
        if count <= 1:
            self.nodes[output.number] = Node(count, fixed, role="constant")
            return
        keys = {"shape": list(self.shape_of(output)), **({"fixed": True} if fixed else {})}
        self.append("constant", [], keys, output)

    def written(self, event):
        """Writes into a tensor, or into a part of it: a row that hands on the whole."""
        target = event.values()[0]
        node = self.node(target)
        count = node.count
        whole = node
        while whole.row is None and whole.base is not None:
            whole = whole.base
        if whole.role == "empty" and event.name == "copy_":
            return self.append("copy", [self.node(event.values()[1])], {}, event.outputs[0])
        if whole.role == "empty" or (whole.role == "noise"):
            keys = {"shape": list(self.shape_of(target)), **({"fixed": True} if whole.fixed else {})}
            self.append("constant", [], keys, event.outputs[0])
            return None
        if whole.role in ("parameter", "buffer", "input"):
            self.refuse(f"it writes into {whole.role} {whole.name}", "capture a module that leaves it alone")
        traffic = {"write": count}
        sources = [self.node(v) for v in event.values()[1:] if self.node(v).count > 1]
        if sources:
            if any(n.role is None for n in sources):
                self.refuse("it copies computed values into a part of a tensor", "write it as a concatenation")
            traffic = {"read": count, "write": count}
        row = Row("memory", [self.ready(whole)], {"forward": traffic}, event.name.rstrip("_"), event.callers, whole)
        row.true_shape = whole.row.true_shape
        self.rows.append(row)
        whole.row = row
        return None
