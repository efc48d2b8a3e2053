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
    wait_either(name, place=place)


def wait_either(*names: str, place: Path = PLACE) -> bool:
    """Return when another one has told one of these, and whether it is the first of them."""
    end = time.monotonic() + SECONDS
    while not any((place / name).exists() for name in names):
        assert time.monotonic() < end, f"{' or '.join(map(repr, names))} was not told"
        time.sleep(0.1)
    return (place / names[0]).exists()
