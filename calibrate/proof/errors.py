"""Sums of prediction errors, predicted / measured - 1, for every table that this project prints of them."""

import statistics


def summary(errors):
    """MAPE, median and largest size of the errors, and their mean with sign."""
    sizes = [abs(error) for error in errors]
    return {
        "mape": statistics.mean(sizes),
        "median": statistics.median(sizes),
        "max": max(sizes),
        "bias": statistics.mean(errors),
    }


def summary_text(count, sums):
    middle = ", ".join(f"{key} {100 * sums[key]:.1f} %" for key in ("median", "max"))
    return f"{count} rows: MAPE {100 * sums['mape']:.1f} %, {middle}, bias {100 * sums['bias']:+.1f} %"
