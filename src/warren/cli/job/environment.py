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

_LIMITS: Final = ("cpu", "fsize", "data", "stack", "core", "nofile", "as", "rss", "nproc")

_NAME = re.compile(r"\$(?:(\w+)|\{(\w+)\})|\$\$")


def apply_rules(
    author_environment: Mapping[str, str], rules: Iterable[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the environment that the rules make, and those of its values that are templates.

    Raises UserMistake where a rule cannot be followed.
    """
    all_rules = list(_read(rules, _MAX_DEPTH))
    starts_empty = bool(all_rules) and not all_rules[0].startswith("-") and "=" not in all_rules[0]
    found = {} if starts_empty else dict(author_environment)
    assigned = set()
    for rule in all_rules:
        name, equals, value = rule.partition("=")
        if rule.startswith("-"):
            found = {name: value for name, value in found.items() if not _matches(name, rule[1:])}
        elif equals:
            found[name] = _fill(value, {**author_environment, **found}, rule)
            assigned.add(name)
        else:
            found |= {
                name: value for name, value in author_environment.items() if _matches(name, rule)
            }
    templates = {name for name in assigned if "{{" in found.get(name, "")}
    return found, {name: found.pop(name) for name in sorted(templates)}


def _read(rules: Iterable[str], depth: int) -> Iterator[str]:
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
        wanted = (line.strip() for line in lines)
        yield from _read((line for line in wanted if line and line[0] != "#"), depth - 1)


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

    return _NAME.sub(variable, value)


def limits(rules: Iterable[str]) -> dict[str, int]:
    """Return the soft limits of the author that the job is to have; -1 is unlimited.

    A rule is `-PATTERN`, `PATTERN` or `NAME=VALUE`; more than one may stand in a text, with
    commas between them. Raises UserMistake where one names no limit.
    """
    author_limits = {name: _limit(name) for name in _LIMITS}
    found = dict(author_limits)
    for rule in (each for text in rules for each in text.split(",")):
        name, equals, value = rule.removeprefix("-").partition("=")
        matching = [limit_name for limit_name in _LIMITS if fnmatchcase(limit_name, name.lower())]
        if not matching:
            raise UserMistake(f"--rlimit {rule}: there is no limit {name!r}: {', '.join(_LIMITS)}.")
        if rule.startswith("-"):
            found = {
                limit_name: limit
                for limit_name, limit in found.items()
                if limit_name not in matching
            }
        elif equals:
            found |= dict.fromkeys(matching, _number(value, rule))
        else:
            found |= {limit_name: author_limits[limit_name] for limit_name in matching}
    return found


def _limit(name: str) -> int:
    soft, _ = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))
    return -1 if soft == resource.RLIM_INFINITY else soft


def _number(value: str, rule: str) -> int:
    if value in ("unlimited", "infinity", "inf", "-1"):
        return -1
    if not value.isdecimal():
        raise UserMistake(f"--rlimit {rule}: {value!r} is neither a number nor 'unlimited'.")
    return int(value)
