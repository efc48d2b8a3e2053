"""Whom `warren conductor audit` answers."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.harness import virtual
from tests.instance.parts import GUEST, OWNER
from warren.base.errors import UserMistake
from warren.cli.main import cli
from warren.instance.kvs import Kvs
from warren.instance.kvs.service import KvsService
from warren.journal import MemoryJournal
from warren.rpc.bus import Bus
from warren.rpc.message import Handle


def test_a_guest_of_the_instance_is_told_who_may(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def ask(_state: object, work: Callable[[Handle], Awaitable[Any]]) -> Any:
        async def asked() -> Any:
            kvs = Kvs(MemoryJournal(), OWNER)
            bus = Bus(OWNER)
            bus.register("kvs", KvsService(kvs).methods())
            running = asyncio.ensure_future(kvs.run())
            try:
                return await work(bus.handle(GUEST))
            finally:
                running.cancel()

        return virtual.run(asked())

    monkeypatch.setattr("warren.cli.cluster.audit.ask_instance", ask)

    done = CliRunner().invoke(cli, ["conductor", "audit", "--statedir", str(tmp_path)])

    assert isinstance(done.exception, UserMistake), done.exception
    assert "owner of the instance alone" in str(done.exception)
    assert "access.allow-root-owner" in str(done.exception)
