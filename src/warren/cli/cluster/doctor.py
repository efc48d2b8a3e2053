"""`warren doctor`: find and remove orphaned resources."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from warren.base.errors import UserMistake
from warren.base.printable import printable
from warren.base.words import plural
from warren.cli.common import json_option, print_json, run, statedir_option
from warren.daemons.statedir import StateDir

_NOT_RUNNING: Final = "its cluster is not running: 'warren up' would take it over"


@click.command()
@statedir_option
@click.option("--repair", is_flag=True, help="Remove what is found.")
@json_option
def doctor(statedir: StateDir, repair: bool, as_json: bool) -> None:
    """Look for storage, mounts, processes and objects that nothing owns any more.

    Of a cluster that has died it lists all mounts, devices and processes: the next
    `warren up` takes over its jobs with them, and --repair ends them. Exits with 1
    if something is left in the end. On a machine with an agent of its own it is
    `warren agent doctor`.
    """
    from warren.daemons.doctor import examine_running, examine_stopped

    statedir.check_owner()
    orphans: list[dict[str, Any]]
    if statedir.status() is not None:
        findings, failures = run(examine_running(statedir, repair=repair))
        orphans = [
            {"kind": str(each.type), "where": each.where, "name": each.name, "why": each.why}
            for each in findings
        ]
    elif statedir.shape_file.exists():
        remaining, failures = run(examine_stopped(statedir, repair=repair))
        orphans = [
            {"kind": kind, "where": "", "name": name, "why": _NOT_RUNNING}
            for kind, _, name in (each.partition(" ") for each in remaining)
        ]
    else:
        raise UserMistake(f"{statedir.path} is not the state directory of a cluster.")
    report(orphans, failures, repair=repair, as_json=as_json, command="warren doctor")


def report(
    orphans: Sequence[Mapping[str, Any]],
    failures: Sequence[str],
    *,
    repair: bool,
    as_json: bool,
    command: str,
) -> None:
    """Print the orphaned resources that were found, and exit with 1 if something is left.

    `command` is the one to repeat with --repair.
    """
    if as_json:
        print_json({"found": orphans, "repaired": repair and not failures, "failures": failures})
    else:
        print_findings(orphans, failures, repair=repair, command=command)
    if failures if repair else orphans:
        raise click.exceptions.Exit(1)


def print_findings(
    orphans: Sequence[Mapping[str, Any]],
    failures: Sequence[str],
    *,
    repair: bool,
    command: str,
) -> None:
    """Print what was found, and what could not be removed."""
    for each in orphans:
        location = f"{each['where']}: " if each["where"] else ""
        # Processes have the names that their users give them.
        click.echo(printable(f"{location}{each['kind']} {each['name']}: {each['why']}"))
    for failure in failures:
        click.echo(printable(f"warren: {failure}"), err=True)
    orphans_text = plural(len(orphans), "orphaned resource")
    if not orphans:
        click.echo("no orphaned resources found")
    elif not repair:
        removes = "removes it" if len(orphans) == 1 else "removes them"
        click.echo(f"{orphans_text} found: '{command} --repair' {removes}")
    elif not failures:
        click.echo(f"{orphans_text} removed")
