"""Documents that come from tables say what the tables say."""

import importlib.util
import pkgutil
import re
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


def test_what_stands_for_each_part_of_flux_coral2s_library_is_there() -> None:
    """Statement 000.6: jobs, rabbits, watches, breakdowns, system status and cleanup."""
    text = (ROOT / "docs" / "flux.md").read_text()
    table = text.partition("## Where what flux-coral2's Python does is done")[2].partition("\n## ")[
        0
    ]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| `")]

    assert {row[1].strip(" `").rpartition(".")[2] for row in rows} >= {
        "WorkflowInfo", "RabbitManager", "Watchers", "directivebreakdown", "systemstatus", "cleanup"
    }  # fmt: skip
    for row in rows:
        named = re.findall(r"`(warren[\w.]*)`", row[3])
        assert named
        assert [pkgutil.resolve_name(each) for each in named]
