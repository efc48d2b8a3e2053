"""`warren batch`: a script as a job, in an instance of its own on the job's resources.

Options may stand in the script, on lines such as `#FLUX: -N4` (RFC 36); those on the command
line come after them, and so go before them.
"""

import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import click

from warren.base.errors import UserMistake
from warren.cli.common import ask_instance, f58, json_option, print_json
from warren.cli.job import dryrun, scripts
from warren.cli.job import specs as jobspecs
from warren.cli.job.specs import base_jobspec, set_attributes
from warren.cli.job.submit import CONTEXT_SETTINGS, submission_options, submitter
from warren.cli.longoptions import expand_long_options
from warren.daemons.statedir import StateDir
from warren.rfc import submission
from warren.rfc.submission import BadDirective, Submission

DEFAULT_OUTPUT: Final = "flux-{{id}}.out"
"""Where a batch job's output goes if nothing is said."""


class _BatchCommand(click.Command):
    """A command whose options may stand in the script that it is given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first_context = click.Context(self, info_name=ctx.info_name, parent=ctx.parent)
        super().parse_args(first_context, list(args))
        if first_context.params.get("wrap") or not first_context.params.get("script"):
            return super().parse_args(ctx, args)
        script = first_context.params["script"][0]
        submission_directives = _submission_directives(script, scripts.read_script(Path(script)))
        self._check_directives(ctx, script, submission_directives)
        script_arguments = expand_long_options(self, ctx, submission_directives.arguments)
        return super().parse_args(ctx, [*script_arguments, *args])

    def _check_directives(
        self, ctx: click.Context, script: str, submission_directives: Submission
    ) -> None:
        """Raise UserMistake with the line of the first directive that cannot be an option."""
        arguments: list[str] = []
        for line, group in groupby(submission_directives.words, key=lambda word: word.line):
            arguments += [word.text for word in group]
            trial_context = click.Context(self, info_name=ctx.info_name, parent=ctx.parent)
            try:
                super().parse_args(
                    trial_context, [*expand_long_options(self, trial_context, arguments), script]
                )
            except click.UsageError as error:
                raise UserMistake(f"{script}, line {line}: {error.format_message()}") from error


@click.command(cls=_BatchCommand, context_settings=CONTEXT_SETTINGS)
@jobspecs.jobspec_options
@click.option("-n", "--nslots", type=click.IntRange(1), metavar="N",
              help="How many slots the job's own instance has for tasks.")  # fmt: skip
@click.option("-c", "--cores-per-slot", type=click.IntRange(1), default=1, metavar="N",
              help="Cores of each slot.")  # fmt: skip
@click.option("-g", "--gpus-per-slot", type=click.IntRange(0), default=0, metavar="N",
              help="GPUs of each slot.")  # fmt: skip
@submission_options
@json_option
@click.option("--wrap", is_flag=True, help="SCRIPT is a command, to be run by /bin/sh.")
@click.argument("script", nargs=-1, required=True, type=click.UNPROCESSED)
def batch(
    statedir: StateDir,
    as_json: bool,
    dry_run: bool,
    urgency: int,
    flags: int,
    wrap: bool,
    script: tuple[str, ...],
    **options: Any,
) -> None:
    """Submit SCRIPT, with its arguments, as a batch job and print its id.

    The script runs once. What it submits and runs with warren uses the job's
    own resources. Its #DW lines are the job's directives, if no dw attribute is
    given. Output goes to flux-{{id}}.out, unless --output says where.
    """
    spec = batch_spec(script, wrap=wrap, **options)
    scripts.print_warnings([spec], None if wrap else script[0])
    if dry_run:
        print_json(spec)
        dryrun.print_outcomes(statedir, [spec], urgency, flags)
        return
    job = ask_instance(statedir, submitter(statedir, spec, urgency, flags))
    if as_json:
        print_json({"id": f58(job)})
    else:
        click.echo(f58(job))


def batch_spec(
    script: Sequence[str],
    *,
    wrap: bool = False,
    nodes: int | None = None,
    nslots: int | None = None,
    cores_per_slot: int = 1,
    gpus_per_slot: int = 0,
    exclusive: bool = False,
    output: str | None = None,
    job_name: str | None = None,
    attributes: tuple[str, ...] = (),
    **options: Any,
) -> dict[str, Any]:
    """Make the jobspec of a batch job. Raises UserMistake where it makes none."""
    if nodes is None and nslots is None:
        raise UserMistake("Say how much the batch job is to have: -n SLOTS, -N NODES, or both.")
    text = f"#!/bin/sh\n{' '.join(script)}\n" if wrap else scripts.read_script(Path(script[0]))
    if not text.startswith("#!"):
        raise UserMistake(f"{script[0]}: a batch script starts with #! and its interpreter.")
    # On every node of the job a process of its instance; the first one runs the script.
    command = [sys.executable, "-P", "-m", "warren.daemons.batchinstance", "{{tmpdir}}/script"]
    spec = base_jobspec(
        [*command, *(() if wrap else script[1:])],
        counts={
            "nodes": nodes,
            "tasks": nslots,
            "cores": cores_per_slot,
            "gpus": gpus_per_slot,
            "exclusive": exclusive,
        },
        job_name=job_name or (Path(script[0]).name if not wrap else script[0].split()[0]),
        output=output or DEFAULT_OUTPUT,
        **options,
    )
    system = spec["attributes"]["system"]
    # The others wait for the first one, however long the script runs.
    shell_options = {"per-resource": {"type": "node"}, "mpi": "none", "exit-timeout": "none"}
    system.setdefault("shell", {}).setdefault("options", {}).update(shell_options)
    data = text.encode(errors="surrogateescape")
    system.setdefault("files", {})["script"] = jobspecs.file_entry(data, 0o700)
    set_attributes(spec, attributes)
    directives = scripts.script_directives(text)
    if directives and "dw" not in system:
        system["dw"] = "\n".join(directives)
    return spec


def _submission_directives(script: str, text: str) -> Submission:
    """Read the `#FLUX:` lines of a script. Raises UserMistake."""
    try:
        return submission.parse(text)
    except BadDirective as error:
        raise UserMistake(f"{script}:\n{error.text_with_carets}") from error
