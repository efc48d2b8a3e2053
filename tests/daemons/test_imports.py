"""What processes import when they start: users wait for it, and each node pays it anew."""

import subprocess
import sys

import pytest

_COMMAND = "from warren.cli.main import cli; cli({!r}, standalone_mode=False)"
_LIGHT = {"aiohttp", "cryptography", "email", "pygments", "rich", "yaml"}
"""What takes long to import, and is for those alone that speak HTTPS or show pictures."""


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import warren.node.copying.__main__", {*_LIGHT, "asyncio", "tomllib"}),
        ("import warren.daemons.nodes", {*_LIGHT, "warren.instance"}),
        ("import warren.daemons.shells", {*_LIGHT, "warren.dws.jobs", "warren.wlm.view"}),
        ("import warren.daemons.emulatedagents", {"pygments", "rich", "warren.kube.server"}),
        (_COMMAND.format(["jobs"]), {*_LIGHT, "warren.dws.objects", "warren.instance"}),
        (_COMMAND.format(["kvs", "get", "a"]), {*_LIGHT, "warren.dws", "warren.instance"}),
        (_COMMAND.format(["run", "true"]), {*_LIGHT, "warren.dws.jobs", "warren.instance"}),
        (_COMMAND.format(["rabbits"]), {"pygments", "rich", "warren.kube.server"}),
    ],
)
def test_a_process_imports_nothing_heavy_that_it_does_not_need(code: str, heavy: set[str]) -> None:
    """No cluster runs, and commands end when they have found that out."""
    program = (
        "import sys\n"
        "try:\n"
        f"    {code}\n"
        "except Exception as error:\n"
        "    assert type(error).__name__ == 'UserMistake', error\n"
        f"print(*sorted({heavy!r} & sys.modules.keys()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"WARREN_STATEDIR": "/nonexistent"},
    )
    assert done.stdout.split() == []
