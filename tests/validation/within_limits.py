#!/usr/bin/python3
"""Errors against published step times and memory peaks stay within what the models have reached.

usage: within_limits.py TRAINYARD FILE

A limit that breaks is a finding about a model. It goes down when a model gets better; it goes up only where a
constant was wrong by measurements of its own kind, and being wrong made the steps look right.
"""

import os
import sys

from error_table import as_text, table

# Largest error of any row, and largest mean or median of the errors' sizes: reached, and 0.3 points.
LIMITS = {
    "deep-learning-examples-bert": {"mape": 0.124},
    "deep-learning-examples-resnet50": {"mape": 0.081},
    "dgx-cloud-h100": {"mape": 0.058},
    "korthikanti-2022-table5": {"max": 0.057},
    "llm-foundry-fsdp": {"mape": 0.055},
    "narayanan-2021-table1": {"mape": 0.027},
    "simumax-b200": {"mape": 0.088},
    "simumax-memory": {"median": 0.005, "max": 0.012},
    "torchtitan-memory": {"median": 0.029, "max": 0.059},
    "ultra-scale-memory": {"median": 0.055, "max": 0.157},
    "vtrain-multi-node": {"mape": 0.081},
}


def main():
    trainyard, path = sys.argv[1:]
    result = table(trainyard, path)
    print(as_text(result))
    over = [f"{key} {100 * result[key]:.2f} % is above {100 * limit:.2f} %"
            for key, limit in LIMITS[os.path.splitext(os.path.basename(path))[0]].items() if result[key] > limit]
    if over:
        sys.exit("within_limits: " + "; ".join(over))


if __name__ == "__main__":
    main()
