"""How guests, and the host, tell each other how far they are: by files in a common directory."""

import os
import time
from pathlib import Path

PLACE = Path(os.environ.get("WARREN_MEETING", "/run/meeting"))
SECONDS = 300.0


def tell(name: str) -> None:
    (PLACE / name).touch()


def wait(name: str, place: Path = PLACE) -> None:
    """Return when another one has told it. Fails after a time."""
    end = time.monotonic() + SECONDS
    while not (place / name).exists():
        assert time.monotonic() < end, f"{name!r} was not told"
        time.sleep(0.1)
