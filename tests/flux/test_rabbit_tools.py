"""`flux getrabbit`, `dws2jgf`, `rabbitmapping` and `dw-check`, with a real broker."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dws.test_rabbitmapping import FILE

DEPLOYED = Path(__file__).parents[2] / "deploy" / "flux"

pytestmark = pytest.mark.skipif(
    shutil.which("flux") is None, reason="flux-core is not installed: no flux in PATH"
)


def told(tmp_path: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script in an instance of Flux that knows of rabbits, and finds our commands."""
    (tmp_path / "map").write_bytes(FILE)
    (tmp_path / "site.toml").write_text(
        f'[rabbit]\nmapping = "{tmp_path}/map"\n[resource]\nexclude = "n2"\nnoverify = true\n'
        '[[resource.config]]\nhosts = "n[1-2,10]"\ncores = "0"\n'
    )
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["flux", "start", "--test-size=3", "--test-hosts=n[1-2,10]"]
    return subprocess.run(
        [*command, "-c", str(tmp_path / "site.toml"), "sh", "-ec", script],
        env={**os.environ, "PATH": path, "FLUX_EXEC_PATH_PREPEND": str(DEPLOYED)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_rabbits_are_looked_up_at_a_broker(tmp_path: Path) -> None:
    """Statement 000.48: rabbit.mapping is read from the broker's configuration.

    Also inside of a job's own instance, whose configuration does not say it.
    """
    done = told(
        tmp_path,
        """
        flux getrabbit
        flux getrabbit -c n10
        flux getrabbit r1
        job=$(flux submit sleep inf)
        flux getrabbit -j $job || echo none
        flux job memo $job rabbits=r[2-3]
        flux getrabbit -j $job -c n1
        flux getrabbit -j f123 || echo no job
        flux cancel $job
        flux alloc -N1 flux getrabbit -c n1
        """,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["r[1-2]", "r2", "n[1-2]", "none", "r[1-3]", "no job", "r1"]
    assert "No rabbits found for job" in done.stderr
    assert "Could not find job f123" in done.stderr


def test_what_a_broker_excludes_is_not_in_the_graph(tmp_path: Path) -> None:
    """Statement 000.49: nor has the mapping to be named."""
    script = "flux R encode -H n[1-2,10] -c 0 | flux dws2jgf --only-sched --cluster-name=c"
    done = told(tmp_path, script)

    assert (done.returncode, done.stderr) == (0, "")
    found = [each["metadata"] for each in json.loads(done.stdout)["graph"]["nodes"]]
    assert [each["name"] for each in found if each["type"] == "node"] == ["n1", "n10"]


def test_the_other_commands_are_found(tmp_path: Path) -> None:
    done = told(tmp_path, "flux rabbitmapping --help; echo '#DW jobdw' | flux dw-check - || true")

    assert "--ignore-external-allocations" in done.stdout
    assert "jobdw" in done.stdout.partition("Usage")[2]
    assert "mistake" in done.stdout
