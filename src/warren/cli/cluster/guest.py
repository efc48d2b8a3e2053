"""A guest of a cluster that root has made for a demo: containers are for users, and never root's.

Where root runs the demo, a munged of the demo's own proves what this user submits.
"""

import asyncio
import json
import os
import pwd
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from warren.base.errors import UserMistake
from warren.cli.cluster import guestprocess
from warren.cli.cluster.guestprocess import GuestProcess
from warren.daemons import munged
from warren.daemons.statedir import StateDir

_NAME: Final = "nobody"

_ANSWER_SECONDS: Final = 30.0
"""How long the instance may take to answer."""


class Guest(msgspec.Struct, frozen=True, kw_only=True):
    """A user who may submit jobs. It is the machine's user `nobody`, which owns no files."""

    userid: int
    groupid: int
    munge_socket: Path
    """Where the munged of the demo listens."""
    process: GuestProcess
    """The guest's own."""

    @property
    def config(self) -> str:
        """The configuration of a cluster that lets the guest in."""
        munge_table = f'[sign.munge]\nsocket-path = "{self.munge_socket}"\n'
        return f"[access]\nallow-guest-user = true\n{munge_table}"

    def submit(self, statedir: StateDir, spec: Any) -> int:
        """Submit a jobspec, as the guest, and return the job's id. Blocks. Raises UserMistake."""
        try:
            return int(self.process.ask({"instance": str(statedir.socket), "spec": spec}))
        except UserMistake as mistake:
            raise UserMistake(f"the job is refused.\n{mistake}") from mistake


@contextmanager
def guest(directory: Path) -> Iterator[Guest | None]:
    """Yield a guest for a cluster below a directory, which exists; None where there can be none."""
    try:
        user = pwd.getpwnam(_NAME)
    except KeyError:
        user = None
    is_reachable = all(parent.stat().st_mode & stat.S_IXOTH for parent in directory.parents)
    if os.geteuid() != 0 or user is None or not is_reachable or munged.program() is None:
        yield None
        return
    directory.chmod(0o711)
    userid, groupid = user.pw_uid, user.pw_gid

    def become() -> None:
        os.setgroups([])
        os.setresgid(groupid, groupid, groupid)
        os.setresuid(userid, userid, userid)

    with (
        munged.running(directory / "munge") as socket,
        guestprocess.running(become, _submitter(userid, socket)) as process,
    ):
        yield Guest(userid=userid, groupid=groupid, munge_socket=socket, process=process)


def _submitter(userid: int, socket: Path) -> Callable[[Any], int]:
    """Return what submits a jobspec, in the guest's process.

    It takes nothing from files: the interpreter's may be root's alone.
    """
    from warren.rpc import client, munge

    guest_munge = munge.system_munge(str(socket))

    async def submit(instance: Path, spec: Any) -> int:
        signed_request = munge.wrap(json.dumps(spec).encode(), userid, guest_munge)
        async with asyncio.timeout(_ANSWER_SECONDS), client.connect(instance) as handle:
            return int((await handle.rpc("job-ingest.submit", {"J": signed_request}))["id"])

    return lambda request: asyncio.run(submit(Path(request["instance"]), request["spec"]))
