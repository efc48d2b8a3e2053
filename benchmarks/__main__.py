"""Run benchmarks, print a table, and append what was measured to `results.jsonl`."""

import argparse
import json
import os
import platform
import re
import time
from pathlib import Path

from benchmarks import (
    api,
    atom,
    breakdowns,
    commands,
    conducting,
    containers,
    copying,
    directives,
    flux,
    jobs,
    kvs,
    mounts,
    rabbitmaps,
    reconciling,
    replay,
    scheduling,
    starting,
    storage,
)
from benchmarks.measure import Result

BENCHMARKS = {
    **commands.ALL,
    **starting.ALL,
    **scheduling.ALL,
    **jobs.ALL,
    **kvs.ALL,
    **storage.ALL,
    **directives.ALL,
    **breakdowns.ALL,
    **api.ALL,
    **copying.ALL,
    **mounts.ALL,
    **atom.ALL,
    **conducting.ALL,
    **containers.ALL,
    **flux.ALL,
    **rabbitmaps.ALL,
    **reconciling.ALL,
    **replay.ALL,
}
RESULTS = Path(__file__).parent / "results.jsonl"


def main() -> None:
    """Measure what matches, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", default=".", help="a regular expression on the names")
    parser.add_argument("--note", default="", help="kept with the results")
    arguments = parser.parse_args()
    print(f"{'name':<44} {'value':>10} {'unit':<8} {'budget':>9}  met")
    for name, measure in BENCHMARKS.items():
        if re.search(arguments.only, name):
            for result in measure():
                print(row(result), flush=True)
                keep(result, arguments.note)


def row(result: Result) -> str:
    """Write a result as a line of the table."""
    budget = "" if result.budget is None else f"{result.budget:g}"
    met = {True: "yes", False: "NO", None: ""}[result.met]
    return f"{result.name:<44} {result.value:>10.4g} {result.unit:<8} {budget:>9}  {met}"


def keep(result: Result, note: str) -> None:
    """Append a result to the record."""
    entry = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": f"{platform.machine()} {platform.release()} {len(os.sched_getaffinity(0))} cpus",
        "python": platform.python_version(),
        "name": result.name,
        "value": round(result.value, 6),
        "unit": result.unit,
        "budget": result.budget,
        "met": result.met,
    }
    if note:
        entry["note"] = note
    with RESULTS.open("a") as record:
        record.write(json.dumps(entry) + "\n")


main()
