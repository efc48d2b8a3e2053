"""The copier as a program. It is given a `Copy`, as a JSON object, and its agent's process id."""

import ctypes
import json
import os
import signal
import sys
from typing import Any, Final

from msgspec.structs import replace

from warren.dws.copies import staging
from warren.dws.copies.staging import Plan
from warren.dws.node import Copy
from warren.node import identity, nofollow
from warren.node.copying import FAILED
from warren.node.copying.command import Command
from warren.node.copying.copier import Copier
from warren.node.copying.retry import CopyAttempt

_PR_SET_PDEATHSIG: Final = 1


def main(arguments: list[str]) -> int:
    """Copy what the first argument describes; return the exit status."""
    described: dict[str, Any] = json.loads(arguments[0])
    copy = Copy(**described)
    os.chdir("/")  # where we came from may be no place for the user, and /proc leads there
    become = identity.become_user if copy.command else identity.become_file_user
    become(copy.userid, copy.groupid)
    # Not before: the change of user would undo it.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # Its agent may have died before that, also before a line of this was run.
    if os.getppid() != int(arguments[1]):
        return 1
    try:
        os.lstat(copy.source.rstrip("/"))
    except (OSError, ValueError) as error:  # the latter for a name with a zero byte
        print(f"{copy.source}: {getattr(error, 'strerror', error)}", file=sys.stderr)
        return FAILED
    is_tree = os.path.isdir(copy.source)
    plan = staging.plan(
        copy.source,
        copy.destination,
        source_is_file=not is_tree,
        destination_is_file=os.path.isfile(copy.destination),
        destination_is_directory=os.path.isdir(copy.destination),
        index=copy.index,
    )
    try:
        plan = _without_links(plan, copy, is_tree=is_tree)
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return FAILED
    if copy.command:
        return 0 if Command(copy, plan, is_tree=is_tree).run() else FAILED
    copier = Copier(
        plan,
        CopyAttempt.of(copy.movement, copy.since),
        is_tree=is_tree,
        verify=copy.verify,
        rate=copy.rate,
        source_storage=copy.source_storage,
        destination_storage=copy.destination_storage,
    )
    return 0 if copier.run() else FAILED


def _without_links(plan: Plan, copy: Copy, *, is_tree: bool) -> Plan:
    """Return a plan whose paths in storage are without links.

    A storage may be others', too, whose links would have a copy read and write what they like of
    its user's. Raises OSError for one that leads out.
    """
    source, top = plan.source, plan.top
    if copy.source_storage:
        resolved = nofollow.without_links(source, copy.source_storage) if is_tree else source
        is_root = source.rstrip("/") == copy.source_storage.rstrip("/")
        if not is_tree or (copy.command and not source.endswith("/") and not is_root):
            # A link that is the source is copied as it is, or as the command likes, by its name.
            parent, name = os.path.split(source)
            resolved = os.path.join(nofollow.without_links(parent, copy.source_storage), name)
        source = resolved
    if copy.destination_storage:
        top = nofollow.without_links(top, copy.destination_storage)
    return replace(plan, source=source, top=top)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
