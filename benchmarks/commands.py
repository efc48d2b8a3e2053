"""The command line: how long people wait before anything happens."""

import subprocess
import sys
from collections.abc import Iterator

from benchmarks.measure import Result, median_ms


def help_() -> Iterator[Result]:
    """`warren --help`, as a process."""

    def run() -> None:
        subprocess.run([sys.executable, "-m", "warren", "--help"], capture_output=True, check=True)

    yield Result(name="warren --help", value=median_ms(run), unit="ms", budget=150)


ALL = {"help": help_}
