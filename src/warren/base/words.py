"""Numbers in sentences."""


def plural(count: int, singular: str, plural_form: str | None = None) -> str:
    """Return a count with its noun: `1 node`, `3 nodes`."""
    return f"{count} {singular if count == 1 else plural_form or singular + 's'}"


def number_asked_for(number: int, noun: str, qualifier: str = "") -> str:
    """Return that many in words: `1 node is asked for`, `3 nodes that ... are asked for`."""
    return f"{plural(number, noun)}{qualifier} {'is' if number == 1 else 'are'} asked for"
