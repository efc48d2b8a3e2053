"""The unit of systemd and the service say the same."""

import configparser
from pathlib import Path

from warren.atom.config import DEFAULT_SOCKET, Config
from warren.daemons.atomd import MAX_CONNECTIONS
from warren.lifecycle import tables

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "warren-atomd.service"


def test_the_unit_gives_the_service_what_it_needs() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(UNIT.read_text())
    service = unit["Service"]
    assert service["Type"] == "notify"
    assert service["ExecStart"].endswith("/warren atomd")
    assert Path("/var/run") / service["RuntimeDirectory"] == DEFAULT_SOCKET.parent
    assert service["StateDirectory"] == "warren-atomd"
    assert int(service["TimeoutStopSec"]) > tables.seconds(Config().stop_timeout)
    # Each connection is a file, and each command two.
    assert int(service["LimitNOFILE"]) > MAX_CONNECTIONS + 2 * Config().parallel + 100
