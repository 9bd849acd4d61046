"""The loop of a script that measures: a case, a record, the whole file again, until the time is over."""

import json
import os
import tempfile
import time


def write_whole(path, value):
    """Beside the file and then in its place, so that a reader never sees half of it."""
    folder = os.path.dirname(os.path.abspath(path))
    handle, beside = tempfile.mkstemp(dir=folder, suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(value, stream, indent=1)
            stream.write("\n")
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


def measure_all(script, cases, options, measure_one, document_of, summary_line):
    """The script's exit status: 1 where every case failed. After each case options.output holds the document of the
    records so far; after options.minutes no case is begun."""
    deadline = time.monotonic() + 60 * options.minutes
    records = []
    for number, case in enumerate(cases, 1):
        if time.monotonic() > deadline:
            print(f"{script}: {len(cases) - number + 1} cases left out: {options.minutes:g} minutes are over")
            break
        records.append(measure_one(case))
        write_whole(options.output, document_of(records))
        print(f"[{number}/{len(cases)}] {records[-1]['id']:44} {summary_line(records[-1])}", flush=True)
    failed = sum(1 for record in records if record["outcome"].startswith("failed"))
    print(f"{script}: {len(records)} records in {options.output}" + (f", {failed} failed" if failed else ""))
    return 1 if failed == len(records) else 0
