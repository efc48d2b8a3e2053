"""`warren atomd`."""

import os
from pathlib import Path

import click

from warren.base.errors import UserMistake
from warren.cli.common import default_statedir, open_port, run


@click.command()
@click.option("--config", "config_file", type=click.Path(path_type=Path), metavar="FILE",
              help="A TOML file: commands, limits, allowed users (default: "
              "/etc/warren/atomd.toml, where it is).")  # fmt: skip
@click.option("--socket", "path", type=click.Path(path_type=Path), metavar="PATH",
              help="Where to listen (default: what the configuration says, or "
              "/var/run/atomd/atomd.sock).")  # fmt: skip
@click.option("--statedir", type=click.Path(path_type=Path), metavar="DIR",
              help="Where jobs are kept (default: /var/lib/warren-atomd).")  # fmt: skip
@click.option("--metrics-port", type=click.IntRange(1, 65535), metavar="PORT",
              help="Serve /metrics, /healthz and /readyz there too (default: on the socket "
              "alone).")  # fmt: skip
@click.option("--metrics-address", default="127.0.0.1", show_default=True, metavar="ADDRESS",
              help="The address to serve them on, without authentication.")  # fmt: skip
@click.option("--check", is_flag=True, help="Check the configuration, and exit.")
def atomd(
    config_file: Path | None,
    path: Path | None,
    statedir: Path | None,
    metrics_port: int | None,
    metrics_address: str,
    check: bool,
) -> None:
    """Serve ATOM on this node, for PBS's hook PBS_cray_atom, until stopped.

    Jobs are registered by POST and forgotten by DELETE, over a unix socket (docs/pbs.md);
    commands of the site prepare the node for each of them, and clean up after it.
    """
    from warren.atom import config as configs
    from warren.atom import listening as sockets
    from warren.daemons import atomd as service
    from warren.daemons import diskspace, logs
    from warren.daemons.statedir import hold_lock, lock_holder

    default_file = Path("/etc/warren/atomd.toml")
    if config_file is None and default_file.exists():
        config_file = default_file
    config = configs.load(config_file) if config_file is not None else configs.Config()
    if check:
        click.echo(f"{config_file or 'the default configuration'} is valid")
        return
    state_directory = statedir or default_statedir("warren-atomd")
    usual_socket = configs.DEFAULT_SOCKET if os.geteuid() == 0 else state_directory / "atomd.sock"
    socket_path = (path or Path(config.socket or usual_socket)).absolute()
    logs.configure()
    try:
        state_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UserMistake(
            f"{state_directory} cannot be made: {error.strerror}. Choose another with --statedir."
        ) from error
    metrics_socket = None
    if metrics_port is not None:
        metrics_socket = open_port("--metrics-port", metrics_address, metrics_port)
    lock_path, journal_path = state_directory / "lock", state_directory / "jobs.db"
    try:
        run(
            diskspace.wait_for_space(state_directory, [journal_path], diskspace.SERVICE_START_BYTES)
        )
        with hold_lock(lock_path):
            settings = service.Settings(
                config=config,
                listener=sockets.listen(socket_path, config.socket_mode, config.socket_gid),
                journal_path=journal_path,
                metrics_socket=metrics_socket,
            )
            run(service.run(settings, lambda: click.echo(f"serving ATOM at {socket_path}")))
    except BlockingIOError:
        raise UserMistake(
            f"The state directory {state_directory} is in use by process {lock_holder(lock_path)}: "
            "choose another with --statedir."
        ) from None
    except PermissionError as error:
        raise UserMistake(f"{error.filename} is not yours: choose another --statedir.") from error
    except IsADirectoryError as error:
        raise UserMistake(f"{error.filename} is a directory: it cannot be the lock.") from error
    click.echo("the ATOM service has stopped")
