"""What is installed: works from anywhere, names nothing of the machine that built it, and is hardened.

usage: install_cases.py --list | PROGRAM BUILD CASE
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def require(condition, message):
    if not condition:
        raise AssertionError(message)


def output(*words, **options):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=300, **options)
    require(done.returncode == 0, f"{words}: {done.returncode}\n{done.stderr.decode()}")
    return done.stdout.decode()


@case
def installed(program, build, folder):
    """An installed program finds its presets, its manual and its completion lie where shells look"""
    prefix = os.path.join(folder, "usr")
    output("cmake", "--install", build, "--prefix", prefix)
    for path in ("bin/trainyard", "share/trainyard/configs/gpus", "share/trainyard/configs/scenario.schema.json",
                 "share/man/man1/trainyard.1", "share/bash-completion/completions/trainyard",
                 "share/zsh/vendor-completions/_trainyard", "share/fish/vendor_completions.d/trainyard.fish",
                 "share/doc/trainyard/README.md"):
        require(os.path.exists(os.path.join(prefix, path)), f"{path} is not installed")
    with open(os.path.join(folder, "my.json"), "w", encoding="utf-8") as file:
        file.write('{"version": 1, "name": "my", "model": {"preset": "gpt-1.7b"}, "cluster": {"node": '
                   '{"preset": "dgx-a100-80gb"}}, "training": {"global_batch": 64, "micro_batch": 8, '
                   '"sequence_length": 1024, "precision": {"compute": "bf16"}, "optimizer": {"type": "adam"}}}')
    environment = {"PATH": "/usr/bin:/bin", "HOME": folder}
    installed_at = os.path.join(prefix, "bin", "trainyard")
    here = output(installed_at, "run", "my.json", "--json", cwd=folder, env=environment)
    require(here == output(program, "run", "my.json", "--json", cwd=folder, env=environment), "another result")
    require("a100" in output(installed_at, "presets", cwd=folder, env=environment), "no presets")


@case
def packaged(program, build, folder):
    """The Debian package holds the program and names the libraries it needs"""
    if shutil.which("cpack") is None or shutil.which("dpkg-shlibdeps") is None:
        print("skipped: no cpack or dpkg-shlibdeps")
        return
    output("cpack", "--config", os.path.join(build, "CPackConfig.cmake"), "-B", folder)
    packages = [name for name in os.listdir(folder) if name.endswith(".deb")]
    require(len(packages) == 1, str(packages))
    path = os.path.join(folder, packages[0])
    fields = output("dpkg-deb", "--field", path)
    for expected in (r"Package: trainyard", r"Depends: .*libfmt", r"Section: science", r"Description: ."):
        require(re.search(f"^{expected}", fields, re.M), f"'{expected}' is not in {fields}")
    files = output("dpkg-deb", "--contents", path)
    for expected in ("./usr/bin/trainyard", "./usr/share/trainyard/configs/models/",
                     "./usr/share/man/man1/trainyard.1"):
        require(expected in files, f"{expected} is not in the package")
    require("/home/" not in files and "./root" not in files, files)


@case
def hardened(program, build, folder):
    """The program is position independent with full RELRO, stack canaries, checked copies and CET"""
    header = output("readelf", "--wide", "--file-header", "--program-headers", "--dynamic", "--notes", program)
    require(re.search(r"Type:\s+DYN", header), "not position independent")
    require("GNU_RELRO" in header and re.search(r"FLAGS.*NOW", header), "no full RELRO")
    require(re.search(r"GNU_STACK\s+\S+\s+\S+\s+\S+\s+\S+\s+\S+\s+RW\s", header), "the stack can be executed")
    symbols = output("readelf", "--wide", "--dyn-syms", program)
    require("__stack_chk_fail" in symbols, "no stack protector")
    require(re.search(r"__\w+_chk\b", symbols.replace("__stack_chk_fail", "")), "no checked copies")
    if os.uname().machine == "x86_64":
        require("endbr64" in output("objdump", "--disassemble=main", program), "no landing pads")


@case
def no_paths(program, build, folder):
    """No path of the machine that built the program stands in it"""
    with open(program, "rb") as file:
        content = file.read()
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    for path in (source, os.path.realpath(build)):
        require(path.encode() not in content, f"{path} stands in the program")


def main():
    if sys.argv[1:] == ["--list"]:
        print("\n".join(f"{name}={function.__doc__}" for name, function in CASES.items()))
        return
    program, build, name = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        CASES[name](os.path.abspath(program), os.path.abspath(build), folder)


if __name__ == "__main__":
    main()
