"""The containers of a pod, in order, and what its followers are told."""

import asyncio
import json
import os
import signal
from typing import Any

from warren.node.podprocess.container import Container

_RETRY_DELAY = 1.0
"""Seconds until what could not be written down is written again."""


class Pod:
    """The containers of one pod."""

    def __init__(self, directory: str, plan: dict[str, Any], *, is_root: bool) -> None:
        self.directory = directory
        self.plan = plan
        self.is_root = is_root
        self.stopping = False
        numbered = iter(range(len(plan["init"]) + len(plan["containers"])))
        self._init = [Container(self, next(numbered), each) for each in plan["init"]]
        self._containers = [Container(self, next(numbered), each) for each in plan["containers"]]
        self._followers: set[asyncio.StreamWriter] = set()
        self._retry_timer: asyncio.TimerHandle | None = None
        self._state_written = asyncio.Event()
        """Whether what was told last is written down, or need not be."""

    async def run(self) -> None:
        """Run its containers to their end: those that prepare one after the other, then all."""
        for each in self._init:
            await each.run()
            if each.state["exitCode"] or self.stopping:
                break
        else:
            await asyncio.gather(*(each.run() for each in self._containers))

    def stop(self) -> None:
        """Ask its containers to end, and kill those that do not in time."""
        if not self.stopping:
            self.stopping = True
            self._state_written.set()
            self.signal(signal.SIGTERM)
            loop = asyncio.get_running_loop()
            loop.call_later(self.plan["grace"], self.signal, signal.SIGKILL)

    def signal(self, signum: int) -> None:
        for each in (*self._init, *self._containers):
            each.signal(signum)

    def publish_state(self) -> None:
        """Write down how the containers are, whole or not at all, and tell the followers.

        On a full disk that is done when there is room, and is no container's fault.
        """
        states = {
            "init": [each.state for each in self._init],
            "containers": [each.state for each in self._containers],
            "stopped": self.stopping,
        }
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None
        try:
            write_state(self.directory, states)
        except FileNotFoundError:
            self.stop()  # it was removed when nothing was seen of it yet
        except OSError:
            if not self.stopping:
                self._state_written.clear()
            self._retry_timer = asyncio.get_running_loop().call_later(
                _RETRY_DELAY, self.publish_state
            )
        else:
            self._state_written.set()
            for each in self._followers:
                each.write(_CHANGED)

    async def wait_state_written(self) -> None:
        """Return when what was told last is written down, or when the pod is to end."""
        await self._state_written.wait()

    async def follow(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Tell a follower of each change, until its connection ends."""
        writer.write(_CHANGED)
        self._followers.add(writer)
        try:
            await reader.read()
        finally:
            self._followers.discard(writer)
            writer.close()


_CHANGED = b"\n"
"""What followers are told: that there is something to be read."""


def write_state(directory: str, states: dict[str, Any]) -> None:
    """Write down how the containers are, whole or not at all."""
    unfinished = f"{directory}/state.json.new"
    with open(unfinished, "wb") as file:
        file.write(json.dumps(states).encode())
        file.flush()
        os.fsync(file.fileno())  # or there may be an empty one after a power cut
    os.replace(unfinished, f"{directory}/state.json")
