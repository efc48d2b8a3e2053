"""The copier as a program. It is given a `Copy`, as a JSON object, and its agent's process id."""

import ctypes
import json
import os
import signal
import sys
from typing import Any, Final

from warren.dws import staging
from warren.dws.node import Copy
from warren.node import identity
from warren.node.copying import FAILED
from warren.node.copying.command import Command
from warren.node.copying.copier import Copier
from warren.node.copying.retry import Retry

_PR_SET_PDEATHSIG: Final = 1


def main(arguments: list[str]) -> int:
    """Copy what the first argument describes; return the exit status."""
    described: dict[str, Any] = json.loads(arguments[0])
    copy = Copy(**described)
    os.chdir("/")  # where we came from may be no place for the user, and /proc leads there
    become = identity.become if copy.command else identity.take
    become(copy.userid, copy.groupid)
    # Not before: the change of user would undo it.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # Its agent may have died before that, also before a line of this was run.
    if os.getppid() != int(arguments[1]):
        return 1
    if not os.path.lexists(copy.source.rstrip("/")):
        print(f"{copy.source}: No such file or directory", file=sys.stderr)
        return FAILED
    tree = os.path.isdir(copy.source)
    plan = staging.plan(
        copy.source,
        copy.destination,
        source_is_file=not tree,
        destination_is_file=os.path.isfile(copy.destination),
        destination_is_directory=os.path.isdir(copy.destination),
        index=copy.index,
    )
    if copy.command:
        return 0 if Command(copy, plan, tree=tree).run() else FAILED
    retry = Retry.of(copy.movement, copy.since)
    copier = Copier(plan, retry, tree=tree, verify=copy.verify, rate=copy.rate)
    return 0 if copier.run() else FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
