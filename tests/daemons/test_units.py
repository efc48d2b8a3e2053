"""The units of systemd: what they start is what there is, and comes back."""

import configparser
import shlex
from pathlib import Path

import pytest

from warren.cli.cluster.agent import agent
from warren.cli.cluster.conductor import conductor
from warren.cli.cluster.controllers import controllers
from warren.cli.cluster.offload import copy_offload
from warren.daemons import agentconfig
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


def test_the_service_for_copies_has_its_keys_as_credentials() -> None:
    service = read("warren-copy-offload")["Service"]
    assert (service["Type"], service["Restart"]) == ("notify", "always")
    credentials = "${CREDENTIALS_DIRECTORY}"
    _, command, *arguments = shlex.split(service["ExecStart"])
    assert command == copy_offload.name
    # Files that are to be there: these are, if nowhere else, here.
    here = [str(UNITS) if word.startswith(credentials) else word for word in arguments]
    given = copy_offload.make_context(command, here).params
    assert {name for name, value in given.items() if value == UNITS} == {
        "kubeconfig",
        "cert",
        "key",
    }


@pytest.mark.parametrize(("role", "type"), [("rabbit", "notify"), ("compute", "exec")])
def test_agents_mount_for_the_whole_machine_and_are_not_started_in_vain(
    role: str, type: str
) -> None:
    unit = read(f"warren-agent-{role}")
    service = unit["Service"]
    _, group, command, *arguments = shlex.split(service["ExecStart"])
    assert group == agent.name
    found = agent.commands[command]
    assert command == role
    given = found.make_context(command, arguments).params
    assert given["config_file"] == agentconfig.DEFAULT_PATH
    # Only that of a compute node is started by a prolog, which is not to wait for it.
    assert (service["Type"], service["Restart"]) == (type, "always")
    assert service["Type"] == "notify" or service["NotifyAccess"] == "main"
    assert int(service["WatchdogSec"]) == 60
    assert service["RestartPreventExitStatus"] == "2 3"
    # Each of these would give it a mount namespace of its own (systemd.exec(5)).
    private = {"ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "LoadCredential"}
    private |= {"ReadOnlyPaths", "InaccessiblePaths", "ProtectKernelTunables", "DynamicUser"}
    private |= {"ProtectControlGroups", "ProtectKernelModules", "ProtectKernelLogs", "ProtectProc"}
    assert private & set(service) == set()
    assert service["NoNewPrivileges"] == "yes"


def test_the_scripts_of_prolog_and_epilog_know_the_compute_nodes_agent() -> None:
    alias = read("warren-agent-compute")["Install"]["Alias"]
    for script in (UNITS.parent / "scripts").glob("*clientmount.sh"):
        assert f"WARREN_CLIENTMOUNT:-{alias.removesuffix('.service')}" in script.read_text()
