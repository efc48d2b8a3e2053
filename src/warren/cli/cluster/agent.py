"""`warren agent`: the agent of one rabbit or one compute node, as a service."""

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from warren.base.bytesize import format_bytes
from warren.base.errors import UserMistake
from warren.cli.commandgroups import Group
from warren.cli.common import default_statedir, json_option, open_port, print_json, run

if TYPE_CHECKING:
    from warren.daemons.agentconfig import Config
    from warren.daemons.agentservice import AgentStateDir
    from warren.kube.kubeconfig import ClusterAccess

NO_KUBECONFIG = 3
"""The exit code after which systemd need not start it again: an admin has to do something."""

_BAD_CONFIGURATION = 2
"""The exit code of a configuration that is not possible."""

Command = TypeVar("Command", bound=Callable[..., object])

_AGENT_OPTIONS = (
    click.option("--config", "config_file", type=click.Path(path_type=Path), metavar="FILE",
                 help="A TOML file (default: /etc/warren/agent.toml, where it is)."),
    click.option("--kubeconfig", type=click.Path(path_type=Path), metavar="FILE",
                 help="The cluster (default: the configuration's, KUBECONFIG, the pod's, or "
                 "~/.kube/config)."),
    click.option("--context", metavar="NAME", help="The kubeconfig's context to use."),
    click.option("--node", metavar="NAME",
                 help="The node's name in the cluster (default: the configuration's, or the "
                 "host name)."),
    click.option("--statedir", type=click.Path(path_type=Path), metavar="DIR",
                 help="The agent's state directory (default: /var/lib/warren-agent)."),
)  # fmt: skip

_SERVICE_OPTIONS = (
    click.option("--metrics-port", type=click.IntRange(1, 65535), metavar="PORT",
                 help="Serve /metrics, /healthz and /readyz there (default: nowhere)."),
    click.option("--metrics-address", default="127.0.0.1", show_default=True, metavar="ADDRESS",
                 help="The address to serve them on, without authentication."),
    click.option("--check", is_flag=True,
                 help="Print which file systems can be made here, and exit."),
    json_option,
)  # fmt: skip


def agent_options(command: Command) -> Command:
    """Give a command the options that say which agent is meant."""
    for option in reversed(_AGENT_OPTIONS):
        command = option(command)
    return command


def _service_options(command: Command) -> Command:
    for option in reversed((*_AGENT_OPTIONS, *_SERVICE_OPTIONS)):
        command = option(command)
    return command


@click.group(cls=Group)
def agent() -> None:
    """Run the agent of a rabbit, or of a compute node, on that machine.

    The cluster has the kinds of DWS and NNF (deploy/crds), and lets this user do what the roles
    warren-rabbit or warren-compute allow (deploy/rbac) in the namespace of the node.
    """


@agent.command()
@_service_options
def rabbit(**options: Any) -> None:
    """Make this rabbit's volumes, mount them, and copy.

    Runs until it is stopped. What is mounted stays.
    """
    _run_agent(is_rabbit=True, **options)


@agent.command()
@_service_options
def compute(**options: Any) -> None:
    """Mount what the ClientMounts of this node say.

    Runs until it is stopped. What is mounted stays.
    """
    _run_agent(is_rabbit=False, **options)


@agent.command()
@click.option("--rabbits", default="", metavar="NODES", help="Rabbits, as a hostlist.")
@click.option("--computes", default="", metavar="NODES", help="Compute nodes, as a hostlist.")
@click.option("--service-account", metavar="NAME",
              help="Bind to the service account of this name in each node's namespace, in place "
              "of the user system:warren:node:NODE.")  # fmt: skip
def roles(rabbits: str, computes: str, service_account: str | None) -> None:
    """Print the roles of agents, for `kubectl apply -f -`."""
    import yaml

    from warren.daemons import roles as rbac
    from warren.rfc import hostlist

    if not (rabbits or computes):
        raise click.UsageError("Name nodes with --rabbits or --computes.")
    objects = rbac.agent_roles(hostlist.decode(rabbits), hostlist.decode(computes), service_account)
    click.echo(yaml.safe_dump_all(list(objects), sort_keys=False), nl=False)


@agent.command()
@click.argument("role", type=click.Choice(["rabbit", "compute"]))
@agent_options
@click.option("--repair", is_flag=True, help="Remove what is found.")
@json_option
def doctor(
    role: str,
    config_file: Path | None,
    kubeconfig: Path | None,
    context: str | None,
    node: str | None,
    statedir: Path | None,
    repair: bool,
    as_json: bool,
) -> None:
    """Find what an agent has left on this machine.

    Volumes, mounts and loop devices that no object asks for any more, and processes of an
    agent that has ended. It may run meanwhile. Exits with 1 if something is left in the end.
    """
    from warren.cli.cluster.doctor import report
    from warren.daemons.agentdoctor import examine
    from warren.daemons.agentservice import Settings

    with _exit_on_mistake(_BAD_CONFIGURATION):
        config, _ = configuration(config_file, node)
    settings = Settings(
        access=access_of(config, kubeconfig, context),
        config=config,
        state_dir=state_dir_of(statedir),
        is_rabbit=role == "rabbit",
    )
    findings, failures = run(examine(settings, repair=repair))
    orphans = [
        {"kind": str(each.type), "where": each.where, "name": each.name, "why": each.why}
        for each in findings
    ]
    report(orphans, failures, repair=repair, as_json=as_json, command=f"warren agent doctor {role}")


def configuration(config_file: Path | None, node: str | None) -> "tuple[Config, str]":
    """Return the configuration of an agent, and what it is called. Raises UserMistake."""
    from warren.daemons import agentconfig

    config = agentconfig.load(config_file)
    name = str(config_file or agentconfig.DEFAULT_PATH)
    return (config if node is None else agentconfig.with_node_name(config, node)), name


def access_of(config: "Config", kubeconfig: Path | None, context: str | None) -> "ClusterAccess":
    """Return the way into an agent's cluster. Exits with 3 where there is no kubeconfig."""
    from warren.kube import kubeconfig as kubeconfigs

    if kubeconfig is None and config.kubeconfig is not None:
        kubeconfig = Path(config.kubeconfig)
    with _exit_on_mistake(NO_KUBECONFIG):
        return kubeconfigs.find(kubeconfig, context)


def state_dir_of(statedir: Path | None) -> "AgentStateDir":
    """Return the state directory of an agent."""
    from warren.daemons.agentservice import AgentStateDir

    return AgentStateDir(statedir or default_statedir("warren-agent"))


def _run_agent(
    *,
    is_rabbit: bool,
    config_file: Path | None,
    kubeconfig: Path | None,
    context: str | None,
    node: str | None,
    statedir: Path | None,
    metrics_port: int | None,
    metrics_address: str,
    check: bool,
    as_json: bool,
) -> None:
    from warren.base import systemd
    from warren.daemons import agentservice as service
    from warren.daemons import logs
    from warren.daemons.agentconfig import file_system_support

    with _exit_on_mistake(_BAD_CONFIGURATION):
        config, name = configuration(config_file, node)
        run(service.check_possible(config, is_rabbit=is_rabbit, name=name))
    if check:
        why_unsupported = run(file_system_support(config, state_dir_of(statedir).path))
        _print_support(config, why_unsupported, as_json=as_json)
        return
    access = access_of(config, kubeconfig, context)
    metrics_socket: socket.socket | None = None
    if metrics_port is not None:
        metrics_socket = open_port("--metrics-port", metrics_address, metrics_port)
    logs.configure()

    def on_ready() -> None:
        systemd.notify("READY=1")
        click.echo(f"the agent of {config.node_name} is ready")

    state_dir = state_dir_of(statedir)
    with service.hold_state_directory(state_dir):
        settings = service.Settings(
            access=access,
            config=config,
            state_dir=state_dir,
            is_rabbit=is_rabbit,
            metrics_socket=metrics_socket,
        )
        run(service.run_until_stopped(settings, on_ready))
    click.echo("the agent has stopped")


def _print_support(
    config: "Config", why_unsupported: Mapping[str, str | None], *, as_json: bool
) -> None:
    """Print which types of file systems an agent can make and mount here, and why not others."""
    if as_json:
        summary = {"node": config.node_name, "mounts": config.mounts, "flash": config.flash.kind}
        file_systems = {
            fs_type: {"supported": why_not is None, "whyNot": why_not}
            for fs_type, why_not in why_unsupported.items()
        }
        print_json({**summary, "fileSystems": file_systems})
        return
    size = config.flash.capacity_bytes
    size_text = f" of {format_bytes(size)}" if size is not None and config.flash.capacity else ""
    click.echo(
        f"node {config.node_name}, storage below {config.mounts}, "
        f"flash: {config.flash.kind}{size_text}"
    )
    for fs_type, why_not in why_unsupported.items():
        click.echo(f"  {fs_type}: {'yes' if why_not is None else f'no: {why_not}'}")


@contextmanager
def _exit_on_mistake(code: int) -> Iterator[None]:
    """Have a mistake of the user end the program with an exit code of its own."""
    try:
        yield
    except UserMistake as mistake:
        click.echo(f"warren: {mistake}", err=True)
        raise click.exceptions.Exit(code) from mistake
