"""The command of an NnfDataMovementProfile: what it may say, what is run, what its output means.

There is no shell: a command is words, and each variable is replaced within its word, whatever the
path is like that it stands for. `warren-copy` is our own copier, with its options; everything else
is a program such as `rsync` or `mpirun ... dcp` (dws-spec section 11.4, ADR 084).
"""

import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from warren.base.errors import UserMistake
from warren.directives import capacity
from warren.directives.diagnostics import did_you_mean
from warren.dws.copies.staging import Plan
from warren.dws.node import Copy

OWN_COPIER: Final = "warren-copy"

_VARIABLES: Final = ("$HOSTFILE", "$UID", "$GID", "$SRC", "$DEST")
_VARIABLE_PATTERN: Final = re.compile(r"\$\w*")
_ULIMIT_PATTERN: Final = re.compile(r"\s*ulimit\s+-n\s+(\d+)\s*&&\s*")
"""What the profile of NNF begins with: all of a shell that is understood."""
_SHELL_OPERATORS: Final = frozenset("();<>|&")


class CopyMethod(msgspec.Struct, frozen=True, kw_only=True):
    """How copies are made."""

    words: Sequence[str] = ()
    """Of the command of another program."""
    verify: bool = False
    rate: int = 0
    """Bytes a second, at most; 0 is no limit."""


def _lexer(command: str) -> shlex.shlex:
    """Return what splits a command into words, of which a shell's operators are some."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="".join(sorted(_SHELL_OPERATORS)))
    lexer.whitespace_split = True
    lexer.commenters = ""
    return lexer


def parse(text: str) -> CopyMethod:
    """Read the command of a profile. Raises UserMistake."""
    ulimit = _ULIMIT_PATTERN.match(text)
    command = text[ulimit.end() :] if ulimit else text
    try:
        words = list(_lexer(command))
    except ValueError as error:
        raise UserMistake(f"{text!r} is no command: {error}.") from None
    if not words:
        raise UserMistake("The command is empty: name a program, $SRC and $DEST.")
    for word in words:
        if "`" in word or (word and _SHELL_OPERATORS.issuperset(word)):
            raise UserMistake(f"{word!r} is a shell's, and the command is run without one.")
    for word in words:
        for name in _VARIABLE_PATTERN.findall(word):
            if name not in _VARIABLES:
                remedy = did_you_mean(name, _VARIABLES) or "Take " + ", ".join(_VARIABLES)
                raise UserMistake(f"There is no variable {name!r}. {remedy}")
    for name in ("$SRC", "$DEST"):
        if not any(name in _VARIABLE_PATTERN.findall(word) for word in words):
            raise UserMistake(f"The command does not say what becomes of {name}.")
    if words[0] == OWN_COPIER:
        return _parse_own_copier(words[1:])
    prefix = ["prlimit", f"--nofile={ulimit[1]}"] if ulimit else []
    return CopyMethod(words=(*prefix, *words))


def _parse_own_copier(words: Sequence[str]) -> CopyMethod:
    options = [word for word in words if word not in ("$SRC", "$DEST")]
    verify, rate = False, 0
    for option in options:
        name, _, value = option.partition("=")
        if option == "--verify":
            verify = True
        elif name == "--rate":
            rate = capacity.parse(value.removesuffix("/s"))
            if rate == 0:
                raise UserMistake(f"{option!r} is no rate: write more, such as --rate=500MiB/s.")
        else:
            raise UserMistake(
                f"{OWN_COPIER} has no {option!r}: its options are --verify and --rate=SIZE."
            )
    return CopyMethod(verify=verify, rate=rate)


def hostfile_text(slots: int, max_slots: int) -> str:
    """Return what is in the file of hosts: the rabbit itself."""
    settings = [f"slots={slots}"] * bool(slots) + [f"max_slots={max_slots}"] * bool(max_slots)
    return " ".join(["localhost", *settings]) + "\n"


def argument_vector(copy: Copy, plan: Plan, source_is_directory: bool, hostfile: str) -> list[str]:
    """Return the argument vector of a copy."""
    source, destination = paths(plan, source_is_directory)
    values = {
        "$HOSTFILE": hostfile,
        "$UID": str(copy.userid),
        "$GID": str(copy.groupid),
        "$SRC": source,
        "$DEST": destination,
    }
    return [_VARIABLE_PATTERN.sub(lambda match: values[match[0]], word) for word in copy.command]


def paths(plan: Plan, source_is_directory: bool) -> tuple[str, str]:
    """Return the source and the destination of a plan, as programs like cp understand them."""
    if plan.contents_only:
        return f"{plan.source.rstrip('/')}/", posixpath.join(plan.top, *plan.parts, "")
    if source_is_directory:
        return plan.source.rstrip("/") or "/", posixpath.join(plan.top, *plan.parts[:-1], "")
    return plan.source, posixpath.join(plan.top, *plan.parts)


# What its output says

_PERCENT_PATTERN: Final = re.compile(r"(\d{1,3})(?:\.\d+)?%")
_TOTAL_PATTERN: Final = re.compile(
    r"(?:\[[^]]*\]\s*)?(Items|Directories|Files|Links|Data|Rate|Seconds):\s*(\S.*)"
)
_COUNT_NAMES: Final = frozenset({"items", "directories", "files", "links"})

INT32_MAX: Final = 2**31 - 1
"""What `commandStatus` can count, which the API has as int32."""


def parse_output(line: str) -> Mapping[str, str]:
    """Return what a line of output says, in the words of `commandStatus`; all values as text.

    `progress_mark` is what stays the same while nothing is copied: the line as far as its
    percentage, since times come after that.
    """
    status = {"lastMessage": line}
    total = _TOTAL_PATTERN.fullmatch(line.strip())
    if total is not None:
        name, value = total[1].lower(), total[2].strip()
        if name not in _COUNT_NAMES or _is_count(value):
            status[name] = value
    percent = _PERCENT_PATTERN.search(line)
    if percent is not None:
        status["progress"] = str(min(100, int(percent[1])))
    return {**status, "progress_mark": line[: percent.end()] if percent is not None else line}


def _is_count(text: str) -> bool:
    """Return whether a text is a number that `commandStatus` has room for."""
    # A name of a file may be a line of output: by its length, before it is a number.
    return text.isdecimal() and len(text) <= len(str(INT32_MAX)) and int(text) <= INT32_MAX


def command_status(texts: Mapping[str, str]) -> dict[str, object]:
    """Return what output says as `commandStatus` has it."""
    number_names = {"progress", *_COUNT_NAMES}
    return {
        name: int(text) if name in number_names else text
        for name, text in texts.items()
        if name != "progress_mark"
    }
