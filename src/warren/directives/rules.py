"""The rules that directives obey: DWDirectiveRule objects, applied.

The rules come from the cluster, so nothing here knows a command or a key by
name; what is said of a mistake is read from the rule that it breaks.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from warren.directives import capacity
from warren.directives.diagnostics import Finding, Mistake, alternatives, did_you_mean
from warren.directives.parse import Argument, Directive, try_parse
from warren.directives.patterns import BadPattern, occurs


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


class CheckedDirectives(msgspec.Struct, frozen=True):
    """Directives that were read and held against the rules."""

    directives: tuple[Directive | None, ...]
    """None where a text is none."""
    findings: tuple[Finding, ...]
    """In the order of the directives, and of the words of each."""


def check_directives(texts: Iterable[str], rules: Sequence[Rule]) -> CheckedDirectives:
    """Read directives, and find every mistake that they make in form and against the rules."""
    checker = _Checker(rules)
    directives: list[Directive | None] = []
    findings: list[Finding] = []
    for index, text in enumerate(texts):
        result = try_parse(text)
        directives.append(result.directive)
        found_mistakes = [*result.mistakes]
        if result.directive is not None:
            found_mistakes += checker.mistakes(result.directive)
        findings += [Finding(index, mistake) for mistake in _distinct(found_mistakes)]
    return CheckedDirectives(tuple(directives), tuple(findings))


def _distinct(mistakes: Iterable[Mistake]) -> Iterable[Mistake]:
    """Drop what a second rule for the same command says once more."""
    return {(each.start, each.end, str(each)): each for each in mistakes}.values()


class _Checker:
    """The rules by command, and the values that the directives so far have taken."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules_by_command: dict[str, list[Rule]] = {}
        for rule in rules:
            self._rules_by_command.setdefault(rule.command, []).append(rule)
        self._unique_values: dict[tuple[str, str], tuple[Directive, Argument]] = {}

    def mistakes(self, directive: Directive) -> Iterator[Mistake]:
        """Find what is wrong with one directive. The directives of a job have to come in order."""
        rules = self._rules_by_command.get(directive.command.text)
        if rules is None:
            yield self._unknown_command_mistake(directive)
            return
        for rule in rules:
            yield from self._mistakes_by_rule(directive, rule)

    def _unknown_command_mistake(self, directive: Directive) -> Mistake:
        command = directive.command.text
        known = sorted(self._rules_by_command)
        choices = (
            f"it is one of {alternatives(known)}" if known else "no directive rules are installed"
        )
        return directive.mistake(
            directive.command,
            f"Unknown command {command!r}: {choices}.",
            did_you_mean(command, known),
        )

    def _mistakes_by_rule(self, directive: Directive, rule: Rule) -> Iterator[Mistake]:
        matched_keys: set[str] = set()
        unknown_keys: list[str] = []
        for argument in directive.arguments:
            try:
                definition = _definition(rule, argument)
                if definition is None:
                    unknown_keys.append(argument.key.text)
                    yield _unknown_argument_mistake(directive, rule, argument)
                    continue
                matched_keys.add(definition.key)
                yield from _value_mistakes(directive, definition, argument)
            except BadPattern as bad:
                yield _bad_pattern_mistake(directive, argument, bad)
                return  # whatever else the rule says may be as wrong
            yield from self._uniqueness_mistakes(directive, definition, argument)
        for definition in rule.rule_defs:
            if definition.is_required and definition.key not in matched_keys:
                key = _literal(definition.key) or definition.key
                if any(did_you_mean(word, [key]) for word in unknown_keys):
                    continue  # it is there, and misspelled
                yield directive.mistake(
                    directive.command,
                    f"{rule.command} needs {key}=…{_choices_of(definition)}.",
                )

    def _uniqueness_mistakes(
        self, directive: Directive, definition: ArgumentRule, argument: Argument
    ) -> Iterator[Mistake]:
        if not definition.unique_within or not argument.value:
            return
        scope = (definition.unique_within, argument.value.text)
        first_directive, first_argument = self._unique_values.setdefault(
            scope, (directive, argument)
        )
        if first_argument is not argument:  # it is, when a second rule looks at it
            yield directive.mistake(
                argument,
                f"The name {argument.value.text!r} is taken by an earlier "
                f"{first_directive.command.text} of this job.",
            )


def _definition(rule: Rule, argument: Argument) -> ArgumentRule | None:
    """Return the first definition whose key is found in an argument's. Raises BadPattern."""
    key = argument.key.text
    return next((each for each in rule.rule_defs if occurs(each.key, key)), None)


def _unknown_argument_mistake(directive: Directive, rule: Rule, argument: Argument) -> Mistake:
    known = [word for word in (_literal(each.key) for each in rule.rule_defs) if word]
    return directive.mistake(
        argument.key,
        f"Unknown argument {argument.key.text!r} for {rule.command}: "
        f"it takes {alternatives(known)}.",
        did_you_mean(argument.key.text, known),
    )


def _bad_pattern_mistake(directive: Directive, argument: Argument, bad: BadPattern) -> Mistake:
    return directive.mistake(
        argument,
        f"{argument.key.text} cannot be checked: {str(bad).removesuffix('.')}.",
        "Tell an admin, who can correct the DWDirectiveRule.",
    )


_ABSENT: Final = "\0"
"""The value of an argument without one, for patterns: no word that a user means."""


def _value_mistakes(
    directive: Directive, definition: ArgumentRule, argument: Argument
) -> Iterator[Mistake]:
    """Find what is wrong with the value of an argument. Raises BadPattern."""
    key = argument.key.text
    if argument.value is None and definition.type == "bool" and not definition.is_value_required:
        return
    text = _ABSENT if argument.value is None else argument.value.text
    fits = not (argument.value is None and definition.is_value_required)
    if fits:
        fits = _FITS_BY_TYPE.get(definition.type, _fits_any)(definition, text)
    if fits:
        return
    if argument.value is None or not argument.value.text:
        yield directive.mistake(argument, f"{key} needs a value: {key}=…")
    else:
        for sentence, suggestion in _misfits(key, definition, text):
            yield directive.mistake(argument.value, sentence, suggestion)


def _fits_any(definition: ArgumentRule, text: str) -> bool:
    return True


def _fits_string(definition: ArgumentRule, text: str) -> bool:
    return not definition.pattern or occurs(definition.pattern, text)


def _fits_bool(definition: ArgumentRule, text: str) -> bool:
    return not definition.pattern or text.lower() in ("true", "false")


def _fits_integer(definition: ArgumentRule, text: str) -> bool:
    return not any(_integer_misfits("", definition, text))


def _fits_list(definition: ArgumentRule, text: str) -> bool:
    return not any(_list_misfits("", definition, text))


_FITS_BY_TYPE: Final[Mapping[str, Callable[[ArgumentRule, str], bool]]] = {
    "string": _fits_string,
    "bool": _fits_bool,
    "integer": _fits_integer,
    "list-of-string": _fits_list,
}

_Misfits = Iterator[tuple[str, str | None]]
"""Sentences, each with its suggestion."""


def _misfits(key: str, definition: ArgumentRule, text: str) -> _Misfits:
    match definition.type:
        case "integer":
            yield from _integer_misfits(key, definition, text)
        case "list-of-string":
            yield from _list_misfits(key, definition, text)
        case "bool":
            yield f"{key} is true or false, not {text!r}.", None
        case _:
            yield _misfit(key, definition.pattern or "", text)


def _integer_misfits(key: str, definition: ArgumentRule, text: str) -> _Misfits:
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        yield f"{key} is a whole number, not {text!r}.", None
    elif definition.min and int(text) < definition.min:
        yield f"{key} is at least {definition.min}.", None
    elif definition.max and int(text) > definition.max:
        yield f"{key} is at most {definition.max}.", None


_EMPTY_PATTERN: Final = "^$"
"""The pattern of lists that have no words on this cluster: it is that of the empty one alone."""


def _list_misfits(key: str, definition: ArgumentRule, text: str) -> _Misfits:
    seen_words: set[str] = set()
    repeated_words: set[str] = set()
    for word in text.split(","):
        if word in seen_words:
            if word not in repeated_words:
                repeated_words.add(word)
                yield f"{word!r} is repeated in {key}.", None
        elif definition.patterns and not any(occurs(each, word) for each in definition.patterns):
            yield _unknown_word(key, definition, word)
        seen_words.add(word)


def _unknown_word(key: str, definition: ArgumentRule, word: str) -> tuple[str, str | None]:
    if definition.patterns == (_EMPTY_PATTERN,):
        sentence = f"Unknown word {word!r} in {key}: this cluster offers none."
        return sentence, "Leave it out, or ask an admin for it."
    known = [each for each in map(_literal, definition.patterns) if each]
    return (
        f"Unknown word {word!r} in {key}: it takes {alternatives(known or definition.patterns)}.",
        did_you_mean(word, known),
    )


_CAPACITY_UNITS = "KiB|KB|MiB|MB"


def _misfit(key: str, pattern: str, text: str) -> tuple[str, str | None]:
    """Say what a value should have been, read from the pattern that it does not match."""
    words = _words_of_pattern(pattern)
    if words:
        choice = f"one of {alternatives(words)}" if len(words) > 1 else words[0]
        return f"Unknown {key} {text!r}: it is {choice}.", did_you_mean(text, words)
    if _CAPACITY_UNITS in pattern:
        sentence = (
            f"{text!r} is not a {key}: it is a whole number and one of "
            "KiB, MiB, GiB, TiB, KB, MB, GB or TB."
        )
        return sentence, capacity.suggestion(text)
    if pattern == "^[a-z][a-z0-9-]+$":
        suggested_name = re.sub(r"[^a-z0-9-]", "-", text.lower()).lstrip("-0123456789")
        sentence = (
            f"{text!r} is not a {key}: it starts with a letter and has two or more "
            "lower-case letters, digits and '-'."
        )
        return sentence, f"Try {suggested_name}." if len(suggested_name) > 1 else None
    return f"{text!r} is not a {key}: it must match {pattern}.", None


@lru_cache(maxsize=256)
def _words_of_pattern(pattern: str) -> list[str]:
    """Return the words of a pattern such as `^(raw|xfs)$`; empty for other patterns."""
    match = re.fullmatch(r"\^\(([\w-]+(?:\|[\w-]+)*)\)\$", pattern)
    return match[1].split("|") if match else []


def _choices_of(definition: ArgumentRule) -> str:
    words = _words_of_pattern(definition.pattern or "")
    return f", which is {'one of ' if len(words) > 1 else ''}{alternatives(words)}" if words else ""


@lru_cache(maxsize=256)
def _literal(pattern: str) -> str | None:
    """Return the one word that a pattern such as `^type$` matches; None for other patterns."""
    match = re.fullmatch(r"\^([\w-]+)\$", pattern)
    return match[1] if match else None


def watched_states(
    directives: Sequence[Directive], rules: Sequence[Rule]
) -> Iterator[tuple[int, str, str]]:
    """Return (directive index, driver, state) for each piece of work that the rules foresee."""
    for index, directive in enumerate(directives):
        yield from dict.fromkeys(
            (index, rule.driver_label or "", state)
            for rule in rules
            if rule.command == directive.command.text
            for state in rule.states
        )


def rules_of(objects: Iterable[Mapping[str, object]]) -> list[Rule]:
    """Read the rules of all DWDirectiveRule objects of a cluster."""
    return [rule for obj in objects for rule in from_object(obj)]
