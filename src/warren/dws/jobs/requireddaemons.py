"""The daemons that directives name with `requires`, which the workload manager enables for the job.

What a word means is the site's and its workload manager's (dws-spec section 3); here it is a name.
"""

from collections.abc import Collection, Iterable

from warren.directives.diagnostics import did_you_mean
from warren.dws import containerauth
from warren.dws.faults import Fault
from warren.dws.objects.breakdowns import DirectiveBreakdown


def required_daemons(breakdowns: Iterable[DirectiveBreakdown]) -> tuple[str, ...]:
    """Return the daemons that a job needs, each once, by the breakdowns of its directives.

    `requiredDaemons` is the older word for `requires`.
    """
    statuses = [each.status for each in breakdowns]
    names = (name for each in statuses for name in (*each.requires, *each.required_daemons))
    return tuple(dict.fromkeys(name for name in names if name != containerauth.REQUIRES_WORD))


def check_known(required: Iterable[str], known: Collection[str]) -> None:
    """Raise Fault for a daemon that the site does not have."""
    for name in required:
        if name not in known:
            remedy = did_you_mean(name, sorted(known)) or "Leave it out, or ask an admin for it."
            raise Fault(
                f"the daemon {name!r} is not offered by this cluster. {remedy.removesuffix('.')}",
                type="User",
                argument="requires",
            )
