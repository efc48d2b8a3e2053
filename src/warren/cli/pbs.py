"""`warren pbs`: register PBS's hook for ATOM, check it, and try it."""

import os
import pwd
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from warren.base.errors import UserMistake
from warren.cli.commandgroups import Group
from warren.cli.common import json_option, print_json
from warren.wlm.pbs.hookfile import NAME
from warren.wlm.pbs.simulatedmom import SHARING

if TYPE_CHECKING:
    from warren.wlm.pbs.checks import Check
    from warren.wlm.pbs.hooksetup import QmgrDirective
    from warren.wlm.pbs.qmgr import Qmgr

name_option = click.option("--name", default=NAME, show_default=True, metavar="HOOK",
                           help="The name of the hook.")  # fmt: skip


@click.group(cls=Group)
def pbs() -> None:
    """Register the hook that tells ATOM of PBS's jobs, and check whether it can work.

    install, uninstall and status talk to PBS through qmgr, and are for root on its server's
    host; status and test also look at the node that they are run on.
    """


@pbs.command()
@name_option
@click.option("--config", "config_file", type=click.Path(path_type=Path, exists=True),
              metavar="FILE", help="The hook's configuration, as JSON (default: the one that "
              "it has, or the defaults).")  # fmt: skip
@click.option("--enable/--disable", "enable", default=None,
              help="Enable or disable it (default: as it is; a new one is disabled).")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print the directives for qmgr, and send none.")
def install(name: str, config_file: Path | None, enable: bool | None, dry_run: bool) -> None:
    """Register the hook, or update it to this version.

    A hook that is registered keeps its attributes, and its configuration unless --config is
    given. This may be repeated at any time.
    """
    from warren.wlm.pbs import checks, hookfile, hooksetup
    from warren.wlm.pbs.qmgr import Qmgr

    hooksetup.check_name(name)
    config = None
    if config_file is not None:
        config = _read_file(config_file)
        hookfile.read_config(config, str(config_file))
    qmgr = Qmgr()
    if enable:
        hooksetup.check_shipped_hook_off(qmgr)
    hook = hooksetup.read_hook(qmgr, name)
    directives = hooksetup.install_directives(name, hook, config, enable)
    _run_directives(qmgr, directives, dry_run)
    if not directives:
        click.echo(f"the hook {name} is registered as it is to be")
    elif not dry_run:
        click.echo(f"the hook {name} is registered")
    registered = hooksetup.read_hook(qmgr, name)
    if registered is not None and not dry_run:
        _print_checks(check for check in checks.check_hook(name, registered) if not check.met)


@pbs.command()
@name_option
@click.option("--dry-run", is_flag=True, help="Print the directives for qmgr, and send none.")
def uninstall(name: str, dry_run: bool) -> None:
    """Remove the hook.

    Running jobs go on; ATOM is not told when they end, and keeps them registered.
    """
    from warren.wlm.pbs import hooksetup
    from warren.wlm.pbs.qmgr import Qmgr

    hooksetup.check_name(name)
    qmgr = Qmgr()
    directives = hooksetup.uninstall_directives(name, hooksetup.read_hook(qmgr, name))
    _run_directives(qmgr, directives, dry_run)
    if not dry_run:
        click.echo(f"the hook {name} is gone" if directives else f"no hook {name} is registered")


@pbs.command()
@name_option
@json_option
def status(name: str, as_json: bool) -> None:
    """Check everything that the hook needs.

    Run it as root on the server's host to check the server, and on a node to check the node.
    Exits with 1 if something is missing, or nothing can be checked.
    """
    from warren.wlm.pbs import checks, hooksetup

    hooksetup.check_name(name)
    check_results = [*checks.check_server(name), *checks.check_node(name)]
    if as_json:
        print_json(
            [{"name": each.name, "met": each.met, "words": each.message} for each in check_results]
        )
    else:
        _print_checks(check_results)
    results = [check.met for check in check_results if check.met is not None]
    sys.exit(0 if results and all(results) else 1)


@pbs.command()
@name_option
@click.option("--config", "config_file", type=click.Path(path_type=Path, exists=True),
              metavar="FILE", help="The configuration (default: what the mom of this node has, or "
              "the defaults).")  # fmt: skip
@click.option("--user", metavar="NAME", help="The user whose job it is (default: you).")
@click.option("--job", metavar="JOBID", help="The job's id (default: 0.warren-test-HOST).")
@click.option("--place", default="pack", show_default=True, metavar="PLACE",
              help="The job's place, as for qsub -l place=PLACE.")  # fmt: skip
@click.option("--sharing", default="default_shared", show_default=True,
              type=click.Choice([name.removeprefix("ND_").lower() for name in SHARING]),
              help="The node's sharing, as the server would report it.")  # fmt: skip
@click.option(
    "--vntype", metavar="TYPE", help="The node's resource vntype, as the server would report it."
)
@click.option("--alarm", default=300.0, show_default=True, metavar="SECONDS",
              type=click.FloatRange(1.0, 3600.0), help="The hook's alarm.")  # fmt: skip
@json_option
def test(
    name: str,
    config_file: Path | None,
    user: str | None,
    job: str | None,
    place: str,
    sharing: str,
    vntype: str | None,
    alarm: float,
    as_json: bool,
) -> None:
    """Run the hook on this node with a dummy job.

    It is run as the mom would run it, for a job that PBS knows nothing of, which begins and
    ends: ATOM is really asked. Exits with 1 if one of the events is not accepted.
    """
    from warren.wlm.pbs import checks, hookfile, hooksetup, qmgr
    from warren.wlm.pbs.trial import Trial

    hooksetup.check_name(name)
    mom_hook = checks.hook_on_mom(name) if config_file is None else None
    if mom_hook is not None:
        hookfile.check_ours(_read_file(mom_hook.file), name)
        config_file = mom_hook.config_file
    node = qmgr.node_name()
    trial = Trial(
        hook=mom_hook.file if mom_hook else hookfile.path(),
        hook_name=name,
        config=config_file,
        node=node,
        jobid=job or f"0.warren-test-{node}",
        user=user or _own_user_name(),
        place=place,
        sharing=sharing,
        vntype=vntype,
        alarm=alarm,
    )
    accepted = True
    for result in trial.run_events():
        accepted = result.accepted
        if as_json:
            print_json({"event": result.event, "happenings": result.reports})
            continue
        click.echo(result.event)
        for line in (*result.log, result.verdict):
            click.echo(f"  {line}")
    sys.exit(0 if accepted else 1)


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserMistake(f"{path} cannot be read: {error.strerror}.") from error


def _own_user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        raise UserMistake("Your user has no name here: say whose job it is with --user.") from None


def _run_directives(qmgr: "Qmgr", directives: "Iterable[QmgrDirective]", dry_run: bool) -> None:
    for directive in directives:
        click.echo(f"qmgr: {directive.command}")
        if not dry_run:
            qmgr.run(directive.command, directive.content)


_MARKS = {True: "ok", False: "NO", None: "? "}


def _print_checks(check_results: "Iterable[Check]") -> None:
    for check in check_results:
        click.echo(f"{_MARKS[check.met]}  {check.name}: {check.message}")
