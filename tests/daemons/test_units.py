"""The units of systemd: what they start is what there is, and comes back."""

import configparser
import shlex
from pathlib import Path

from warren.cli.cluster.conductor import conductor
from warren.cli.cluster.controllers import controllers
from warren.kube.runtime import GRACE_SECONDS

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"


def read(name: str) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((UNITS / f"{name}.service").read_text())
    return unit


def test_the_controllers_are_started_again_whatever_they_end_of() -> None:
    unit = read("warren-controllers")
    service = unit["Service"]
    _, command, *arguments = shlex.split(service["ExecStart"])
    assert command == controllers.name
    given = controllers.make_context("controllers", arguments).params
    credential, _, _ = service["LoadCredential"].partition(":")
    assert str(given["kubeconfig"]) == f"${{CREDENTIALS_DIRECTORY}}/{credential}"
    assert service["Restart"] == "always"
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    assert int(service["TimeoutStopSec"]) > GRACE_SECONDS


def test_the_conductor_is_started_again_unless_that_cannot_help() -> None:
    """Exit codes 2 and 3 are a wrong option and no kubeconfig (coral2-spec section 0)."""
    unit = read("warren-conductor")
    service = unit["Service"]
    _, command, *arguments = shlex.split(service["ExecStart"])
    assert command == conductor.name
    given = conductor.make_context("conductor", arguments).params
    credential, _, _ = service["LoadCredential"].partition(":")
    assert str(given["kubeconfig"]) == f"${{CREDENTIALS_DIRECTORY}}/{credential}"
    assert (service["Type"], service["Restart"]) == ("notify", "always")
    assert service["RestartPreventExitStatus"] == "2 3"
    assert int(service["WatchdogSec"]) == 60
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
