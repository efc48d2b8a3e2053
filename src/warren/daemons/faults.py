"""The file of simulated flash: how long what its nodes do takes, and how often it fails."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warren.base.errors import UserMistake
from warren.lifecycle import tables
from warren.node import behaviour


def load(path: Path) -> Mapping[str, Any]:
    """Read a file, and return its tables, which `node.behaviour` accepts. Raises UserMistake."""
    try:
        text = path.read_text()
    except OSError as error:
        raise UserMistake(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UserMistake(f"{path} is not TOML: {error}.") from error
    parsed = tables.decode(text, str(path))
    try:
        behaviour.parse(parsed)
    except UserMistake as mistake:
        raise UserMistake(f"{path}: {mistake}") from None
    return parsed
