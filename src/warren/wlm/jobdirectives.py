"""The directives of a job, as its jobspec has them, and how many they may be.

Commands and the shells of all jobs look at them, and need to know no more of storage.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from warren.base.errors import UserMistake
from warren.directives.parse import split
from warren.rfc import jobspec as jobspecs

MAX_DIRECTIVES: Final = 64
"""Directives of one job. Each has objects of its own, and every reconcile looks at all of them."""

MAX_CHARS: Final = 2**16
"""Characters of all directives of one job: objects and their journal have them again and again."""


def directives(spec: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return a job's directives, one in each string; None if it has no `dw` attribute."""
    system = jobspecs.system(spec)
    if "dw" not in system:
        return None
    dw = system["dw"]
    blocks = [dw] if isinstance(dw, str) else dw if isinstance(dw, list) else []
    return tuple(each for block in blocks if isinstance(block, str) for each in split(block))


def check_directive_limits(texts: Sequence[str]) -> None:
    """Raise UserMistake for more directives, or longer ones, than one job may have."""
    if len(texts) > MAX_DIRECTIVES:
        raise UserMistake(
            f"The job has {len(texts)} directives, and one has {MAX_DIRECTIVES} at most: "
            "copy a directory rather than each file in it."
        )
    if sum(map(len, texts)) > MAX_CHARS:
        raise UserMistake(
            f"The job's directives have {sum(map(len, texts))} characters together, and "
            f"{MAX_CHARS} at most: use shorter names, such as that of a link."
        )
