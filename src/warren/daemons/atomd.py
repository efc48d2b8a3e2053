"""The ATOM service as a process: durable, told of by systemd, and stopped gently."""

import asyncio
import gc
import logging
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from warren.atom.api import Api
from warren.atom.config import Config
from warren.atom.metrics import Metrics
from warren.atom.register import Register
from warren.atom.service import Service
from warren.atom.sitecommands import SiteCommandRunner
from warren.base import log, systemd
from warren.base.clock import SystemClock
from warren.daemons import monitoring
from warren.journal.sqlite import RESERVE_BYTES, SqliteJournal
from warren.kube import serving
from warren.lifecycle import tables

MAX_CONNECTIONS: Final = 1000
"""How many may talk to it at a time."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the service is told."""

    config: Config
    listener: socket.socket
    journal_path: Path
    metrics_socket: socket.socket | None = None
    """Where health and metrics are served besides, if anywhere."""


async def run(settings: Settings, on_ready: Callable[[], None]) -> None:
    """Run the service until SIGTERM, SIGINT or SIGHUP. Raises JournalBroken."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(signum, stopping.set)
    with SqliteJournal(settings.journal_path, RESERVE_BYTES) as journal:
        running = asyncio.ensure_future(_serve(settings, journal, stopping, on_ready))
        await asyncio.wait({running})
    running.result()


async def _serve(
    settings: Settings,
    journal: SqliteJournal,
    stopping: asyncio.Event,
    on_ready: Callable[[], None],
) -> None:
    config = settings.config
    metrics = Metrics()
    # What is no HTTP is answered with 400; a traceback for each would fill the log.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    commands = SiteCommandRunner(
        config.start, config.end, config.parallel, str(settings.journal_path), metrics.count_command
    )
    register = Register(journal)
    service = Service(register, commands, SystemClock(), config.max_jobs)
    metrics.jobs.set_function(lambda: len(register))
    metrics.unclean_jobs.set_function(lambda: service.unclean_count)
    app = Api(service, register, config.allowed_userids, metrics.count_request).application()

    def is_clean() -> bool:
        return service.unclean_count == 0

    monitoring.add_routes(app, metrics.exposition, is_clean)
    async with asyncio.TaskGroup() as parts:
        service_task = parts.create_task(service.run(), name="service")
        api_coroutine = serving.serve_limited(app, settings.listener, MAX_CONNECTIONS, stopping)
        listeners = [parts.create_task(api_coroutine, name="socket")]
        if settings.metrics_socket is not None:
            metrics_coroutine = monitoring.serve(
                settings.metrics_socket, metrics.exposition, is_clean
            )
            listeners.append(parts.create_task(metrics_coroutine, name="monitoring"))
        await asyncio.sleep(0)
        # What is here by now stays: to go over it again and again would hold up answers.
        gc.collect()
        gc.freeze()
        log.info("serving", jobs=len(register))
        on_ready()
        systemd.notify("READY=1")
        await stopping.wait()
        systemd.notify("STOPPING=1")
        await service.wait_idle(tables.seconds(config.stop_timeout))
        for part in (*listeners, service_task):
            part.cancel()
