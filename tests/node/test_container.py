"""What bubblewrap tells of a container, through a pipe that its user can take."""

import asyncio
import os
import select
import signal
import subprocess
from types import SimpleNamespace
from typing import Any

from warren.node.podprocess.container import Container


def container(*, stopping: bool = False) -> Container:
    pod: Any = SimpleNamespace(stopping=stopping)
    return Container(pod, 0, {"name": "app"})


def test_what_is_written_without_end_instead_of_bubblewraps_words_is_not_kept() -> None:
    async def story() -> None:
        reader, writer = os.pipe()
        reading = asyncio.ensure_future(container()._open_pidfd(reader))

        os.set_blocking(writer, False)

        def flood() -> None:
            written = 0
            try:
                while written < 2**22:
                    assert select.select([], [writer], [], 60)[1], "it stays open and is not read"
                    written += os.write(writer, bytes(2**16))
            except BrokenPipeError:
                return
            raise AssertionError("all of it was read")

        try:
            await asyncio.to_thread(flood)
            await reading
        finally:
            os.close(writer)

    asyncio.run(story())


def test_a_pod_that_is_stopped_tells_a_container_though_the_pipe_stays_open() -> None:
    async def story(first: "subprocess.Popen[bytes]") -> None:
        reader, writer = os.pipe()
        reading = asyncio.ensure_future(container(stopping=True)._open_pidfd(reader))
        try:
            os.write(writer, b'{\n    "child-pid": %d,\n    "mnt-namespace": 1' % first.pid)
            assert await asyncio.to_thread(first.wait, 60) == -signal.SIGTERM
        finally:
            os.close(writer)
            await reading

    with subprocess.Popen(["sleep", "600"]) as first:
        try:
            asyncio.run(story(first))
        finally:
            first.kill()
