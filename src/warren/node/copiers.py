"""An agent runs copiers: child processes that copy as a user, and report their progress."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

from warren.base import fuse
from warren.dws.node import Copy, CopyFailed, NodeTrouble, Progress
from warren.node import commands, copying


async def run(copy: Copy, nsenter: Sequence[str] = ()) -> AsyncIterator[Progress]:
    """Copy, and return the progress as the copier reports it.

    `nsenter` is the beginning of a command that runs the rest in the namespaces of the paths.

    Raises CopyFailed with what the copier could not copy, and NodeTrouble for a copier that has
    ended in any other way. Closing the iterator ends the copier, also one that is stopped, or that
    waits for a file server of its user's, as the command of a profile may.
    """

    def unblock(pids: Sequence[int]) -> None:
        fuse.abort_servers(pids, copy.userid)

    lines = commands.stream_lines([*nsenter, *copying.command(copy)], unblock)
    try:
        async with aclosing(lines) as output:  # type: ignore[type-var]
            async for line in output:
                yield copying.progress(line)
    except commands.CommandFailed as failed:
        if failed.code == copying.FAILED:
            raise CopyFailed(str(failed)) from failed
        reason = commands.exit_reason(failed.code) if failed.code < 0 else str(failed)
        raise NodeTrouble(f"the copier has ended: {reason}") from failed
