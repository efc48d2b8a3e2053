"""A shell of real processes, as a program: SOCKET JOB RANK TMP. Its exit code is its own."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from warren.base.clock import SystemClock
from warren.base.processes import die_with_parent
from warren.instance.shell.affinity import NodeCores
from warren.instance.shell.builtin import builtin
from warren.instance.shell.shell import Shell
from warren.instance.shell.tasks import ProcessSpawner
from warren.rfc.fluid import JobId
from warren.rpc.bus import Bus
from warren.rpc.client import ReconnectingHandle, connect

socket, tmp = Path(sys.argv[1]), Path(sys.argv[4])


async def live() -> int:
    serving = Bus(os.geteuid())
    patient = ReconnectingHandle(lambda: connect(socket, serving), serving, delay=0.02)
    shell = Shell(
        handle=patient,
        spawner=ProcessSpawner(),
        clock=SystemClock(),
        plugins=builtin(tmp, NodeCores(ids=range(4), emulated=True)),
        job=JobId(int(sys.argv[2])),
        rank=int(sys.argv[3]),
        uri=f"local://{socket}",
    )
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGUSR1):
        loop.add_signal_handler(signum, shell.deliver, signum)
    async with asyncio.TaskGroup() as tasks:
        connected = tasks.create_task(patient.run())
        code = await shell.run()
        connected.cancel()
    return code


die_with_parent()
sys.exit(asyncio.run(live()))
