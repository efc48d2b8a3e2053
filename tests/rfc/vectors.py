"""Test data from outside, where it is."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2].parent / "shared" / "vectors"


def vector(name: str) -> Path:
    """Return the path of one vector file or folder; skip the test where it is missing."""
    path = ROOT / name
    if not path.exists():
        pytest.skip(f"the test vectors ../shared/vectors/{name} are missing")
    return path
