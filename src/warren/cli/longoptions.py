"""Long options that are cut short: `--time` for `--time-limit`, as flux takes them."""

from collections.abc import Iterator, Sequence

import click


def expand_long_options(
    command: click.Command, ctx: click.Context, words: Sequence[str]
) -> list[str]:
    """Return a command line with its long options in full.

    What no option begins with is left as it is, for the parser to refuse. Raises UsageError
    where several options begin with a word.
    """
    options = [each for each in command.get_params(ctx) if isinstance(each, click.Option)]
    options_by_name = {
        name: each for each in options for name in (*each.opts, *each.secondary_opts)
    }
    may_be_interspersed = command.context_settings.get(
        "allow_interspersed_args", command.allow_interspersed_args
    )
    rest_of_words = list(words)
    expanded: list[str] = []
    while rest_of_words:
        word = rest_of_words.pop(0)
        if word == "--" or (not _is_option(word) and not may_be_interspersed):
            return [*expanded, word, *rest_of_words]
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            full = _full_name(name, options_by_name)
            expanded.append(f"{full}{equals}{value}")
            option = None if equals else options_by_name.get(full)
        else:
            expanded.append(word)
            option = _option_taking_next(word, options_by_name) if _is_option(word) else None
        if option is not None and _takes_next_word(option, rest_of_words):
            expanded += rest_of_words[: option.nargs]
            del rest_of_words[: option.nargs]
    return expanded


def _is_option(word: str) -> bool:
    return word.startswith("-") and word != "-"


def _full_name(name: str, options_by_name: dict[str, click.Option]) -> str:
    if name in options_by_name:
        return name
    candidates = sorted(full for full in options_by_name if full.startswith(name))
    if len({id(options_by_name[full]) for full in candidates}) > 1:
        raise click.UsageError(f"{name} may be {', '.join(candidates)}: write more of it.")
    return candidates[0] if candidates else name


def _option_taking_next(word: str, options_by_name: dict[str, click.Option]) -> click.Option | None:
    """Return the option of a word such as -xN that takes the next one, if any does."""
    for letter, rest_of_word in _letters(word):
        option = options_by_name.get(f"-{letter}")
        if option is None:
            return None
        if not _is_switch(option):
            return None if rest_of_word else option
    return None


def _letters(word: str) -> Iterator[tuple[str, str]]:
    for index, letter in enumerate(word[1:], 1):
        yield letter, word[index + 1 :]


def _is_switch(option: click.Option) -> bool:
    return option.is_flag or option.count


def _takes_next_word(option: click.Option, rest_of_words: Sequence[str]) -> bool:
    if _is_switch(option):
        return False
    # One whose value may be left out takes no other option for it.
    value_is_optional = isinstance(option.flag_value, str)
    return not (value_is_optional and (not rest_of_words or _is_option(rest_of_words[0])))
