"""Text of others as a terminal may show it."""


def printable(text: str) -> str:
    r"""Return `text` with every character escaped that is not printed: ESC is `\x1b`.

    What one user writes could move the cursor or change the colors of another one's terminal.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
