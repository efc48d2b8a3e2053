"""The flags of a submission: bits of `flags` in the request, and of a job's `submit` event."""

from collections.abc import Mapping
from typing import Final

DEBUG: Final = 2
"""The job's eventlog tells what is asked of scheduler and execution."""
WAITABLE: Final = 4
"""Its owner may wait for its end, once."""
NOVALIDATE: Final = 8
"""The jobspec is not validated."""

BY_NAME: Final[Mapping[str, int]] = {
    "debug": DEBUG,
    "waitable": WAITABLE,
    "novalidate": NOVALIDATE,
}
