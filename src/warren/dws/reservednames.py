"""Prefixes of names that users may not choose: those of what is made for jobs and rabbits.

Persistent storage and all that it consists of has the name that its user has chosen, in the same
namespace.
"""

from typing import Final

FLUX_JOB_PREFIX: Final = "fluxjob-"
"""What is made for a job of Flux, whose id follows: its Workflow, Servers and NnfStorages."""
SELF_TEST_PREFIX: Final = "self-test-"
"""The NnfStorage by which a rabbit is tested, whose name follows (`dws.rabbits.selftest`)."""

PREFIXES: Final = (FLUX_JOB_PREFIX, SELF_TEST_PREFIX)


def reserved_prefix(name: str) -> str | None:
    """Return the reserved prefix that a name has; None for a name that users may choose."""
    return next((prefix for prefix in PREFIXES if name.startswith(prefix)), None)
