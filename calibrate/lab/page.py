#!/usr/bin/env python3
"""Writes the table of a run of the lab (out/lab/results.json) into docs/lab.md, between its two markers.

usage: page.py RESULTS.json docs/lab.md
"""

import json
import sys

BEGIN, END = "<!-- table: written by calibrate/lab/page.py -->", "<!-- end of the table -->"


def _value(row, value):
    if row["quantity"] == "s":
        return f"{value * 1e3:,.1f} ms" if value < 10 else f"{value:.2f} s"
    return f"{value:.2f}"


def table_of(results):
    """Markdown: a line of facts, the summaries, and a row for each experiment."""
    facts = results["facts"]
    lines = [f"{facts['date']}, {facts['cores']} cores, Linux {facts['kernel']}, ranks in {facts['scheduling']}. "
             f"Messages: {results['messages']['efficiency'] * 100:.1f} % of the line.", "",
             "| set | rows | mean error | median | largest |", "|---|---|---|---|---|"]
    for title, found in results["summaries"].items():
        lines.append(f"| {title} | {found['rows']} | {found['mape'] * 100:.1f} % | {found['median'] * 100:.1f} % | "
                     f"{found['worst'] * 100:.1f} % (`{found['worst_name']}`) |")
    lines += ["", "| experiment | what | network | ranks | measured | least to most | predicted | error |",
              "|---|---|---|---|---|---|---|---|"]
    for row in results["rows"]:
        span = "" if row["least"] == row["most"] else f"{_value(row, row['least'])} to {_value(row, row['most'])}"
        lines.append(f"| `{row['name']}` | {row['what']} | {row['topology']} | {row['ranks']} | "
                     f"{_value(row, row['measured'])} | {span} | {_value(row, row['predicted'])} | "
                     f"{row['error'] * 100:+.1f} % |")
    for skipped in results["skipped"]:
        lines.append(f"\nNot measured: `{skipped['name']}`: {skipped['why']}")
    return "\n".join(lines) + "\n"


def main():
    results_path, page_path = sys.argv[1:]
    with open(results_path, encoding="utf-8") as stream:
        table = table_of(json.load(stream))
    with open(page_path, encoding="utf-8") as stream:
        before, _, rest = stream.read().partition(BEGIN)
    after = rest.partition(END)[2]
    with open(page_path, "w", encoding="utf-8") as stream:
        stream.write(f"{before}{BEGIN}\n\n{table}\n{END}{after}")


if __name__ == "__main__":
    main()
