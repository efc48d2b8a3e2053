"""Documents that come from tables say what the tables say."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_diagrams_are_those_of_the_tables() -> None:
    spec = importlib.util.spec_from_file_location("diagrams", ROOT / "tools" / "diagrams.py")
    assert spec is not None
    assert spec.loader is not None
    diagrams = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(diagrams)

    assert (ROOT / "docs" / "states.md").read_text() == diagrams.document(), "run `make docs`"


def test_every_command_is_in_the_documentation() -> None:
    from warren.cli.main import _COMMANDS

    text = (ROOT / "docs" / "commands.md").read_text()
    assert [name for name in _COMMANDS if f"warren {name}" not in text] == []
