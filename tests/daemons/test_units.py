"""The units of systemd: what they start is what there is, and comes back."""

import configparser
import shlex
from pathlib import Path

from warren.cli.cluster.controllers import controllers
from warren.kube.runtime import GRACE_SECONDS

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"


def test_the_controllers_are_started_again_whatever_they_end_of() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((UNITS / "warren-controllers.service").read_text())
    service = unit["Service"]
    _, command, *arguments = shlex.split(service["ExecStart"])
    assert command == controllers.name
    given = controllers.make_context("controllers", arguments).params
    credential, _, _ = service["LoadCredential"].partition(":")
    assert str(given["kubeconfig"]) == f"${{CREDENTIALS_DIRECTORY}}/{credential}"
    assert service["Restart"] == "always"
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    assert int(service["TimeoutStopSec"]) > GRACE_SECONDS
