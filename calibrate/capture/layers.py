"""Cuts rows into layers, names them, and writes the file's tree. The rules stand in docs/layers.md."""

import json

import layer_table
from layer_table import BadTable, Tensor
from operators import CannotCapture
from rows import Row

# A module with more convolutions and products than this is no layer: what is in it is looked at instead.
MOST_HEAVY = 12
CONTAINERS = ("Sequential", "ModuleList", "ModuleDict")


class Unit:
    def __init__(self, name, call, kind):
        self.name, self.call, self.kind, self.rows = name, call, kind, []

    @property
    def heavy(self):
        return any(row.heavy for row in self.rows)


def is_container(module):
    kinds = [kind.__name__ for kind in type(module).__mro__]
    return kinds[0] in CONTAINERS or kinds[0] != "Sequential" and any(k in ("ModuleList", "ModuleDict") for k in kinds)


def layer_of(row, heavy, blocks):
    """The call of the outermost module that is a layer, or None: the row is loose."""
    for name, module, call in row.callers:
        if blocks:
            if name in blocks:
                return name, call, type(module).__name__
            continue
        if name and not is_container(module) and any(True for _ in module.children()) and 0 < heavy[call] <= MOST_HEAVY:
            return name, call, type(module).__name__
    return None


def units_of(rows, blocks):
    heavy = {}
    for row in rows:
        for _, _, call in row.callers:
            heavy[call] = heavy.get(call, 0) + row.heavy
    units, pending = [], []
    for row in rows:
        found = layer_of(row, heavy, blocks)
        if found is not None:
            if not units or units[-1].call != found[1]:
                units.append(Unit(*found))
                units[-1].rows, pending = pending, []
            units[-1].rows.append(row)
        elif row.heavy or not units:
            # A weight begins a layer, unless what stands before it has none yet.
            if pending or not units or units[-1].call is not None or units[-1].heavy:
                units.append(Unit(loose_name(row), None, ""))
                units[-1].rows, pending = pending, []
            elif not units[-1].heavy:
                units[-1].name = loose_name(row)
            units[-1].rows.append(row)
        elif units[-1].call is None and not pending:
            units[-1].rows.append(row)
        else:
            pending.append(row)
    units[-1].rows += pending
    return units


def loose_name(row):
    return (row.callers[-1][0] if row.callers else "") or row.op


def named(names, wanted):
    name, number = wanted, 2
    while name in names:
        name, number = f"{wanted} {number}", number + 1
    names.add(name)
    return name


def row_name(row, unit):
    """The module's name inside its layer, without numbers; what has no name of its own is called as its operation."""
    if row.label:
        return row.label
    path = row.callers[-1][0] if row.callers else ""
    module = row.callers[-1][1] if row.callers else None
    if module is None or any(True for _ in module.children()):
        return row.op  # a function that a layer calls
    inside = path[len(unit.name) + 1:] if path.startswith(unit.name + ".") else path.rsplit(".", 1)[-1]
    parts = [part for part in inside.split(".") if part and not part.isdigit()]
    if not parts:
        return row.op
    return " ".join(parts) if not inside.rsplit(".", 1)[-1].isdigit() else " ".join([*parts, row.op])


class Writer:
    """Rows to the file's own words, each checked by the file's own rules as it is written."""

    def __init__(self, input_shape):
        self.image = Tensor(input_shape)
        self.made = {}  # row -> (unit name, row name, Tensor)
        self.last = {}  # unit name -> its last row

    def unit(self, unit, before):
        outside = []
        for row in unit.rows:
            for source in row.inputs:
                if source not in unit.rows and source not in outside:
                    outside.append(source)
        words = {source: "input" if n == 0 else f"input {n + 1}" for n, source in enumerate(outside)}
        tensors = {source: self.image if source is None else self.made[source][2] for source in outside}
        ops, names = [], set()
        last = "input"
        for row in unit.rows:
            refs = [words[source] for source in row.inputs]
            given = [tensors[source] for source in row.inputs]
            keys = dict(row.keys)
            if row.seen_shape is not None and tuple(given[0].shape) != tuple(row.seen_shape):
                view = {"op": "view"}
                name = named(names, "view")
                if refs != [last]:
                    view["after"] = refs
                view["shape"] = list(row.seen_shape)
                ops.append(view)
                given = [Tensor(row.seen_shape, given[0].fixed, given[0].gradient, given[0].maker)]
                refs, last = [name], name
            if row.op == "concat" and "shape" not in keys:
                keys = self.concat_keys(row, keys, given)
            shape = self.shape(row, keys, given, unit)
            wanted = row_name(row, unit)
            name = named(names, wanted)
            written = {"op": row.op}
            if wanted != row.op:
                written["name"] = wanted
            if row.op == "concat" and row.inputs == outside:
                written["after"] = ["inputs"]
            elif row.inputs and refs != [last]:
                written["after"] = refs
            written.update(keys)
            ops.append(written)
            words[row], tensors[row] = name, Tensor(shape, row.output.fixed)
            self.made[row] = (unit.name, name, tensors[row])
            last = name
        self.last[unit.name] = unit.rows[-1]
        after = [self.reference(source) for source in outside]
        written = {"name": unit.name}
        if after and after != [before]:
            written["after"] = after
        return written, ops

    @staticmethod
    def concat_keys(row, keys, given):
        try:
            if tuple(layer_table.joined(keys, given)) == tuple(row.true_shape):
                return keys
        except BadTable:
            pass
        return {"shape": list(row.true_shape)}

    @staticmethod
    def shape(row, keys, given, unit):
        written = {"op": row.op, **keys}
        try:
            shape = tuple(layer_table.shape_of(written, given)) if given else tuple(keys["shape"])
        except (BadTable, IndexError) as problem:
            raise CannotCapture(f"layer {unit.name}, {row.op}: {problem}; this is a mistake of the capture") from None
        if Tensor(shape).count != row.output.count:
            if "shape" not in layer_table.KEYS[row.op]:
                raise CannotCapture(f"layer {unit.name}: {row.op} hands on {row.output.count} elements, the rules say "
                                    f"{Tensor(shape).count}; this is a mistake of the capture")
            keys["shape"] = shape = list(row.true_shape)
        return tuple(shape)

    def reference(self, source):
        if source is None:
            return "input"
        unit, name, _ = self.made[source]
        return unit if self.last[unit] is source else f"{unit}:{name}"


def add_losses(units, outputs):
    for node in outputs:
        row = Row("loss", [node], {}, "", (), node)
        for unit in units:
            if node.row in unit.rows:
                unit.rows.append(row)


def table_of(rows, outputs, input_shape, blocks=()):
    units = units_of(rows, set(blocks))
    add_losses(units, outputs)
    taken = {"input"}
    for unit in units:
        unit.name = named_unit(taken, unit)
    writer = Writer(input_shape)
    layers, kinds = [], {}
    before = "input"
    for unit in units:
        written, ops = writer.unit(unit, before)
        layers.append((written, ops))
        kinds.setdefault(json.dumps(ops), []).append(unit)
        before = unit.name
    blocks_written, names = {}, set()
    for text, members in kinds.items():
        if len(members) > 1:
            kinds[text] = named(names, members[0].kind or members[0].rows[0].op)
            blocks_written[kinds[text]] = json.loads(text)
        else:
            kinds[text] = None
    chain = []
    for written, ops in layers:
        kind = kinds[json.dumps(ops)]
        chain.append({**written, **({"block": kind} if kind else {"ops": ops})})
    return blocks_written, chain


def named_unit(taken, unit):
    # Inside a layer rows are found by the module's own path, so a second call keeps it too.
    path = unit.name
    name = named(taken, path)
    if name != path:
        for row in unit.rows:
            row.label = row.label or row_name(row, unit)
    return name


def text_of(table):
    """The file: an operation a line, a layer of shared operations a line."""

    def one_line(item):
        if isinstance(item, dict):
            return "{ " + ", ".join(f"{json.dumps(key)}: {one_line(part)}" for key, part in item.items()) + " }"
        if isinstance(item, list):
            return "[" + ", ".join(one_line(part) for part in item) + "]"
        return json.dumps(item, ensure_ascii=False)

    def ops(rows, indent):
        return "[\n" + ",\n".join(indent + "  " + one_line(row) for row in rows) + "\n" + indent + "]"

    lines = []
    for key, value in table.items():
        if key == "blocks":
            body = ",\n".join(f"    {json.dumps(name)}: {ops(rows, '    ')}" for name, rows in value.items())
            lines.append('  "blocks": {\n' + body + "\n  }")
        elif key == "layers":
            body = []
            for layer in value:
                if "ops" in layer:
                    head = ", ".join(f"{json.dumps(k)}: {one_line(v)}" for k, v in layer.items() if k != "ops")
                    body.append("    { " + head + ', "ops": ' + ops(layer["ops"], "    ") + " }")
                else:
                    body.append("    " + one_line(layer))
            lines.append('  "layers": [\n' + ",\n".join(body) + "\n  ]")
        else:
            lines.append(f"  {json.dumps(key)}: {one_line(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
