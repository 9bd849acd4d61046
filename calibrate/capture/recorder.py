"""Records what a PyTorch module runs: every operator that reaches PyTorch's dispatcher, with the module that called
it. On the meta device nothing is computed. Imports PyTorch."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Value:
    """A tensor of the recording: `key` is the storage-like identity that views share, `shape` with the batch."""

    def __init__(self, number, shape, role=None, name="", floating=True):
        self.number, self.shape, self.role, self.name, self.floating = number, tuple(shape), role, name, floating

    @property
    def count(self):
        found = 1
        for size in self.shape:
            found *= size
        return found


class Event:
    """One operator: its name, its arguments with Values for tensors, its outputs, and who called it."""

    def __init__(self, name, args, outputs, callers):
        self.name, self.args, self.outputs, self.callers = name, args, outputs, callers

    def values(self):
        return [v for v in flat(self.args) if isinstance(v, Value)]


def flat(item):
    if isinstance(item, (list, tuple)):
        for part in item:
            yield from flat(part)
    elif isinstance(item, dict):
        for part in item.values():
            yield from flat(part)
    else:
        yield item


def mapped(item, change):
    if isinstance(item, (list, tuple)):
        return [mapped(part, change) for part in item]
    if isinstance(item, dict):
        return {key: mapped(part, change) for key, part in item.items()}
    return change(item)


class Recorder(TorchDispatchMode):
    def __init__(self, module):
        super().__init__()
        self.module, self.events, self.callers = module, [], []
        self.calls = 0
        self.seen, self.alive = {}, []  # objects stay alive, so that an id is never used again
        for name, tensor in module.named_parameters():
            self.know(tensor, "parameter", name)
        for name, tensor in module.named_buffers():
            self.know(tensor, "buffer", name)
        self.names = {part: name for name, part in module.named_modules()}

    def know(self, tensor, role=None, name=""):
        if id(tensor) not in self.seen:
            self.alive.append(tensor)
            self.seen[id(tensor)] = Value(len(self.seen), tensor.shape, role, name, tensor.is_floating_point())
        return self.seen[id(tensor)]

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        change = lambda item: self.know(item) if isinstance(item, torch.Tensor) else item
        given = {"args": mapped(args, change), **mapped(kwargs or {}, change)}
        result = function(*args, **(kwargs or {}))
        outputs = [self.know(item) for item in flat(result) if isinstance(item, torch.Tensor)]
        # A module's class is what a message can name; the number tells its calls apart.
        self.events.append(Event(str(function).removeprefix("aten.").split(".")[0], given, outputs,
                                 tuple(self.callers)))
        return result

    def _enter(self, module, inputs):
        if module in self.names:
            self.calls += 1
            self.callers.append((self.names[module], module, self.calls))

    def _leave(self, module, inputs, outputs):
        if module in self.names:
            self.callers.pop()

    def run(self, inputs):
        handles = [torch.nn.modules.module.register_module_forward_pre_hook(self._enter),
                   torch.nn.modules.module.register_module_forward_hook(self._leave)]
        try:
            self.inputs = [self.know(tensor, "input") for tensor in inputs]
            with torch.no_grad(), self:
                result = self.module(*inputs)
        finally:
            for handle in handles:
                handle.remove()
        self.outputs = [self.know(item) for item in flat(result_of(result)) if isinstance(item, torch.Tensor)]
        return self


def on_meta(module):
    """The module without its weights. Parameters that modules share stay shared, which .to() alone does not see to."""
    places = {}
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                places.setdefault(id(parameter), []).append((part, name))
    module = module.to("meta")
    for shared in places.values():
        first, name = shared[0]
        for part, other in shared[1:]:
            part._parameters[other] = first._parameters[name]
    return module


def result_of(result):
    """Named tuples, dictionaries and Hugging Face's outputs alike."""
    return list(result.values()) if hasattr(result, "values") and not isinstance(result, torch.Tensor) else result
