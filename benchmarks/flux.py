"""What the storage of a job costs on a real Flux, with storage that takes no time."""

import os
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.flux.conftest import SOURCES, missing
from tests.flux.site import Site, opened

from benchmarks.measure import Result

_TIMES: Final = 15
_JOBDW: Final = "#DW jobdw type=xfs capacity=4GiB name=fast"
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def rabbit_job() -> Iterator[Result]:
    """One job after the other, from submit to clean, by their eventlogs."""
    reason = missing()
    if reason is not None:
        print(f"flux: {reason}")
        return
    with tempfile.TemporaryDirectory(prefix="warren-bench-") as directory:
        plugins = Path(directory) / "plugins"
        plugins.mkdir()
        sources = [str(each) for each in SOURCES.iterdir() if each.is_file()]
        subprocess.run(["cp", *sources, str(plugins)], check=True)
        subprocess.run(["make", "-s", "-C", str(plugins)], check=True)
        with opened(Path(directory), plugins, "--flash", "directory", fluxion=False) as site:
            plain = _median_ms(site)
            before = _cpu_ms(site)
            stored = _median_ms(site, "-S", f"dw={_JOBDW}")
            spent = (_cpu_ms(site) - before) / (_TIMES + 1)
    budget = 1.5 * plain + 150
    yield Result(name="a job on real Flux, submit to clean", value=plain, unit="ms")
    yield Result(name="with storage", value=stored, unit="ms", budget=budget)
    yield Result(name="the conductor's CPU for it", value=spent, unit="ms")


def _median_ms(site: Site, *options: str) -> float:
    taken = []
    for _ in range(_TIMES + 1):
        events = site.until(site.submit("-N1", *options, "true"), "clean")
        taken.append((events[-1].timestamp - events[0].timestamp) * 1000)
    return statistics.median(taken[1:])  # the first one loads what others find


def _cpu_ms(site: Site) -> float:
    assert site.conductor is not None
    stat = Path(f"/proc/{site.conductor.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / _TICKS * 1000


ALL = {"real Flux": rabbit_job}
