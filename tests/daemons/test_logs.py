"""Logs of long-running processes."""

import io
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TextIO, cast

from tests.harness.logs import as_before
from warren.base import log
from warren.daemons import logs


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_a_log_that_cannot_be_written_stops_nothing() -> None:
    with as_before():
        logs.configure(Full())
        log.info("lost")


def test_a_log_is_bounded_while_its_process_runs_and_is_the_owners_alone(tmp_path: Path) -> None:
    """What users ask for in vain is told there, as often as they ask."""
    path = tmp_path / "control.log"
    path.touch(0o644)
    with as_before(), closing(logs.RotatingLog(path, 10_000)) as output:
        logs.configure(cast(TextIO, output))
        for number in range(1000):
            log.info("in vain", number=number)

    kept = [path, path.with_suffix(".log.1")]
    assert set(tmp_path.iterdir()) == set(kept)
    assert all(each.stat().st_size < 11_000 for each in kept)
    assert all(each.stat().st_mode & 0o777 == 0o600 for each in kept)
    numbers = [
        line.rpartition("=")[2] for each in kept[::-1] for line in each.read_text().splitlines()
    ]
    assert numbers == [f"{each}" for each in range(1000 - len(numbers), 1000)]


def test_standard_error_is_bounded_while_its_process_runs(tmp_path: Path) -> None:
    path = tmp_path / "shells.log"
    program = f"""
import os, sys
from pathlib import Path
from warren.daemons import logs
output = logs.RotatingStandardError(Path({str(path)!r}), sys.stderr, 10_000)
for number in range(3000):
    output.write(f"line {{number}}\\n")
    output.flush()
os.write(1, b"the end\\n")
"""
    with logs.open_log(path) as log_file:
        subprocess.run(
            [sys.executable, "-c", program], stdout=log_file, stderr=log_file, check=True
        )

    kept = [path.with_suffix(".log.1"), path]
    assert set(tmp_path.iterdir()) == set(kept)
    assert all(each.stat().st_size < 11_000 for each in kept)
    assert all(each.stat().st_mode & 0o777 == 0o600 for each in kept)
    *lines, last = "".join(each.read_text() for each in kept).splitlines()
    assert last == "the end"
    assert lines == [f"line {number}" for number in range(3000 - len(lines), 3000)]


def test_what_users_name_is_logged_as_a_terminal_may_show_it() -> None:
    output = io.StringIO()
    with as_before():
        logs.configure(output)
        log.info("copy", reason="/a/\x1b[2J\x1b[31m\r\x9b\u202e\nlevel=error ƒ")
    line = output.getvalue().removesuffix("\n")
    assert line.isprintable()
    assert "ƒ" in line
