"""What is ended first where memory is short: jobs, before what all jobs depend on.

The kernel ends the largest process, and a job may consist of many small ones. Asking for more of
that takes no privilege (proc(5), `oom_score_adj`); asking for less does, where root asked for more.
"""

from contextlib import suppress
from pathlib import Path
from typing import Final

_ADJUSTMENT: Final = Path("/proc/self/oom_score_adj")
_FIRST: Final = 500
"""As if half of all memory were the process's."""


def come_first() -> None:
    """Have this process, and what it starts, ended before all that asks for nothing."""
    with suppress(OSError):
        if int(_ADJUSTMENT.read_text()) < _FIRST:
            _ADJUSTMENT.write_text(str(_FIRST))
