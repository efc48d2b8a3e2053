"""Images that pods wait for: asked for while one waits, and given to all that do."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.harness import virtual
from tests.kube.clusters import alongside
from warren.controllers.pulls import Pulls
from warren.dws.node import NodeTrouble
from warren.dws.pods.plans import Image


class Registry:
    """Has images, when it is not broken, and takes a second for each."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, str]] = []
        self.broken = False

    async def fetch(self, reference: str) -> Image:
        self.asked.append((asyncio.get_running_loop().time(), reference))
        await asyncio.sleep(1)
        if self.broken:
            raise NodeTrouble("it is broken")
        return Image(root=reference)


Story = Callable[[Pulls[str], Registry, list[str]], Awaitable[None]]


def told(story: Story) -> None:
    """Tell a story of images, a registry, and those who were told that a try has ended."""

    async def main() -> None:
        registry, news = Registry(), list[str]()
        pulls = Pulls(registry.fetch, news.append, max_retry_delay=20)
        async with alongside(pulls.run()):
            await story(pulls, registry, news)

    virtual.run(main())


def test_an_image_that_one_waits_for_no_more_is_fetched_for_the_other() -> None:
    async def story(pulls: Pulls[str], registry: Registry, news: list[str]) -> None:
        registry.broken = True
        assert pulls.images("one", ["image"]) is None
        assert pulls.images("other", ["image"]) is None
        pulls.forget("one")
        await asyncio.sleep(1.5)
        assert news == ["other"]
        registry.broken = False
        await asyncio.sleep(30)
        assert pulls.images("other", ["image"]) == {"image": Image(root="image")}

    told(story)


def test_an_image_that_was_fetched_is_asked_for_at_once_when_another_wants_it() -> None:
    async def story(pulls: Pulls[str], registry: Registry, news: list[str]) -> None:
        pulls.images("one", ["image"])
        await asyncio.sleep(1.1)
        assert news == ["one"]
        pulls.images("other", ["image"])
        await asyncio.sleep(1.1)
        assert news == ["one", "other"]

    told(story)


def test_a_failure_for_none_that_waits_costs_nothing_else() -> None:
    async def story(pulls: Pulls[str], registry: Registry, news: list[str]) -> None:
        registry.broken = True
        pulls.images("one", ["image"])
        await asyncio.sleep(0.5)
        pulls.forget("one")
        await asyncio.sleep(60)
        assert news == []
        assert len(registry.asked) == 1
        registry.broken = False
        pulls.images("other", ["another"])
        await asyncio.sleep(2)
        assert news == ["other"]

    told(story)


def test_an_image_is_remembered_for_as_long_as_it_is_waited_for() -> None:
    async def story(pulls: Pulls[str], registry: Registry, news: list[str]) -> None:
        pulls.images("one", ["image"])
        await asyncio.sleep(1.1)
        for _ in range(2):
            assert pulls.images("one", ["image"]) is not None
        pulls.forget("one")
        assert pulls.images("one", ["image"]) is None

    told(story)
