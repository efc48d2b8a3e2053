"""A guest of a cluster that root has made for a demo: containers are for users, and never root's.

Where root runs the demo, a munged of the demo's own proves what this user submits.
"""

import asyncio
import json
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from warren.base.errors import UserMistake
from warren.cli.cluster import munged
from warren.daemons.statedir import StateDir

_NAME: Final = "nobody"


@dataclass(frozen=True, kw_only=True)
class Guest:
    """A user who may submit jobs. Of the machine's users it is the one who owns nothing."""

    userid: int
    groupid: int
    socket: Path
    """The munged's."""

    @property
    def config(self) -> str:
        """The configuration of a cluster that lets the guest in."""
        return f'[access]\nallow-guest-user = true\n[sign.munge]\nsocket-path = "{self.socket}"\n'

    def submit(self, state: StateDir, spec: Any) -> int:
        """Submit a jobspec, as the guest, and return the job's id. Raises UserMistake.

        In a process of the guest's own, which takes nothing from files: the interpreter's may be
        root's alone.
        """
        from warren.rpc import client, munge
        from warren.rpc.message import RpcError

        library = munge.of_this_machine(str(self.socket))
        payload = json.dumps(spec).encode()

        async def submitting() -> dict[str, Any]:
            token = munge.wrap(payload, self.userid, library)
            async with client.connect(state.socket) as handle:
                try:
                    return dict(await handle.rpc("job-ingest.submit", {"J": token}))
                except RpcError as error:
                    return {"error": str(error)}

        answer = self._acting(lambda: asyncio.run(submitting()))
        if "error" in answer:
            raise UserMistake(f"the job is refused.\n{answer['error']}")
        return int(answer["id"])

    def _acting(self, action: Any) -> dict[str, Any]:
        reading, writing = os.pipe()
        process = os.fork()
        if process == 0:
            try:
                os.setgroups([])
                os.setresgid(self.groupid, self.groupid, self.groupid)
                os.setresuid(self.userid, self.userid, self.userid)
                os.write(writing, json.dumps(action()).encode())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as answer:
            found = answer.read()
        os.waitpid(process, 0)
        if not found:
            raise UserMistake(f"the job was not submitted: the process of {_NAME} has ended.")
        result: dict[str, Any] = json.loads(found)
        return result


@contextmanager
def guest(directory: Path) -> Iterator[Guest | None]:
    """Return a guest for a cluster below a directory, which is there; None where none can be."""
    try:
        user = pwd.getpwnam(_NAME)
    except KeyError:
        user = None
    reachable = all(above.stat().st_mode & stat.S_IXOTH for above in directory.parents)
    if os.geteuid() != 0 or user is None or not reachable or munged.program() is None:
        yield None
        return
    directory.chmod(0o711)
    with munged.running(directory / "munge") as socket:
        yield Guest(userid=user.pw_uid, groupid=user.pw_gid, socket=socket)
