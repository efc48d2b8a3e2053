"""Scripts that are submitted: their text, their directives, and what their author is told of them.

A refusal ends the submission. A remark does not: what it is about may be meant so.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from warren.base.errors import UserMistake
from warren.directives import script
from warren.directives.diagnostics import Mistake, did_you_mean
from warren.directives.parse import Directive, Token, parse
from warren.rfc import jobspec
from warren.wlm import jobdirectives

MAX_BYTES: Final = 2**20
"""Bytes of a script."""

_SEARCHED_BYTES: Final = 65536
"""How many bytes of a program are searched for directives."""


def read_script(path: Path) -> str:
    """Read a script. Raises UserMistake where there is none, or it is too large."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UserMistake(f"{path}: {error.strerror}.") from error
    if len(data) > MAX_BYTES:
        raise UserMistake(f"{path}: a script has up to 1 MiB; run what is larger from the script.")
    return data.decode(errors="surrogateescape")


def script_directives(text: str) -> list[str]:
    """Return the directives in a script's text, with the author's environment filled in."""
    return [_expand_or_refuse(line) for line in script.read(text).directives]


def program_directives(program: str) -> list[str]:
    """Return the directives of a program that a command line names, if it is a script."""
    return script_directives(_read_beginning(program))


def check_directive_limits(directives: Sequence[str]) -> None:
    """Raise UserMistake for more directives, or longer ones, than ingest takes."""
    jobdirectives.check_directive_limits(directives)


SHELL_OPTIONS: Final = (
    "cpu-affinity", "exit-on-error", "exit-timeout", "gpu-affinity", "hwloc", "initrc", "input",
    "mpi", "nosetpgrp", "oom", "output", "per-resource", "pmi", "pty", "rlimit", "signal",
    "stage-in", "stop-tasks-in-exec", "taskmap", "userrc", "verbose",
)  # fmt: skip
"""What Flux's shell, or ours, takes for an option. Others are for plugins of a site."""


def print_warnings(specs: Iterable[Mapping[str, Any]], program: str | None) -> None:
    """Warn, once each, of what in the script and its directives may be a mistake."""
    remarks = [] if program is None else _script_warnings(program)
    for each in dict.fromkeys(
        [
            *remarks,
            *(
                warning
                for spec in specs
                for warning in (*_copy_warnings(spec), *_option_warnings(spec))
            ),
        ]
    ):
        click.echo(f"warren: warning: {each}", err=True)


def _script_warnings(program: str) -> list[str]:
    return [
        remark.text_with_carets(program) for remark in script.read(_read_beginning(program)).remarks
    ]


def _copy_warnings(spec: Mapping[str, Any]) -> Iterator[str]:
    """Warn of what is to be copied in, and is not there, as far as the author can see."""
    for text in jobdirectives.directives(spec) or ():
        try:
            directive = parse(text)
        except Mistake:
            continue  # its refusal says more
        source = _copy_source(directive)
        if source is not None and _is_missing(source.text):
            sentence = "There is no such file or directory now."
            remedy = "The copy fails if there is none when the job starts."
            mistake = directive.mistake(source, sentence, remedy)
            yield f"what is to be copied in:\n{mistake.text_with_carets}"


def _option_warnings(spec: Mapping[str, Any]) -> Iterator[str]:
    """Warn of shell options that neither Flux's shell nor ours has.

    They are no mistake: a shell with other plugins may know them.
    """
    for name in jobspec.system(spec).get("shell", {}).get("options", {}):
        if name not in SHELL_OPTIONS:
            suggestion = did_you_mean(name, SHELL_OPTIONS) or ""
            yield f"-o {name}: the job shell has no option of this name. {suggestion}".rstrip()


def _copy_source(directive: Directive) -> Token | None:
    argument = directive.argument("source") if directive.command.text == "copy_in" else None
    return None if argument is None else argument.value


def _is_missing(source: str) -> bool:
    """Return whether a path names nothing, in a file system that is to be seen from here."""
    path = Path(source)
    if not path.is_absolute():
        return False
    try:
        path.stat()
    except FileNotFoundError:
        # Of another machine's file system not even the first directory may be here.
        return len(path.parts) > 1 and Path(*path.parts[:2]).is_dir()
    except (OSError, ValueError):
        return False
    return False


def _read_beginning(program: str) -> str:
    path = Path(program)
    if "/" not in program or not path.is_file():
        return ""
    try:
        with path.open("rb") as file:
            return file.read(_SEARCHED_BYTES).decode(errors="replace")
    except OSError:
        return ""  # a program may be executable, and not readable


def _expand_or_refuse(line: str) -> str:
    """Fill variables in. Raises UserMistake with all of them that cannot be."""
    text, mistakes = expand(line)
    if mistakes:
        raise UserMistake(
            "\n".join(["the job is refused.", *(each.text_with_carets for each in mistakes)])
        )
    return text


def expand(line: str) -> tuple[str, list[Mistake]]:
    """Return a text with the environment's variables filled in, and those that cannot be."""
    mistakes: list[Mistake] = []

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name.startswith("DW_"):
            return match[0]
        variable_value = os.environ.get(name)
        if variable_value is None:
            sentence = f"Your environment has no variable {name}."
            remedy = "Set it, or write the path."
        elif re.search(r"=\S*$", line[: match.start()]) and re.search(r"\s", variable_value):
            sentence = (
                f"Your variable {name} is {variable_value!r}, and a value ends at the first space."
            )
            remedy = "Use a path without spaces, such as that of a link."
        else:
            return variable_value
        mistakes.append(Mistake(line, match.start(), match.end(), sentence, remedy))
        return match[0]

    return re.sub(r"\$(?:(\w+)|\{(\w+)\})", value, line), mistakes
