"""The configuration of a running instance is loaded anew."""

import asyncio
import errno
from contextlib import aclosing
from typing import Any

import pytest

from tests.harness import virtual
from tests.instance.parts import GUEST, OWNER
from warren.instance import config
from warren.instance.config import Config
from warren.instance.configservice import LiveConfig, split_change
from warren.rpc.bus import Bus
from warren.rpc.message import RpcError

QUEUES = """
policy.jobspec.defaults.system.queue = "a"
queues.a.policy.limits.duration = "1h"
queues.b.requires = ["fast"]
"""


def test_what_has_its_effect_at_once_holds_and_the_rest_is_named() -> None:
    old = config.parse(QUEUES)
    text = """
    rabbit.setup_timeout = 5
    policy.limits.duration = "2h"
    policy.jobspec.defaults.system.queue = "b"
    sched.queue-depth = 7
    ingest.max-payload = 5000
    job-list.private = true
    exec.kill-timeout = 7
    storage.scale = 3
    storage.busy-timeout = 1
    queues.a.policy.limits.duration = "3h"
    queues.b.requires = ["fast"]
    """
    new = config.parse(text)
    now, later = split_change(old, new)

    assert later == ["exec.kill-timeout", "storage.busy-timeout"]
    assert (now.rabbit, now.policy, now.sched) == (new.rabbit, new.policy, new.sched)
    assert (now.ingest, now.job_list, now.exec) == (new.ingest, new.job_list, old.exec)
    assert (now.storage.scale, now.storage.busy_timeout) == (3, 30.0)
    assert now.queues == new.queues


@pytest.mark.parametrize(
    ("text", "later"),
    [
        ("", ["policy.jobspec", "queues.a", "queues.b"]),
        (f"{QUEUES}queues.c.requires = ['new']", ["queues.c"]),
        (QUEUES.replace('["fast"]', '["slow"]'), ["queues.b"]),
        (QUEUES.replace('queue = "a"', 'queue = "c"').replace("queues.a", "queues.c"),
         ["policy.jobspec", "queues.a", "queues.c"]),
    ],
)  # fmt: skip
def test_other_queues_wait_for_the_next_start(text: str, later: list[str]) -> None:
    old = config.parse(QUEUES)

    assert split_change(old, config.parse(text)) == (old, later)


@pytest.mark.parametrize("text", ["", QUEUES, "rabbit.mapping = '/a'"])
def test_the_same_again_changes_nothing(text: str) -> None:
    assert split_change(config.parse(text), config.parse(text)) == (config.parse(text), [])


class Lived:
    """An instance's configuration, and what was kept and told of it."""

    def __init__(self) -> None:
        self.kept: list[str] = []
        self.heard: list[Config] = []
        self.error: OSError | None = None
        self.bus = Bus(OWNER)
        self.configuration = LiveConfig(Config(), self.keep)
        self.configuration.listen(self.heard.append)
        self.bus.register("config", self.configuration.methods())

    async def keep(self, text: str) -> None:
        if self.error is not None:
            raise self.error
        self.kept.append(text)

    async def load(self, text: Any, userid: int = OWNER) -> Any:
        return await self.bus.handle(userid).rpc("config.load", {"toml": text, "name": "it"})


def test_a_reload_is_kept_told_and_read() -> None:
    async def main() -> None:
        lived = Lived()
        seen: list[Any] = []

        async def follow() -> None:
            stream = lived.bus.handle().stream("config.watch")
            async with aclosing(stream) as news:  # type: ignore[type-var]
                async for each in news:
                    seen.append(each)

        following = asyncio.create_task(follow())
        await asyncio.sleep(1)
        text = "sched.queue-depth = 7\nexec.kill-timeout = 9\n"
        assert await lived.load(text) == {"changed": True, "later": ["exec.kill-timeout"]}
        assert await lived.load(text) == {"changed": False, "later": ["exec.kill-timeout"]}
        await asyncio.sleep(1)
        assert seen == [{}, {"sched": {"queue-depth": 7}}]
        assert await lived.bus.handle(GUEST).rpc("config.get") == seen[-1]
        assert lived.kept == [text, text]
        assert [each.sched.queue_depth for each in lived.heard] == [7]
        following.cancel()
        await asyncio.wait({following})

    virtual.run(main())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rabbit.setup_timeot = 1", "it: rabbit: .*setup_timeot"),
        ("sched.queue-depth = 0", "it: sched.queue-depth: "),
        ("rabbit = {", "it is not TOML"),
    ],
)
def test_what_is_wrong_is_refused_with_its_path_and_changes_nothing(text: str, words: str) -> None:
    async def main() -> None:
        lived = Lived()
        with pytest.raises(RpcError, match=words) as refused:
            await lived.load(text)
        assert refused.value.errnum == errno.EINVAL
        assert (lived.kept, lived.heard, lived.configuration.current) == ([], [], Config())

    virtual.run(main())


def test_where_it_cannot_be_kept_nothing_changes() -> None:
    async def main() -> None:
        lived = Lived()
        lived.error = OSError(errno.ENOSPC, "No space left on device")
        with pytest.raises(RpcError, match="as it was: No space left") as refused:
            await lived.load("sched.queue-depth = 7")
        assert refused.value.errnum == errno.ENOSPC
        assert (lived.heard, lived.configuration.current) == ([], Config())

    virtual.run(main())


def test_guests_load_nothing() -> None:
    async def main() -> None:
        with pytest.raises(RpcError) as refused:
            await Lived().load("", GUEST)
        assert refused.value.errnum == errno.EPERM

    virtual.run(main())
