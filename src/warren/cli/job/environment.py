"""What a job takes over from its author: environment and limits, changed by rules.

The rules are those of `flux submit --env` and `--rlimit`. One for the environment is
`-PATTERN` (take away what matches), `^FILE` (read rules from a file), `NAME=VALUE` (set, with
`$NAME` and `${NAME}` filled in from the author's environment), or `PATTERN` (take over what
matches). Where the first one is of the last kind, the job has nothing but what rules name. A value
that a rule sets and that has a tag such as `{{taskid}}` is for the job shell to fill in.
"""

import re
import resource
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from warren.base.errors import UserMistake

_MAX_DEPTH: Final = 10
"""Of files of rules that name files of rules."""

_LIMIT_NAMES: Final = ("cpu", "fsize", "data", "stack", "core", "nofile", "as", "rss", "nproc")

_VARIABLE_PATTERN = re.compile(r"\$(?:(\w+)|\{(\w+)\})|\$\$")


def apply_rules(
    author_environment: Mapping[str, str], rules: Iterable[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the environment that the rules make, and those of its values that are templates.

    Raises UserMistake where a rule cannot be followed.
    """
    all_rules = list(_read_rules(rules, _MAX_DEPTH))
    starts_empty = bool(all_rules) and not all_rules[0].startswith("-") and "=" not in all_rules[0]
    environment = {} if starts_empty else dict(author_environment)
    assigned_names = set()
    for rule in all_rules:
        name, equals, value = rule.partition("=")
        if rule.startswith("-"):
            environment = {
                name: value for name, value in environment.items() if not _matches(name, rule[1:])
            }
        elif equals:
            environment[name] = _fill(value, {**author_environment, **environment}, rule)
            assigned_names.add(name)
        else:
            environment |= {
                name: value for name, value in author_environment.items() if _matches(name, rule)
            }
    templates = {name for name in assigned_names if "{{" in environment.get(name, "")}
    return environment, {name: environment.pop(name) for name in sorted(templates)}


def _read_rules(rules: Iterable[str], depth: int) -> Iterator[str]:
    for rule in rules:
        if not rule.startswith("^"):
            if not rule.lstrip("-").partition("=")[0]:
                raise UserMistake(f"--env {rule!r} names no variable.")
            yield rule
            continue
        if depth == 0:
            raise UserMistake(f"--env {rule}: files name one another more than {_MAX_DEPTH} deep.")
        try:
            lines = Path(rule[1:]).expanduser().read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UserMistake(f"--env {rule}: the file cannot be read: {error}.") from error
        stripped_lines = (line.strip() for line in lines)
        yield from _read_rules(
            (line for line in stripped_lines if line and line[0] != "#"), depth - 1
        )


def _matches(name: str, pattern: str) -> bool:
    """Match as a shell does, or as a regular expression between slashes."""
    if len(pattern) > 1 and pattern.startswith("/") and pattern.endswith("/"):
        try:
            return re.search(pattern[1:-1], name) is not None
        except re.error as error:
            raise UserMistake(f"--env: {pattern} is not a regular expression: {error}.") from error
    return fnmatchcase(name, pattern)


def _fill(value: str, variables: Mapping[str, str], rule: str) -> str:
    def variable(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name is None:
            return "$"
        if name not in variables:
            raise UserMistake(f"--env {rule}: your environment has no variable {name}.")
        return variables[name]

    return _VARIABLE_PATTERN.sub(variable, value)


def limits(rules: Iterable[str]) -> dict[str, int]:
    """Return the soft limits of the author that the job is to have; -1 is unlimited.

    A rule is `-PATTERN`, `PATTERN` or `NAME=VALUE`; more than one may stand in a text, with
    commas between them. Raises UserMistake where one names no limit.
    """
    author_limits = {name: _author_limit(name) for name in _LIMIT_NAMES}
    job_limits = dict(author_limits)
    for rule in (each for text in rules for each in text.split(",")):
        name, equals, value = rule.removeprefix("-").partition("=")
        matching = [
            limit_name for limit_name in _LIMIT_NAMES if fnmatchcase(limit_name, name.lower())
        ]
        if not matching:
            raise UserMistake(
                f"--rlimit {rule}: there is no limit {name!r}: {', '.join(_LIMIT_NAMES)}."
            )
        if rule.startswith("-"):
            job_limits = {
                limit_name: limit
                for limit_name, limit in job_limits.items()
                if limit_name not in matching
            }
        elif equals:
            job_limits |= dict.fromkeys(matching, _limit_value(value, rule))
        else:
            job_limits |= {limit_name: author_limits[limit_name] for limit_name in matching}
    return job_limits


def _author_limit(name: str) -> int:
    soft, _ = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))
    return -1 if soft == resource.RLIM_INFINITY else soft


def _limit_value(value: str, rule: str) -> int:
    if value in ("unlimited", "infinity", "inf", "-1"):
        return -1
    if not value.isdecimal():
        raise UserMistake(f"--rlimit {rule}: {value!r} is neither a number nor 'unlimited'.")
    return int(value)
