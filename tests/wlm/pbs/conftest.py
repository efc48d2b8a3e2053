"""A place for ATOM's socket, and configurations that name it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Configure = Callable[..., Path]


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "atomd.sock"


@pytest.fixture
def configure(tmp_path: Path, socket: Path) -> Configure:
    """Return what writes a configuration: 30 s for each request, and other tunables."""

    def configured(**tunables: Any) -> Path:
        path = tmp_path / "PBS_cray_atom.CF"
        usual = {"post_timeout": 30, "delete_timeout": 30, "unix_socket_file": str(socket)}
        path.write_text(json.dumps({**usual, **tunables}))
        return path

    return configured
