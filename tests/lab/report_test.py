#!/usr/bin/env python3
"""What the lab reads of a prediction, and what it makes of its rows; without PyTorch and without namespaces.

usage: report_test.py TRAINYARD
"""

import html.parser
import json
import pathlib
import sys
import tempfile
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "calibrate" / "lab"))

import page  # noqa: E402
import predicted  # noqa: E402
import report  # noqa: E402

SCENARIO = {
    "version": 1, "name": "paced",
    "model": {"kind": "layers", "input": {"shape": [1]}, "layers": [
        {"name": f"layer {i}", "ops": [{"op": "time", "forward": "20ms", "backward": "40ms", "micro_batch": 1,
                                        "parameters": 250000, "shape": [10]}] + ([{"op": "loss"}] if i == 2 else [])}
        for i in range(3)]},
    "cluster": {"nodes": 2, "calibration": "none", "node": {
        "gpu": {"name": "paced", "kind": "cpu", "memory": "1GiB", "memory_bandwidth": "100GB/s",
                "peak": {"fp32": "1TFLOP/s"}},
        "gpus": 1, "intra": {"kind": "none"}, "nics": 1, "nic": {"bandwidth": "400Mbps"},
        "host": {"pcie_bandwidth": "100GB/s"}}},
    "training": {"global_batch": 2, "micro_batch": 1, "execution": "eager", "launch_time": "0us",
                 "precision": {"compute": "fp32"}, "optimizer": {"type": "none"}},
    "parallelism": {"dp": 2, "data_parallel": {"bucket_size": "1MB", "first_bucket_size": "1MB"}},
    "simulation": {"fidelity": "flow"}}


def reads_the_slices_of_a_trace(trainyard, folder):
    path = folder / "paced.json"
    path.write_text(json.dumps(SCENARIO), encoding="utf-8")
    found, slices = predicted.predict(trainyard, path, folder / "out")
    computed = sum(end - begin for _, lane, name, begin, end, _ in slices if lane == "compute" and "layer" in name)
    assert abs(computed - 0.18) < 1e-6, computed
    buckets = [s for s in slices if s[1] == "data parallel" and s[2].startswith("all-reduce")]
    assert [s[5] for s in buckets] == [1_000_000] * 3, buckets
    # The gradients of the last layer are there after its backward pass, and 1 MB at 50 MB/s takes 20 ms.
    assert [round(s[3], 4) for s in buckets] == [0.1, 0.14, 0.18], buckets
    assert all(abs(s[4] - s[3] - 0.02) < 1e-4 for s in buckets), buckets
    assert all(s[0].startswith("rank 0") for s in slices if s[1] == "compute"), slices
    assert predicted.stand_ins(trainyard, path) == {0: 0, 1: 0}
    path.write_text(json.dumps({**SCENARIO, "perturbations": {"stragglers": [
        {"select": {"rank": 0}, "compute_slowdown": 2}]}}), encoding="utf-8")
    assert predicted.stand_ins(trainyard, path) == {0: 0, 1: 1}
    assert abs(max(s[4] for s in slices) - found["step_time_s"]) < 1e-6, found["step_time_s"]
    return slices


def refuses_with_the_words_of_the_program(trainyard, folder):
    path = folder / "wrong.json"
    path.write_text(json.dumps({**SCENARIO, "parallelism": {"dp": 3}}), encoding="utf-8")
    try:
        predicted.predict(trainyard, path, folder / "wrong")
    except predicted.PredictionError as error:
        assert "/parallelism" in str(error), error
    else:
        raise AssertionError("three ranks on two hosts were predicted")


class Tags(html.parser.HTMLParser):
    """Open tags of a page, and those that were closed in another order."""

    def __init__(self):
        super().__init__()
        self.open, self.wrong, self.all = [], [], []

    def handle_starttag(self, tag, attrs):
        self.all.append(tag)
        if tag not in ("meta", "br", "link", "input", "hr", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def row_of(slices, name, group, error):
    experiment = types.SimpleNamespace(name=name, group=group, topology="star", ranks=2, what="a < b",
                                       set="paced, no shared cable", quantity="s", servers=0)
    spans = [(0, "layer 0 forward", "compute", 0.0, 0.06), (0, "all-reduce", "data", 0.1, 0.12),
             (1, "layer 0 forward", "compute", 0.0, 0.06)]
    return types.SimpleNamespace(experiment=experiment, predicted=0.2 * (1 + error), measured=[0.19, 0.2, 0.21],
                                 median=0.2, error=error, spans=spans, slices=slices)


def results_of(rows):
    return {"facts": {"date": "2026-01-02", "cores": 2, "kernel": "6.1", "scheduling": "real time", "netem": False},
            "messages": {"efficiency": 0.95},
            "summaries": {"paced, no shared cable": {"rows": len(rows), "mape": 0.02, "median": 0.02, "worst": 0.03,
                                                     "worst_name": rows[0].experiment.name}},
            "rows": [{"name": r.experiment.name, "what": r.experiment.what, "topology": "star", "ranks": 2,
                      "quantity": "s", "measured": 0.2, "least": 0.19, "most": 0.21, "predicted": r.predicted,
                      "error": r.error} for r in rows],
            "skipped": [{"name": "lost", "why": "no <netem>"}]}


def draws_a_page_without_scripts(slices):
    rows = [row_of(slices, "ring-2", "all-reduce", 0.03), row_of(slices, "ddp<2>", "DDP", -0.01)]
    text = report.page(rows, results_of(rows))
    tags = Tags()
    tags.feed(text)
    assert not tags.wrong and not tags.open, (tags.wrong, tags.open)
    assert "script" not in tags.all and "ddp<2>" not in text and "ddp&lt;2&gt;" in text
    assert "no &lt;netem&gt;" in text and "default-src 'none'" in text
    assert text == report.page(rows, results_of(rows))


def writes_the_table_between_its_markers(slices, folder):
    rows = [row_of(slices, "ring-2", "all-reduce", 0.03)]
    results, document = folder / "results.json", folder / "lab.md"
    results.write_text(json.dumps(results_of(rows)), encoding="utf-8")
    document.write_text(f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n", encoding="utf-8")
    sys.argv = ["page.py", str(results), str(document)]
    page.main()
    once = document.read_text(encoding="utf-8")
    assert once.startswith("before\n") and once.endswith("\nafter\n") and "old" not in once, once
    assert "| `ring-2` | a < b | star | 2 | 200.0 ms | 190.0 ms to 210.0 ms | 206.0 ms | +3.0 % |" in once, once
    assert "Not measured: `lost`" in once, once
    page.main()
    assert document.read_text(encoding="utf-8") == once


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        slices = reads_the_slices_of_a_trace(sys.argv[1], folder)
        refuses_with_the_words_of_the_program(sys.argv[1], folder)
        draws_a_page_without_scripts(slices)
        writes_the_table_between_its_markers(slices, folder)
    print("lab: 4 cases pass")


if __name__ == "__main__":
    main()
