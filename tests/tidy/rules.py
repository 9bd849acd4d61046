"""The house rules that a compiler does not know. A rule is a function from the project's text files
({path: text}) to complaints; its docstring is the sentence that the test is called by."""

import json
import posixpath
import re

HEADERS = (".h", ".cuh")
CODE = (".cpp", ".cu") + HEADERS
PRODUCT = ("sim/", "models/", "topologies/", "calibrate/", "cli/")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)

# header prefix, the only files that may include it, why
PRIVATE_HEADERS = [
    ("boost/", r"(topologies/[^/]+|calibrate/import/xml)\.cpp",
     "Boost stays inside topologies/*.cpp, for graphs, and calibrate/import/xml.cpp"),
    ("nlohmann/", r"(sim|models|topologies|calibrate|cli)/.*_json\.cpp", "JSON is read and written in *_json.cpp"),
    ("CLI/", r"cli/(main|commands/options)\.cpp",
     "CLI11 takes seconds to compile: cli/main.cpp and cli/commands/options.cpp only"),
    ("cuda", r"calibrate/probe/.*", "CUDA is for the probes only"),
    ("nccl", r"calibrate/probe/.*", "NCCL is for the probes only"),
    ("spawn.h", r"cli/child_process\.cpp", "the only program that is started is the probe, by cli/child_process.cpp"),
    ("random", r"(?!)", "its distributions differ between libraries; use sim/base/random.h"),
    ("unordered_map", r"(?!)", "its order differs between libraries; use std::map or a sorted vector"),
    ("unordered_set", r"(?!)", "its order differs between libraries; use std::set or a sorted vector"),
    ("iostream", r"(?!)", "nobody prints but cli, through cli/console.h"),
    ("ranges", r"(?!)", "clang 14 cannot compile the views of libstdc++ 12"),
    ("format", r"(?!)", "gcc 12 has no std::format; use fmt"),
]

# Exact in every C library: sqrt is correctly rounded by IEEE 754, the others do not round.
INEXACT = re.compile(
    r"\b(?:std::)?(exp|exp2|expm1|log|log2|log10|log1p|pow|cbrt|hypot|sin|cos|tan|asin|acos|atan|atan2|"
    r"sinh|cosh|tanh|asinh|acosh|atanh|erf|erfc|tgamma|lgamma)[fl]?\s*\("
)
# Fits end as text in a profile; probes measure.
INEXACT_ALLOWED = ("sim/base/power.cpp", "calibrate/fit/", "calibrate/probe/")

PRINTING = re.compile(r"\b(fmt::print|std::cout|std::cerr|std::clog|v?f?printf|f?puts|putchar|stderr|stdout)\b")
PRINTING_ALLOWED = ("sim/base/check.h",)  # says why the program dies

PROVENANCE = ("source", "machine", "date", "samples", "residual", "basis")
BANNED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|/work/|\bissue #\d|\bsessions?\b", re.I)
WIDTH = 100
FILE_LINES = 500
FUNCTION_LINES = 70
TEST_LINES = 75  # of a function
METHODS = 25
FOLDER_SOURCES = 25


def code_only(text):
    """The text without comments and string contents; line breaks stay."""
    pattern = re.compile(
        r'R"(?P<d>[^()\s\\]*)\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*.*?\*/', re.S
    )

    def blank(match):
        token = match.group()
        kept = '""' if token.startswith(('"', "R")) else ""
        return kept + "\n" * token.count("\n")

    # A quote between digits is a separator (1'000), no character.
    return pattern.sub(blank, re.sub(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])", "", text))


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def code_files(files, product_only=True):
    for path, text in sorted(files.items()):
        if path.endswith(CODE) and (path.startswith(PRODUCT) or not product_only):
            yield path, text


def includes(text):
    """(line, is_system, header) of every include that is not in a comment."""
    # Strings are blanked by code_only, and a header's name is one: look where the directive survives.
    lines = text.splitlines()
    for number, line in enumerate(code_only(text).splitlines(), 1):
        if re.match(r"\s*#\s*include\b", line):
            match = INCLUDE.match(lines[number - 1])
            if match:
                yield number, match.group(1) == "<", match.group(2)


def read_layers(text):
    layers = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            room, _, may = line.partition(":")
            layers[room.strip()] = may.split()
    return layers


def room_of(path, layers):
    rooms = [room for room in layers if path.startswith(room + "/")]
    return max(rooms, key=len) if rooms else None


def layers(files):
    """Every include obeys the layer table."""
    table = read_layers(files["tests/tidy/layers.txt"])
    for path, text in code_files(files, product_only=False):
        room = room_of(path, table)
        if room is None:
            yield f"{path}: its folder has no row in tests/tidy/layers.txt"
            continue
        for number, is_system, header in includes(text):
            target = room_of(header, table)
            if is_system or target is None or target == room or "*" in table[room] or target in table[room]:
                continue
            yield f"{path}:{number}: {room} may not include {header}"


def layers_are_acyclic(files):
    """The layer table has no cycle."""
    table = read_layers(files["tests/tidy/layers.txt"])
    done = set()
    while True:
        ready = [r for r in table if r not in done and all(t in done for t in table[r] if t != "*")]
        if not ready:
            break
        done.update(ready)
    for room in sorted(set(table) - done):
        yield f"tests/tidy/layers.txt: {room} includes itself by way of others, or a folder without a row"


def private_headers(files):
    """Headers of other projects stay in the files that they are for."""
    for path, text in code_files(files):
        for number, is_system, header in includes(text):
            for prefix, allowed, why in PRIVATE_HEADERS:
                exact = "/" in prefix or prefix in ("cuda", "nccl")
                hit = header.startswith(prefix) if exact else header == prefix
                if is_system and hit and not re.fullmatch(allowed, path):
                    yield f"{path}:{number}: <{header}>: {why}"


def engine_vocabulary(files):
    """The engine's code knows neither GPUs nor networks nor file formats."""
    words = re.compile(r"\w*(gpu|transformer|json|cuda|nccl|gemm|layer)\w*", re.I)
    for path, text in code_files(files):
        if path.startswith("sim/engine/"):
            code = code_only(text)
            for match in words.finditer(code):
                yield f"{path}:{line_of(code, match.start())}: {match.group()}"


def exact_arithmetic(files):
    """Nothing but exact functions of the C library is called in the product."""
    for path, text in code_files(files):
        if path.startswith(INEXACT_ALLOWED):
            continue
        code = code_only(text)
        for match in INEXACT.finditer(code):
            if not re.search(r"(\.|->)\s*$", code[: match.start()]):
                yield f"{path}:{line_of(code, match.start())}: {match.group(1)}: results differ between C libraries"


def silence(files):
    """Nobody below cli prints."""
    for path, text in code_files(files):
        if path in PRINTING_ALLOWED or path.startswith("calibrate/probe/"):
            continue
        code = code_only(text)
        for match in PRINTING.finditer(code):
            yield f"{path}:{line_of(code, match.start())}: {match.group()}"


def tests_in_proportion(files):
    """Tests compare numbers in proportion, by tests/support/about.h."""
    for path, text in code_files(files, product_only=False):
        code = code_only(text)
        for match in re.finditer(r"\bApprox\b", code):
            yield f"{path}:{line_of(code, match.start())}: Approx allows the share of 1 + |x|: take about()"


def width(files):
    """Lines have at most 100 columns."""
    for path, text in sorted(files.items()):
        if path.endswith(CODE + (".cmake", ".py", ".sh", "CMakeLists.txt")) or path in ("dev", ".ci/run"):
            for number, line in enumerate(text.splitlines(), 1):
                limit = WIDTH if path.endswith(CODE) else WIDTH + 20
                if len(line) > limit:
                    yield f"{path}:{number}: {len(line)} columns"


def size(files):
    """Files and functions can be read at one sitting."""
    for path, text in code_files(files, product_only=False):
        lines = code_only(text).splitlines()
        if len(lines) > FILE_LINES:
            yield f"{path}: {len(lines)} lines"
        most = FUNCTION_LINES if path.startswith(PRODUCT) else TEST_LINES
        begin = None
        for number, line in enumerate(lines, 1):
            if re.match(r"[^\s#}].*\{$", line) and not re.match(r"(namespace|struct|class|enum|union)\b", line):
                begin = number
            if line.startswith("}") and begin is not None:
                if number - begin > most and "(" in lines[begin - 1]:
                    yield f"{path}:{begin}: a function of {number - begin} lines"
                begin = None


SCOPE = re.compile(
    r"\bnamespace\s*(?P<space>[\w:]*)\s*\{"
    r"|\b(?:class|struct|enum(?:\s+class)?)\s+(?P<type>\w+)\s*(?:final\s*)?(?::(?!:)[^;{()]*)?\{"
    r"|\busing\s+(?P<alias>\w+)\s*=|\{|(?P<close>\})")


def types(text):
    """(namespaces and classes around it, name, line, body) of every type. The scopes are None where a
    namespace without a name or a function is around it; an alias has no body."""
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", code_only(text), flags=re.M)
    stack = []  # (what was opened, or None; where it is a type: its name and where its body begins)
    for match in SCOPE.finditer(code):
        around = [scope for scope, _, _ in stack]
        around = tuple(around) if all(around) else None
        if match["alias"]:
            yield around, match["alias"], line_of(code, match.start()), ""
        elif not match["close"]:
            stack.append((match["space"] or match["type"], match["type"], match))
        elif stack:
            _, name, opened = stack.pop()
            if name:
                around = around[:-1] if around else None
                yield around, name, line_of(code, opened.start()), code[opened.end():match.start()]


def types_once(files):
    """No two files define a type of one name in one namespace."""
    seen = {}
    for path, text in code_files(files):
        for around, name, line, _ in types(text):
            full = "::".join((*around, name)) if around is not None else None
            if full and seen.setdefault(full, path) != path:
                yield f"{path}:{line}: {full} is defined in {seen[full]} too"


def small_folders(files):
    """No folder has more than 25 sources."""
    counts = {}
    for path, _ in code_files(files):
        folder = posixpath.dirname(path)
        counts[folder] = counts.get(folder, 0) + 1
    for folder, count in counts.items():
        if count > FOLDER_SOURCES:
            yield f"{folder}: {count} sources"


METHOD = re.compile(r"(?P<name>~?\b\w+|\boperator[^\w\s(]+)\s*\((?!\*)")


def methods(name, body):
    """The names of the methods that the body of a class declares. Constructors are none; overloads share one."""
    names = set()
    flat, depth = "", 0
    for character in body:
        depth -= character == "}"
        if depth == 0:
            flat += ";" if character in "{}" else character
        depth += character == "{"
    for declaration in flat.split(";"):
        # Types' own parentheses stand in angle brackets: std::function<void(int)>.
        previous = None
        while previous != declaration:
            previous, declaration = declaration, re.sub(r"<[^<>=]*>", "", declaration)
        declaration = re.sub(r"\b(?:public|private|protected)\s*:|\bdecltype\([^()]*\)|\balignas\([^()]*\)",
                             "", declaration)
        match = METHOD.search(declaration)
        if match is None or re.match(r"\s*(?:friend|using|static_assert|enum)\b", declaration):
            continue
        is_value = "=" in declaration[: match.start()]
        if not is_value and match["name"].lstrip("~") != name:
            names.add(match["name"])
    return names


def few_methods(files):
    """No class has more than 25 methods."""
    for path, text in code_files(files):
        for _, name, line, body in types(text):
            count = len(methods(name, body))
            if count > METHODS:
                yield f"{path}:{line}: {name} has {count} methods"


def built(files):
    """Every source is named in a CMakeLists.txt, every header is included."""
    included = {header for _, text in code_files(files, False) for _, _, header in includes(text)}
    basenames = {header for header in included if "/" not in header}
    compiled = set()
    for path, text in files.items():
        folder, _, name = path.rpartition("/")
        if name == "CMakeLists.txt":
            # What follows ${PROJECT_SOURCE_DIR} starts with a slash, and stands at the root.
            compiled |= {posixpath.normpath(posixpath.join(folder, word)).lstrip("/")
                         for word in re.findall(r"[\w./-]+\.(?:cpp|cu)\b", text)}
    for path, _ in code_files(files, product_only=False):
        name = path.rpartition("/")[2]
        if name.endswith(HEADERS) and path not in included and name not in basenames:
            yield f"{path}: nobody includes it"
        if not name.endswith(HEADERS) and path not in compiled:
            yield f"{path}: is in no CMakeLists.txt"


def headers_once(files):
    """Every header starts with what it is, and has #pragma once."""
    for path, text in code_files(files, product_only=False):
        if path.endswith(HEADERS):
            if "\n#pragma once\n" not in text:
                yield f"{path}: has no #pragma once"
            if path.startswith(PRODUCT) and not text.startswith("//"):
                yield f"{path}: does not start with a comment that says what it is"


def provenance(files):
    """Every group of numbers in a profile says where it comes from."""
    for path, text in sorted(files.items()):
        if not (path.startswith("configs/profiles/") and path.endswith(".json")):
            continue
        for section, value in json.loads(text).items():
            for i, group in enumerate(value if isinstance(value, list) else [value]):
                if not isinstance(group, dict):
                    continue
                for key in PROVENANCE:
                    if not str(group.get("from", {}).get(key, "")).strip():
                        yield f"{path}: /{section}/{i}/from/{key} is missing"


def words(files):
    """No file has a promise without an owner or a path of somebody's machine."""
    for path, text in sorted(files.items()):
        if path.startswith("tests/tidy/") or path == "LICENSE":
            continue
        for match in BANNED.finditer(text):
            yield f"{path}:{line_of(text, match.start())}: {match.group()}"


def scenarios(files):
    """Every shipped scenario stands in the list of those that tests run."""
    listed = {line.split()[0] for line in files.get("tests/cli/scenarios.txt", "").splitlines()
              if line.strip() and not line.startswith("#")}
    shipped = {path[len("configs/scenarios/"):-len(".json")] for path in files
               if re.fullmatch(r"configs/scenarios/(guide/)?[^/]+\.json", path)}
    for name in sorted(shipped - listed):
        yield f"configs/scenarios/{name}.json: has no line in tests/cli/scenarios.txt"
    for name in sorted(listed - shipped):
        yield f"tests/cli/scenarios.txt: {name}: there is no such scenario"


def gallery(files):
    """Every scenario of the guide has its picture on one of the guide's pages."""
    drawn = {line.split()[0] for line in files.get("docs/guide/pictures.txt", "").splitlines()
             if line.strip() and not line.startswith("#")}
    pages = "".join(text for path, text in files.items() if re.fullmatch(r"docs/guide/[^/]+\.md", path))
    for path in sorted(files):
        named = re.fullmatch(r"configs/scenarios/guide/([^/]+)\.json", path)
        if named and (named[1] not in drawn or f"pictures/{named[1]}.png" not in pages):
            yield f"{path}: no line in docs/guide/pictures.txt, or no page that shows its picture"


# What README calls a set of docs/validation.md.
README_SETS = {"Korthikanti": "korthikanti-2022-table5", "Narayanan": "narayanan-2021-table1",
               "vTrain": "vtrain-multi-node", "SimuMax": "simumax-memory"}


def readme_errors(files):
    """README says the errors that docs/validation.md has."""
    tables = files.get("docs/validation.md", "")
    for number, row in enumerate(files.get("README.md", "").splitlines(), 1):
        name = next((name for word, name in README_SETS.items() if row.startswith(f"| {word}")), None)
        if name is None:
            continue
        cells = re.search(rf"^\| `{name}` \|(.*)", tables, re.MULTILINE)
        errors = re.findall(r"([\d.]+) %", cells[1]) if cells else []
        for word, error in re.findall(r"(mean|median|largest) ([\d.]+) %", row):
            place = ["mean", "median", "largest"].index(word)
            if place >= len(errors) or errors[place] != error:
                yield f"README.md:{number}: {word} {error} %, docs/validation.md has {errors[place:place + 1]}"


RULES = [layers, layers_are_acyclic, private_headers, engine_vocabulary, exact_arithmetic, silence,
         tests_in_proportion, width, size, types_once, few_methods, small_folders, built, headers_once, provenance,
         words, scenarios, gallery, readme_errors]
