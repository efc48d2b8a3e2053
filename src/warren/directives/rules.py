"""The rules that directives obey: DWDirectiveRule objects, applied.

The rules come from the cluster, so nothing here knows a command or a key by
name; what is said of a mistake is read from the rule that it breaks.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from warren.directives import capacity
from warren.directives.diagnostics import did_you_mean, listed
from warren.directives.parse import Argument, Directive


class ArgumentRule(msgspec.Struct, frozen=True, rename="camel"):
    """What one argument may be (`ruleDefs[]`)."""

    key: str
    type: str
    pattern: str | None = None
    patterns: tuple[str, ...] = ()
    min: int = 0
    max: int = 0
    is_required: bool = False
    is_value_required: bool = False
    unique_within: str | None = None


class Rule(msgspec.Struct, frozen=True, rename="camel"):
    """What one command may say, and in which states a driver works on it."""

    command: str
    rule_defs: tuple[ArgumentRule, ...] = ()
    watch_states: str = ""
    driver_label: str | None = None

    @property
    def states(self) -> list[str]:
        return [state for state in self.watch_states.split(",") if state]


def from_object(obj: Mapping[str, object]) -> list[Rule]:
    """Read the rules of one DWDirectiveRule object, whose spec is a list.

    A rule without a driver label is served by the driver named as the object.
    """
    metadata = obj["metadata"]
    assert isinstance(metadata, Mapping)
    rules = msgspec.convert(obj["spec"], type=list[Rule])
    return [
        msgspec.structs.replace(rule, driver_label=rule.driver_label or metadata["name"])
        for rule in rules
    ]


_Taken = dict[tuple[str, str], tuple[Directive, Argument]]
"""Who has a value, by scope and value."""


def check(directives: Sequence[Directive], rules: Sequence[Rule]) -> None:
    """Raise the first Mistake that any of the directives makes against the rules."""
    taken: _Taken = {}
    for directive in directives:
        for rule in matching(directive, rules):
            _check(directive, rule, taken)


def matching(directive: Directive, rules: Sequence[Rule]) -> list[Rule]:
    """Return the rules for a directive's command. Raises Mistake where there is none."""
    command = directive.command.text
    found = [rule for rule in rules if rule.command == command]
    if not found:
        known = sorted({rule.command for rule in rules})
        words = f"it is one of {listed(known)}" if known else "no directive rules are installed"
        raise directive.mistake(
            directive.command,
            f"Unknown command {command!r}: {words}.",
            did_you_mean(command, known),
        )
    return found


def _check(directive: Directive, rule: Rule, taken: _Taken) -> None:
    met: set[str] = set()
    for argument in directive.arguments:
        definition = _definition(directive, rule, argument)
        met.add(definition.key)
        _check_value(directive, definition, argument)
        if definition.unique_within and argument.value:
            scope = (definition.unique_within, argument.value.text)
            holder, first = taken.setdefault(scope, (directive, argument))
            if first is not argument:  # it is, when a second rule looks at it
                raise directive.mistake(
                    argument,
                    f"The name {argument.value.text!r} is taken by an earlier "
                    f"{holder.command.text} of this job.",
                )
    for definition in rule.rule_defs:
        if definition.is_required and definition.key not in met:
            key = _literal(definition.key) or definition.key
            raise directive.mistake(
                directive.command,
                f"{rule.command} needs {key}=…{_choices_of(definition)}.",
            )


def _definition(directive: Directive, rule: Rule, argument: Argument) -> ArgumentRule:
    key = argument.key.text
    for definition in rule.rule_defs:
        if re.search(definition.key, key):
            return definition
    known = [word for word in (_literal(each.key) for each in rule.rule_defs) if word]
    raise directive.mistake(
        argument.key,
        f"Unknown argument {key!r} for {rule.command}: it takes {listed(known)}.",
        did_you_mean(key, known),
    )


def _check_value(directive: Directive, definition: ArgumentRule, argument: Argument) -> None:
    key = argument.key.text
    if argument.value is None or not argument.value.text:
        if definition.is_value_required or (argument.value is None and definition.type != "bool"):
            raise directive.mistake(argument, f"{key} needs a value: {key}=…")
        return
    text = argument.value.text
    match definition.type:
        case "integer":
            _check_integer(directive, definition, argument, text)
        case "list-of-string":
            _check_list(directive, definition, argument, text)
        case "bool" if definition.pattern and text.lower() not in ("true", "false"):
            raise directive.mistake(argument.value, f"{key} is true or false, not {text!r}.")
        case "string" if definition.pattern and not re.search(definition.pattern, text):
            raise directive.mistake(argument.value, *_misfit(key, definition.pattern, text))
        case _:
            pass


def _check_integer(
    directive: Directive, definition: ArgumentRule, argument: Argument, text: str
) -> None:
    assert argument.value is not None
    key = argument.key.text
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise directive.mistake(argument.value, f"{key} is a whole number, not {text!r}.")
    number = int(text)
    if definition.min and number < definition.min:
        raise directive.mistake(argument.value, f"{key} is at least {definition.min}.")
    if definition.max and number > definition.max:
        raise directive.mistake(argument.value, f"{key} is at most {definition.max}.")


def _check_list(
    directive: Directive, definition: ArgumentRule, argument: Argument, text: str
) -> None:
    assert argument.value is not None
    key = argument.key.text
    seen: set[str] = set()
    for word in text.split(","):
        if definition.patterns and not any(re.search(each, word) for each in definition.patterns):
            known = [word for word in map(_literal, definition.patterns) if word]
            raise directive.mistake(
                argument.value,
                f"Unknown word {word!r} in {key}: it takes {listed(known or definition.patterns)}.",
                did_you_mean(word, known),
            )
        if word in seen:
            raise directive.mistake(argument.value, f"{word!r} is repeated in {key}.")
        seen.add(word)


_CAPACITY = "KiB|KB|MiB|MB"


def _misfit(key: str, pattern: str, text: str) -> tuple[str, str | None]:
    """Say what a value should have been, read from the pattern that it does not match."""
    words = _alternatives(pattern)
    if words:
        choice = f"one of {listed(words)}" if len(words) > 1 else words[0]
        return f"Unknown {key} {text!r}: it is {choice}.", did_you_mean(text, words)
    if _CAPACITY in pattern:
        sentence = (
            f"{text!r} is not a {key}: it is a whole number and one of "
            "KiB, MiB, GiB, TiB, KB, MB, GB or TB."
        )
        return sentence, capacity.suggestion(text)
    if pattern == "^[a-z][a-z0-9-]+$":
        fixed = re.sub(r"[^a-z0-9-]", "-", text.lower()).lstrip("-0123456789")
        sentence = (
            f"{text!r} is not a {key}: it starts with a letter and has two or more "
            "lower-case letters, digits and '-'."
        )
        return sentence, f"Try {fixed}." if len(fixed) > 1 else None
    return f"{text!r} is not a {key}: it must match {pattern}.", None


def _alternatives(pattern: str) -> list[str]:
    """Return the words of a pattern such as `^(raw|xfs)$`; empty for other patterns."""
    match = re.fullmatch(r"\^\(([\w-]+(?:\|[\w-]+)*)\)\$", pattern)
    return match[1].split("|") if match else []


def _choices_of(definition: ArgumentRule) -> str:
    words = _alternatives(definition.pattern or "")
    return f", which is {'one of ' if len(words) > 1 else ''}{listed(words)}" if words else ""


def _literal(pattern: str) -> str | None:
    """Return the one word that a pattern such as `^type$` matches; None for other patterns."""
    match = re.fullmatch(r"\^([\w-]+)\$", pattern)
    return match[1] if match else None


def watchers(
    directives: Sequence[Directive], rules: Sequence[Rule]
) -> Iterator[tuple[int, str, str]]:
    """Return (directive index, driver, state) for each piece of work that the rules foresee."""
    seen: set[tuple[int, str, str]] = set()
    for index, directive in enumerate(directives):
        for rule in rules:
            if rule.command != directive.command.text:
                continue
            for state in rule.states:
                entry = (index, rule.driver_label or "", state)
                if entry not in seen:
                    seen.add(entry)
                    yield entry


def rules_of(objects: Iterable[Mapping[str, object]]) -> list[Rule]:
    """Read the rules of all DWDirectiveRule objects of a cluster."""
    return [rule for obj in objects for rule in from_object(obj)]
