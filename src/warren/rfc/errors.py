"""What is wrong with a text, and where."""

from warren.base.errors import UserMistake


class BadFormat(UserMistake):
    """A text that is not of its format; the sentence names the text and the place."""
