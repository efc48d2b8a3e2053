"""Starts of processes: the CPU that each takes before it does anything."""

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence

from benchmarks.measure import Result

PROCESSES = {
    "warren --help": ["-m", "warren", "--help"],
    "warren jobs, without a cluster": ["-m", "warren", "jobs", "--statedir", os.devnull],
    "warren run, without a cluster": ["-m", "warren", "run", "--statedir", os.devnull, "true"],
    "warren rabbits, without a cluster": ["-m", "warren", "rabbits", "--statedir", os.devnull],
    "imports of the control process": ["-c", "import warren.daemons.up"],
    "imports of an agent": ["-c", "import warren.daemons.emulatedagents"],
    "imports of the shells' parent": ["-c", "import warren.daemons.shells"],
    "imports of nodes": ["-c", "import warren.daemons.nodes"],
    "imports of a copier": ["-c", "import warren.node.copying.__main__"],
}


def starts() -> Iterator[Result]:
    """Processes that end at once, user's and system's time."""
    for name, arguments in PROCESSES.items():
        _run(arguments)  # which compiles what is not yet
        used = [_run(arguments) for _ in range(7)]
        cpu = statistics.median(seconds for seconds, _ in used) * 1000
        yield Result(name=f"start: {name}, CPU", value=cpu, unit="ms")
        memory = statistics.median(kibibytes for _, kibibytes in used) / 1024
        yield Result(name=f"start: {name}, memory", value=memory, unit="MiB")


def _run(arguments: Sequence[str]) -> tuple[float, int]:
    """Return the CPU seconds and the most KiB of memory of a run."""
    child = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime, used.ru_maxrss


ALL = {"start": starts}
