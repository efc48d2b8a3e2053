"""The configuration of a running cluster is reloaded, by command and by SIGHUP."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.journeys.conftest import Cluster, wait_for

PRESET = '[rabbit.presets]\nfast = "#DW jobdw type=xfs capacity=1MiB name=fast"\n'


@pytest.mark.parametrize("how", ["--together", "--separate"])
def test_a_file_is_reloaded_by_command_and_by_signal(tmp_path: Path, how: str) -> None:
    config = tmp_path / "config.toml"
    config.write_text("")
    cluster = Cluster(
        tmp_path, "--rabbits", "1", "--computes-per-rabbit", "2", "--flash", "directory",
        how, "--config", str(config),
    )  # fmt: skip
    cluster.up()
    try:
        config.write_text(PRESET)
        done = cluster("config", "reload")
        assert (done.stdout, done.stderr) == ("The configuration is reloaded.\n", "")
        ran = cluster("run", "-N1", "-S", "dw=fast", "sh", "-c", 'test -d "$DW_JOB_fast"')
        assert ran.returncode == 0, ran.stderr
        assert cluster("config", "reload").stdout == "Nothing has changed.\n"

        config.write_text(f"{PRESET}[rabbit]\nsetup_timeot = 1\n")
        refused = cluster("config", "reload")
        assert refused.returncode == 1
        assert refused.stderr.startswith(f"warren: {config}: ")
        assert "fast" in cluster("config", "get", "rabbit.presets").stdout

        config.write_text(f"exec.kill-timeout = 7\n{PRESET}setup_timeout = 1\n".replace(
            "[rabbit.presets]\n", "[rabbit]\npresets."
        ))  # fmt: skip
        os.kill(cluster.status()["pid"], signal.SIGHUP)
        wait_for(lambda: "setup_timeout" in cluster("config", "get", "rabbit").stdout)
        told = json.loads(cluster("config", "reload", "--json").stdout)
        assert told == {"changed": False, "later": ["exec.kill-timeout"]}

        other = tmp_path / "other.toml"
        other.write_text("rabbit.tc_timeout = 3\n")
        assert cluster("config", "reload", str(other)).returncode == 0
        cluster.kill()
        cluster.launch()
        wait_for(cluster.is_ready)
        assert "tc_timeout" not in cluster("config", "get", "rabbit").stdout  # --config, again
        assert cluster("config", "reload", str(tmp_path / "none")).returncode == 1
        cluster.wait_clean()
    finally:
        cluster.down()
