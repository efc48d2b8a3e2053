"""Commands of profiles: an admin's words, made into argument vectors (dws-spec section 10).

No shell reads them. Words are split as a shell splits them, and variables stand for text
within their words, whatever is in that text; `$DEVICE_LIST` alone is a word for each device.
What a shell would do beside that is refused, and so is a variable that is not known.
"""

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from warren.base.errors import UserMistake
from warren.directives.diagnostics import did_you_mean

VARIABLES: Final = {
    "$ALLOCATION_COUNT", "$BACKFS", "$CLUSTER_NAME", "$COMPUTE_HOSTNAME", "$DEVICE", "$DEVICE_LIST",
    "$DEVICE_NUM", "$DEVICE_NUM-1", "$DEVICE_NUM-2", "$DIRECTIVE_INDEX",
    "$FS_NAME", "$GROUPID", "$HOST_COUNT", "$INDEX", "$JOBID",
    "$LOCK_SPACE", "$LV_NAME", "$LV_SIZE", "$MGS_NID", "$MOUNT_PATH", "$NEW_DEVICE", "$NUM_MDTS",
    "$NUM_MGTMDTS", "$NUM_MGTS", "$NUM_NNFNODES", "$NUM_OSTS", "$OLD_DEVICE", "$PERCENT_VG",
    "$POOL_NAME", "$PROTOCOL", "$TARGET_NAME", "$USERID", "$VG_NAME", "$WORKFLOW_UID", "$ZVOL_NAME",
}  # fmt: skip
"""What commands of a profile may name, beside a number after `$DEVICE`."""

PER_RABBIT_VARIABLES: Final = ("$ALLOCATION_COUNT", "$HOST_COUNT")
"""Variables whose values each rabbit has for itself."""

_FIXED_VARIABLES: Final = {
    "$CLUSTER_NAME", "$DEVICE", "$DEVICE_LIST", "$FS_NAME", "$INDEX", "$LOCK_SPACE", "$LV_NAME",
    "$MOUNT_PATH", "$POOL_NAME", "$TARGET_NAME", "$VG_NAME", "$ZVOL_NAME",
}  # fmt: skip
"""Variables by whose values an agent finds again what it has made, beside a number after `$DEVICE`:
with another one in a command line, it would make it elsewhere, again and again."""

# The numbers without one parity device, or two, are variables of NNF's.
_VARIABLE_PATTERN: Final = re.compile(r"\$DEVICE_NUM-[12](?![0-9])|\$[A-Z][A-Z0-9_]*")
_OPERATOR_CHARACTERS: Final = frozenset("();<>|&")

BLOCK_DEVICE_COMMANDS: Final = "blockDeviceCommands"
FILE_SYSTEM_COMMANDS: Final = "fileSystemCommands"


def is_variable(name: str) -> bool:
    """Return whether there is a variable of a name, which begins with `$`."""
    return name in VARIABLES or _is_numbered_device(name)


def is_fixed(name: str) -> bool:
    """Return whether a variable has the value that a node gives it, and no other."""
    return name in _FIXED_VARIABLES or _is_numbered_device(name)


def _is_numbered_device(name: str) -> bool:
    return re.fullmatch(r"\$DEVICE\d+", name) is not None


def unknown_variable_message(name: str) -> str:
    """Say that there is no such variable, and which one may be meant."""
    remedy = did_you_mean(name, VARIABLES)
    why = f"there is no variable {name!r}"
    return f"{why}. {remedy}" if remedy else why


def mistakes(line: str) -> Iterator[str]:
    """Return what is wrong with a command line of a profile, whatever its variables stand for."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        yield f"{line!r} cannot be split into words: {error}"
        return
    operators = [each for each in _tokens(line) if each and {*each} <= _OPERATOR_CHARACTERS]
    if operators or "`" in line:
        yield (
            f"{operators[0] if operators else '`'} is for a shell, and none reads {line!r}: name a "
            "script instead"
        )
    for word in words:
        for name in _VARIABLE_PATTERN.findall(word):
            if not is_variable(name):
                yield unknown_variable_message(name)


def variables_in(line: str) -> Iterator[str]:
    """Return the variables that a line names, each once."""
    yield from dict.fromkeys(_VARIABLE_PATTERN.findall(line))


def changes_one_volume(words: Sequence[str], volume: str) -> bool:
    """Return whether words of an lvchange name one volume, `GROUP/NAME`, and not its group."""
    group = volume.partition("/")[0]
    named_paths = {word.removeprefix("/dev/") for word in words}
    return volume in named_paths and group not in named_paths


def _tokens(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    return list(lexer)


def vector(path: str, line: str, values: Mapping[str, str | Sequence[str]]) -> list[str]:
    """Return the words of a command line, with its variables replaced.

    Raises UserMistake, which names `path`, the command's place in the profile.
    """
    for why in mistakes(line):
        raise UserMistake(f"{path}: {why}.")
    vector_words: list[str] = []
    for word in shlex.split(line):
        word_value = values.get(word)
        if word_value is not None and not isinstance(word_value, str):
            vector_words.extend(word_value)
            continue
        vector_words.append(
            _VARIABLE_PATTERN.sub(lambda match: _value(path, match[0], values), word)
        )
    return vector_words


def join(words: Iterable[str]) -> str:
    """Return a line that is split into these words again. Only what has to be is quoted."""
    return " ".join(word if _is_plain(word) else shlex.quote(word) for word in words)


def _is_plain(word: str) -> bool:
    try:
        return shlex.split(word) == [word] and not any(mistakes(word))
    except ValueError:
        return False


def _value(path: str, name: str, values: Mapping[str, str | Sequence[str]]) -> str:
    value = values.get(name)
    if value is None:
        known_names = ", ".join(sorted(values))
        raise UserMistake(f"{path}: {name} has no value here, where there are {known_names}.")
    return value if isinstance(value, str) else " ".join(value)


def lines_of(data: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Return all command lines below a place in a profile, each with its own place.

    Raises UserMistake for what is neither a line, nor a list or a group of lines.
    """
    for name, value in data.items():
        where = f"{path}.{name}"
        if isinstance(value, str):
            yield where, value
        elif isinstance(value, Mapping):
            yield from lines_of(value, where)
        elif isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
            yield from ((where, each) for each in value)
        elif not isinstance(value, bool):  # sharedVg
            raise UserMistake(f"{where}: a command is a text, or a list of texts.")


class ProfileCommands(msgspec.Struct, frozen=True, kw_only=True):
    """The commands of a profile for one storage, and values of variables that are known."""

    variables: Mapping[str, str] = {}
    overrides: Mapping[str, Mapping[str, str]] = {}
    """Values that hold whatever a node says, by the place in the profile of the lines that they
    are for."""
    lines: Mapping[str, tuple[str, ...]] = {}
    """By their places in the profile. Lines that are empty are not there."""
    file_system: str = ""
    """The type of file system that they are for."""

    def __bool__(self) -> bool:
        return bool(self.lines)

    def within(self, group: str) -> "ProfileCommands":
        """Return those below a group, such as `fileSystemCommands.computeCommands`."""
        own_lines = {path: lines for path, lines in self.lines.items() if f".{group}." in path}
        overrides = {
            group_path: values
            for group_path, values in self.overrides.items()
            if any(_is_below(path, group_path) for path in own_lines)
        }
        variables = self.variables if own_lines else {}
        return msgspec.structs.replace(
            self, variables=variables, overrides=overrides, lines=own_lines
        )

    def outside(self, group: str) -> "ProfileCommands":
        """Return those that are not below a group, such as `computeCommands`."""
        own_lines = {path: lines for path, lines in self.lines.items() if f".{group}." not in path}
        return msgspec.structs.replace(self, lines=own_lines)

    def only(self, names: Collection[str]) -> "ProfileCommands":
        """Return those of these names, such as `mountCompute`: the last part of their places."""
        own_lines = {
            path: lines for path, lines in self.lines.items() if path.rpartition(".")[2] in names
        }
        return msgspec.structs.replace(self, lines=own_lines)

    def without_variables(self, names: Collection[str]) -> "ProfileCommands":
        """Return them without the values of some variables, but for those that are overridden."""
        remaining = {name: value for name, value in self.variables.items() if name not in names}
        return msgspec.structs.replace(self, variables=remaining)

    def with_variables(self, values: Mapping[str, str]) -> "ProfileCommands":
        """Return them with the values of more variables."""
        return msgspec.structs.replace(self, variables={**self.variables, **values})

    def vectors(self, name: str, values: Mapping[str, str | Sequence[str]]) -> list[list[str]]:
        """Return the argument vectors of a command, whose place ends so; none if it is not there.

        Raises UserMistake.
        """
        return [
            vector(path, line, {**self.variables, **values, **self._overrides_for(path)})
            for path, lines in self.lines.items()
            if path.endswith(f".{name}")
            for line in lines
        ]

    def _overrides_for(self, path: str) -> Mapping[str, str]:
        for group_path, values in self.overrides.items():
            if _is_below(path, group_path):
                return values
        return {}

    def vector(self, name: str, values: Mapping[str, str | Sequence[str]]) -> list[str] | None:
        """Return the argument vector of a command of which there is one. Raises UserMistake."""
        argument_vectors = self.vectors(name, values)
        return argument_vectors[0] if argument_vectors else None

    def has(self, name: str) -> bool:
        """Return whether there is a command whose place ends so."""
        return any(path.endswith(f".{name}") for path in self.lines)


def _is_below(path: str, group_path: str) -> bool:
    return path.startswith(f"{group_path}.")


NO_COMMANDS: Final = ProfileCommands()


def collect(
    fs_type: str,
    lines_with_paths: Iterable[tuple[str, str]],
    variables: Mapping[str, str],
    overrides: Mapping[str, Mapping[str, str]] = {},
) -> ProfileCommands:
    """Return the commands of these lines, by their places; NO_COMMANDS where all are empty."""
    lines: dict[str, tuple[str, ...]] = {}
    for path, line in lines_with_paths:
        if line.strip():
            lines[path] = (*lines.get(path, ()), line)
    if not lines:
        return NO_COMMANDS
    nonempty_overrides = {group_path: values for group_path, values in overrides.items() if values}
    return ProfileCommands(
        variables=variables, overrides=nonempty_overrides, lines=lines, file_system=fs_type
    )


def encode(commands: ProfileCommands) -> str:
    """Return commands as the text of an annotation."""
    return msgspec.json.encode(commands).decode()


def decode(text: str | None) -> ProfileCommands:
    """Return the commands that an annotation has; none without one. Raises UserMistake."""
    if text is None:
        return NO_COMMANDS
    try:
        return msgspec.json.decode(text, type=ProfileCommands)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UserMistake(f"commands that cannot be read: {error}.") from None
