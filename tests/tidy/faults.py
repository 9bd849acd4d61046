"""Known faults: (rule, the files that have it, what the complaint says). GOOD has none."""

import json

import rules

FROM = {key: "x" for key in rules.PROVENANCE}
GOOD = {
    "tests/tidy/layers.txt": "sim/base :\nsim/engine : sim/base\nmodels : sim/base\ntopologies : sim/base\n"
                             "cli/report : sim/base\ncli : *\ntests : *\n",
    "sim/engine/CMakeLists.txt": "trainyard_library(engine SOURCES engine.cpp)",
    "sim/engine/engine.cpp": '#include "sim/engine/engine.h"\n#include <fmt/format.h>\n'
                             '// knows no GPU; stderr, std::exp(1), #include <random>\n'
                             'int f() { return g("gpu pow(2) printf"); }\n',
    "sim/engine/engine.h": "// What it is.\n#pragma once\n\nstd::int64_t kMany = 1'000'000;\n",
    "cli/CMakeLists.txt": "trainyard_library(cli SOURCES one.cpp two.cpp)",
    "cli/one.cpp": "namespace a {\nclass Work;\nnamespace {\nstruct Work {};\n}\n"
                   "struct One {\n  struct Work {};\n};\n}\n",
    "cli/two.cpp": "namespace a {\nvoid f() {\n  using Work = int;\n}\nstruct Work {\n  int f(int);\n};\n}\n",
    "topologies/CMakeLists.txt": "trainyard_library(topologies SOURCES graph.cpp)",
    "topologies/graph.cpp": "#include <boost/graph/adjacency_list.hpp>\n",
    "configs/profiles/a.json": json.dumps({"name": "a", "gemm": [{"x": 1, "from": FROM}], "launch": {"from": FROM}}),
    "configs/scenarios/one.json": "{}",
    "tests/cli/scenarios.txt": "# name command code\none run 0\n",
}

ENGINE = "sim/engine/engine.cpp"
FAULTS = [
    (rules.layers, {ENGINE: '#include "models/layer/kernel.h"\n'}, "engine.cpp:1: sim/engine may not include"),
    (rules.layers, {"plots/a.cpp": "\n"}, "no row"),
    (rules.layers_are_acyclic, {"tests/tidy/layers.txt": "sim/base : sim/base\n"}, "includes itself"),
    (rules.private_headers, {ENGINE: "#include <boost/graph/graph_traits.hpp>\n"}, "Boost stays inside"),
    (rules.private_headers, {"topologies/graph.h": "#include <boost/graph/graph_traits.hpp>\n"}, "Boost stays inside"),
    (rules.private_headers, {"cli/report/text.cpp": "#include <nlohmann/json.hpp>\n"}, "*_json.cpp"),
    (rules.private_headers, {"cli/run.cpp": "\n#include <CLI/CLI.hpp>\n"}, "run.cpp:2"),
    (rules.private_headers, {"models/a.cpp": "#include <cuda_runtime.h>\n"}, "CUDA"),
    (rules.private_headers, {"cli/run.cpp": "#include <spawn.h>\n"}, "the probe"),
    (rules.private_headers, {ENGINE: "#include <random>\n"}, "distributions"),
    (rules.private_headers, {ENGINE: "#include <unordered_map>\n"}, "order"),
    (rules.engine_vocabulary, {ENGINE: "int gpu_count = 8;\n"}, "gpu_count"),
    (rules.exact_arithmetic, {ENGINE: "// power\ndouble f() { return std::pow(2.0, x); }\n"}, "engine.cpp:2: pow"),
    (rules.exact_arithmetic, {"cli/report/text.cpp": "auto d = log10(x);\n"}, "log10"),
    (rules.silence, {ENGINE: 'void f() { fmt::print("x"); }\n'}, "fmt::print"),
    (rules.silence, {"cli/report/text.cpp": 'std::cout << "x";\n'}, "std::cout"),
    (rules.tests_in_proportion, {"tests/a.cpp": "// Approx\nCHECK(x == doctest::Approx(1e-3).epsilon(0.1));\n"},
     "a.cpp:2: Approx"),
    (rules.width, {ENGINE: "x" * 101 + "\n"}, "101 columns"),
    (rules.size, {ENGINE: "int x;\n" * 501}, "501 lines"),
    (rules.size, {ENGINE: "void f() {\n" + "  g();\n" * 70 + "}\n"}, "a function of 71 lines"),
    (rules.types_once, {ENGINE: "namespace a::b {\nstruct Work final : Base {\n  int i = f({});\n};\n}\n",
                        "cli/a.cpp": "namespace a {\nnamespace b {\nusing Work = int;\n}\n}\n"}, "a::b::Work"),
    (rules.small_folders, {f"sim/base/{i}.h": "" for i in range(26)}, "sim/base: 26 sources"),
    (rules.few_methods, {ENGINE: "class God {\n public:\n  God();\n  virtual ~God() = default;\n  int x = f(1);\n"
                                 + "".join(f"  void do{i}(int i = g({{i}})) const {{ h(); }}\n" for i in range(25))
                                 + "  bool operator==(const God&) const = default;\n};\n"}, "God has 26 methods"),
    (rules.built, {"sim/engine/forgotten.cpp": "\n"}, "forgotten.cpp: is in no"),
    (rules.built, {"sim/engine/forgotten.h": "// It.\n#pragma once\n"}, "nobody includes it"),
    (rules.headers_once, {"sim/engine/a.h": "// It.\n"}, "pragma"),
    (rules.headers_once, {"sim/engine/a.h": "\n#pragma once\n"}, "comment"),
    (rules.provenance, {"configs/profiles/b.json": json.dumps({"gemm": [{"x": 1, "from": {**FROM, "date": ""}}]})},
     "/gemm/0/from/date"),
    (rules.words, {"docs/a.md": "TODO: later\n"}, "docs/a.md:1: TODO"),
    (rules.words, {"docs/a.md": "see /work/main\n"}, "/work/"),
    (rules.scenarios, {"configs/scenarios/two.json": "{}"}, "two.json"),
    (rules.scenarios, {"configs/scenarios/guide/two.json": "{}"}, "guide/two.json"),
    (rules.scenarios, {"tests/cli/scenarios.txt": "one run 0\nthree run 0\n"}, "three"),
    (rules.gallery, {"configs/scenarios/guide/two.json": "{}", "docs/guide/pictures.txt": "two run time 9\n"},
     "two.json"),
    (rules.gallery, {"configs/scenarios/guide/two.json": "{}", "docs/guide/a.md": "![](pictures/two.png)\n"},
     "two.json"),
    (rules.readme_errors, {"README.md": "\n| vTrain, some | 55 | mean 8.2 %, median 6.8 % |\n",
                           "docs/validation.md": "| `vtrain-multi-node` | 55 | 8.2 % | 6.7 % | -34.7 % | -1.1 % |\n"},
     "README.md:2: median 6.8 %"),
    (rules.readme_errors, {"README.md": "| vTrain | mean 8.2 % |\n"}, "README.md:1: mean 8.2 %"),
]
