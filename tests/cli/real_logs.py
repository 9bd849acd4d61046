"""Imports files that other people have published, and prints a table of what became of each.

    real_logs.py PROGRAM [FOLDER]

FOLDER (else the environment's TRAINYARD_IMPORTS) holds logs of nccl-tests (*.log), outputs of nvidia-smi topo -m
(*.txt) and NCCL's topologies (*.xml), in any folders below it. Without one nothing is tested, and this ends with 77.
What an import asks for is given as its hint says, until it is read or refused for another reason. A refusal must say
where or what to do; nothing may end otherwise.
"""
import os
import re
import sys

from process import run

# What an import asks for and cannot propose itself. One server is always a possible number of them.
ANSWERS = {"--gpu": "h100-sxm5-80gb", "--servers": "1", "--intra": "nvswitch", "--nic-bandwidth": "100Gbps"}
KINDS = {".log": "nccl-tests", ".txt": "server", ".xml": "server"}


def answer(option, hint):
    """The value that a hint proposes: 'add --ranks 128', 'add --collective NAME; the columns fit all-gather or ...'."""
    if option == "--ranks":
        number = re.search(r"add --ranks (?:N: )?(\d+)", hint)
        return number.group(1) if number else None
    if option == "--collective":
        first = re.search(r"the columns fit ([a-z-]+)", hint)
        return first.group(1) if first else None
    return ANSWERS.get(option)


def ask(program, path):
    """(exit code, options that were given, the first error)."""
    given = {}
    while True:
        words = [word for option in given.items() for word in option]
        done = run(program, "import", KINDS[os.path.splitext(path)[1]], path, *words)
        errors = [line for line in done.stderr.decode().splitlines() if ": error: " in line]
        wanted = {}
        for line in errors:
            for option in re.findall(r"add (--[a-z-]+)", line):
                value = answer(option, line)
                if option not in given and value is not None:
                    wanted[option] = value
        if done.returncode != 3 or not wanted:
            return done.returncode, given, errors[0] if errors else ""
        given.update(wanted)


def main():
    program = sys.argv[1]
    folder = sys.argv[2] if len(sys.argv) > 2 else os.environ.get("TRAINYARD_IMPORTS", "")
    if not os.path.isdir(folder):
        print("TRAINYARD_IMPORTS names no folder")
        return 77
    paths = sorted(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names
                   if os.path.splitext(name)[1] in KINDS)
    counts, wrong = {"read": 0, "refused": 0}, 0
    for path in paths:
        code, given, error = ask(program, path)
        name = os.path.relpath(path, folder)
        if code == 0:
            counts["read"] += 1
            print(f"{name}\tread\t{' '.join(f'{option} {value}' for option, value in given.items())}")
            continue
        counts["refused"] += 1
        located = re.search(r":\d+:\d+: error: ", error) or "; " in error
        if code != 3 or not located:
            wrong += 1
            error = f"WRONG, exit {code}: {error}"
        print(f"{name}\trefused\t{error.split(': error: ')[-1]}")
    print(f"{counts['read']} read, {counts['refused']} refused, {wrong} without a reason")
    return 1 if wrong or not paths else 0


sys.exit(main())
