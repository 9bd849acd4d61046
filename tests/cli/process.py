"""Running the program under test, for the scripts beside this file."""

import os
import subprocess

# Nothing of the caller's environment may show in a result.
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TERM": "dumb"}
for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
    if name in os.environ:
        ENVIRONMENT[name] = os.environ[name]


def run(program, *words, cwd=None, environment=None, **options):
    """Runs the program to its end; stdout and stderr as bytes."""
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.PIPE)
    return subprocess.run([program, *words], cwd=cwd, env={**ENVIRONMENT, **(environment or {})},
                          stdin=subprocess.DEVNULL, timeout=300, check=False, **options)


def tree(folder):
    """{relative path: bytes} of all files below a folder."""
    files = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            with open(path, "rb") as file:
                files[os.path.relpath(path, folder)] = file.read()
    return files


def require(condition, message):
    if not condition:
        raise AssertionError(message)


def require_equal(got, expected, what):
    require(got == expected, f"{what}: got {got!r}, expected {expected!r}")
