"""Running the program under test, for the scripts beside this file."""

import os
import subprocess
import sys
import tempfile

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


class Cases:
    """The cases of a script: `case` decorates a function, whose docstring is the test's name.

    usage of the script: --list | PROGRAM CASE
    """

    def __init__(self):
        self.program = sys.argv[1]
        self.functions = []

    def __call__(self, function):
        self.functions.append(function)
        return function

    def expect(self, code, *words, **options):
        """Runs the program; the exit code is as expected. Returns the texts of both streams."""
        done = run(self.program, *words, **options)
        out, err = (stream.decode() if stream is not None else "" for stream in (done.stdout, done.stderr))
        require_equal(done.returncode, code, f"exit code of {words}; standard error: {err}")
        return out, err

    def main(self):
        if self.program == "--list":
            print("\n".join(f"{function.__name__}={function.__doc__}" for function in self.functions))
            return
        function = next(function for function in self.functions if function.__name__ == sys.argv[2])
        with tempfile.TemporaryDirectory() as folder:
            function(os.path.realpath(folder))


def require_one_line(err, *parts):
    require_equal(err.count("\n"), 1, f"lines on standard error: {err!r}")
    for part in parts:
        require(part in err, f"{part!r} is not in {err!r}")


def require(condition, message):
    if not condition:
        raise AssertionError(message)


def require_equal(got, expected, what):
    require(got == expected, f"{what}: got {got!r}, expected {expected!r}")
