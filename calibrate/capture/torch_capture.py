#!/usr/bin/env python3
"""Captures a PyTorch module as a network of trainyard: a table of layers (docs/layers.md).

usage: torch_capture.py MODULE [-o FILE.json] [--input 3x224x224] [--layers NAME,...] [--treat OPERATOR=RULE]
       torch_capture.py --list
       torch_capture.py --shipped [NAME ...] [-o FOLDER]

MODULE is torchvision:NAME (a function of torchvision.models), shipped:NAME (--list), or PATH.py:FACTORY, a function
without arguments that returns a torch.nn.Module.
"""

import argparse
import importlib.util
import os
import sys

DONE, WRONG_COMMAND, WRONG_MODULE, ENVIRONMENT = 0, 2, 3, 4
BATCHES = (2, 3)  # two sizes: what grows with the batch is of a sample, what does not is not
DEFAULT_INPUT = "3x224x224"

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, HERE)


class WrongCommand(Exception):
    pass


def need_torch():
    try:
        import torch
    except ImportError as problem:
        raise OSError(f"PyTorch is not installed ({problem}); on Debian: apt-get install python3-torch "
                      f"python3-torchvision, and run this with /usr/bin/python3") from None
    torch.set_num_threads(1)
    return torch


def input_sizes(text):
    try:
        kind, _, sizes = text.rpartition(":")
        sizes = tuple(int(part) for part in sizes.split("x"))
        if not sizes or min(sizes) < 1 or kind not in ("", "ids"):
            raise ValueError
    except ValueError:
        raise WrongCommand(f"--input {text}: expected sizes of one sample such as 3x224x224, or ids:128 for numbers of "
                           f"tokens") from None
    return sizes, kind == "ids"


def treatments(texts):
    from rules import TREATMENTS

    found = {}
    for text in texts:
        operator, _, rule = text.partition("=")
        if rule not in TREATMENTS:
            raise WrongCommand(f"--treat {text}: expected OPERATOR=RULE with RULE one of {', '.join(TREATMENTS)}")
        found[operator] = rule
    return found


def module_of_file(spec):
    path, _, factory = spec.rpartition(":")
    if not os.path.isfile(path):
        raise OSError(f"{path}: no such file; expected torchvision:NAME, shipped:NAME or PATH.py:FACTORY")
    loaded = importlib.util.spec_from_file_location("captured", path)
    code = importlib.util.module_from_spec(loaded)
    sys.path.insert(1, os.path.dirname(os.path.abspath(path)))
    loaded.loader.exec_module(code)
    if not hasattr(code, factory):
        names = [name for name, item in vars(code).items() if callable(item) and not name.startswith("_")]
        raise WrongCommand(f"{path} has no {factory}; it has {', '.join(names)}")
    return getattr(code, factory)


def factory_of(spec):
    """A function that makes the module, the input it is made for or None, words for people, and its layers."""
    need_torch()
    scheme, _, name = spec.partition(":")
    if scheme == "shipped":
        from shipped import NETWORKS

        if name not in NETWORKS:
            raise WrongCommand(f"no shipped network is called {name}; there are {', '.join(NETWORKS)}")
        network = NETWORKS[name]
        return network.build, network.input, network.description, network.source, network.layers
    if scheme == "torchvision":
        try:
            import torchvision
        except ImportError as problem:
            raise OSError(f"torchvision is not installed ({problem}); apt-get install python3-torchvision") from None
        from shipped import NETWORKS, build_torchvision

        for network in NETWORKS.values():
            if network.torchvision == name:
                return network.build, network.input, network.description, network.source, network.layers
        if not hasattr(torchvision.models, name):
            raise WrongCommand(f"torchvision {torchvision.__version__} has no {name}; --list names some")
        return (lambda: build_torchvision(name)), None, f"{name} of torchvision", f"torchvision.models.{name}", ()
    factory = module_of_file(spec)
    return factory, None, f"{os.path.basename(spec)}, captured", os.path.basename(spec), ()


def record(torch, build, sizes, ids, batch):
    from recorder import Recorder, on_meta
    from operators import CannotCapture

    module = build()
    if not isinstance(module, torch.nn.Module):
        raise CannotCapture(f"the factory returned {type(module).__name__}; it must return a torch.nn.Module")
    frozen = [name for name, parameter in module.named_parameters() if not parameter.requires_grad]
    if frozen:
        raise CannotCapture(f"parameter {frozen[0]} is frozen (requires_grad is False); networks whose every "
                            f"parameter is trained are described")
    module = on_meta(module).train()
    kind = torch.long if ids else torch.float32
    recorder = Recorder(module)
    try:
        return recorder.run([torch.zeros((batch, *sizes), dtype=kind, device="meta")])
    except Exception as problem:
        where = recorder.callers[-1] if recorder.callers else ("", module, 0)
        place = where[0] or "(the module itself)"
        raise CannotCapture(f"module {place} ({type(where[1]).__name__}) does not run with "
                            f"a batch of {'x'.join(map(str, sizes))}: {str(problem).splitlines()[0]}; say what it "
                            f"reads with --input, and capture a module that looks at no values") from None


def capture(build, sizes, ids=False, description="", source="", layers=(), treat=None, loss=True):
    """The table of a module, checked against the module's own count of parameters."""
    torch = need_torch()
    from layer_table import Network
    from layers import table_of
    from operators import CannotCapture
    from rows import Tracker

    recordings = [record(torch, build, sizes, ids, batch) for batch in BATCHES]
    tracker = Tracker(*recordings, *BATCHES, treat)
    outputs = [tracker.node(value) for value in recordings[0].outputs if loss and value.floating]
    blocks, chain = table_of(tracker.rows, outputs, sizes, layers)
    table = {"description": description, "source": source, "kind": "layers"}
    table["input"] = {"image_size": list(sizes)} if len(sizes) == 3 else {"shape": list(sizes)}
    table["parameters"] = table["multiply_adds"] = 0
    if blocks:
        table["blocks"] = blocks
    table["layers"] = chain
    counted = Network({key: value for key, value in table.items() if key not in ("parameters", "multiply_adds")})
    table["parameters"], table["multiply_adds"] = counted.parameters(), counted.multiply_adds()
    own = sum(parameter.numel() for parameter in recordings[0].module.parameters())
    if own != table["parameters"]:
        raise CannotCapture(f"the rows hold {table['parameters']} parameters, the module {own}; "
                            f"this is a mistake of the capture")
    return table


def write(text, path):
    if path is None:
        sys.stdout.write(text)
        return
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)


def capture_shipped(names, folder):
    need_torch()
    from layers import text_of
    from shipped import NETWORKS

    for name in names or NETWORKS:
        if name not in NETWORKS:
            raise WrongCommand(f"no shipped network is called {name}; --list names them")
        network = NETWORKS[name]
        table = capture(network.build, network.input, False, network.description, network.source, network.layers)
        path = os.path.join(folder, name + ".json")
        write(text_of(table), path)
        print(f"{path}: {table['parameters']} parameters, {table['multiply_adds']} multiply-adds, "
              f"{len(table['layers'])} layers")


def list_networks():
    from shipped import NETWORKS

    for name, network in NETWORKS.items():
        print(f"{name:20} {'x'.join(map(str, network.input)):10} {network.description}")


def parsed(words):
    parser = argparse.ArgumentParser(prog="torch_capture.py", formatter_class=argparse.RawDescriptionHelpFormatter,
                                     description=__doc__.split("\n\nMODULE")[0].split("\n")[0],
                                     epilog="Exit codes: 0 done, 2 wrong command line, 3 a module that cannot be "
                                            "described, 4 file or environment problem.")
    parser.add_argument("module", nargs="*", metavar="MODULE",
                        help="torchvision:NAME, shipped:NAME or PATH.py:FACTORY (a function without arguments)")
    parser.add_argument("-o", "--output", metavar="FILE", help="the file to write; without: standard output")
    parser.add_argument("--input", metavar="SIZES",
                        help=f"of one sample: 3x224x224, or ids:128 for token numbers (default: {DEFAULT_INPUT})")
    parser.add_argument("--layers", metavar="NAMES", default="",
                        help="modules that are one layer each, by name and separated by commas")
    parser.add_argument("--treat", metavar="OPERATOR=RULE", action="append", default=[],
                        help="what an operator without a rule is like; may be given several times")
    parser.add_argument("--no-loss", action="store_true", help="the module computes its loss itself, or has none")
    parser.add_argument("--list", action="store_true", help="list the networks that are shipped")
    parser.add_argument("--shipped", action="store_true", help="write the shipped networks anew into the folder of -o")
    return parser.parse_args(words)


def run(words):
    options = parsed(words)
    if options.list:
        return list_networks()
    if options.shipped:
        folder = options.output or os.path.join(HERE, "..", "..", "configs", "models")
        return capture_shipped(options.module, os.path.normpath(folder))
    if len(options.module) != 1:
        raise WrongCommand("expected one MODULE: torchvision:resnet50, shipped:unet or path/to/file.py:factory")
    if ":" not in options.module[0]:
        raise WrongCommand(f"{options.module[0]}: expected torchvision:NAME, shipped:NAME or PATH.py:FACTORY")
    treat = treatments(options.treat)
    build, own_input, description, source, own_layers = factory_of(options.module[0])
    sizes, ids = input_sizes(options.input or "x".join(map(str, own_input or input_sizes(DEFAULT_INPUT)[0])))
    layers = [name for name in options.layers.split(",") if name] or own_layers
    table = capture(build, sizes, ids, description, source, layers, treat, not options.no_loss)
    from layers import text_of

    write(text_of(table), options.output)
    if options.output:
        print(f"{options.output}: {table['parameters']} parameters, {table['multiply_adds']} multiply-adds, "
              f"{len(table['layers'])} layers")
    return None


def main():
    try:
        run(sys.argv[1:])
    except WrongCommand as problem:
        print(f"torch_capture.py: {problem}", file=sys.stderr)
        return WRONG_COMMAND
    except OSError as problem:
        print(f"torch_capture.py: {problem}", file=sys.stderr)
        return ENVIRONMENT
    except Exception as problem:
        from operators import CannotCapture

        if not isinstance(problem, CannotCapture):
            raise
        print(f"torch_capture.py: {problem}", file=sys.stderr)
        return WRONG_MODULE
    return DONE


if __name__ == "__main__":
    sys.exit(main())
