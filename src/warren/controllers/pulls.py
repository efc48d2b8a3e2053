"""Images that pods wait for: each is fetched by one task, beside the reconciles of the pods."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import Final, Generic, TypeVar

import msgspec

from warren.base import log
from warren.dws.node import NodeTrouble
from warren.dws.pods.plans import Image
from warren.kube.queue import backoff

K = TypeVar("K", bound=Hashable)

_RETRY_DELAY: Final = 1.0
"""Seconds after which an image that could not be had is asked for again, at first."""


class NotPulled(NodeTrouble):
    """An image cannot be had, as of now. It is asked for again."""


class _WantedImage(msgspec.Struct, Generic[K]):
    """An image that is waited for."""

    waiters: set[K] = msgspec.field(default_factory=set)
    trouble: str | None = None
    """Why the last try has failed."""


class Pulls(Generic[K]):
    """Fetches images for as long as they are waited for, and tries again after failures."""

    def __init__(
        self,
        fetch: Callable[[str], Awaitable[Image]],
        on_end: Callable[[K], None],
        *,
        max_retry_delay: float,
    ) -> None:
        """`fetch` raises NodeTrouble, and is asked again after `max_retry_delay` seconds at most.

        `on_end` is called with each key that waits, when a try has ended.
        """
        self._fetch = fetch
        self._on_end = on_end
        self._max_retry_delay = max_retry_delay
        self._wanted: dict[str, _WantedImage[K]] = {}
        self._images_by_key: dict[K, dict[str, Image]] = {}
        self._pulling: set[str] = set()
        """The images that have a task, or will."""
        self._to_pull: asyncio.Queue[str] = asyncio.Queue()

    async def run(self) -> None:
        """Fetch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                reference = await self._to_pull.get()
                tasks.create_task(self._pull(reference), name=f"image {reference}")

    def images(self, key: K, references: Iterable[str]) -> Mapping[str, Image] | None:
        """Return images, once all of them are there; None while they are fetched.

        Until `forget`, `key` waits for them. Raises NotPulled where one cannot be had now.
        """
        available = self._images_by_key.setdefault(key, {})
        missing = [each for each in references if each not in available]
        for reference in missing:
            self._wanted.setdefault(reference, _WantedImage()).waiters.add(key)
            if reference not in self._pulling:
                self._pulling.add(reference)
                self._to_pull.put_nowait(reference)
        for reference in missing:
            trouble = self._wanted[reference].trouble
            if trouble is not None:
                raise NotPulled(trouble)
        return None if missing else available

    def forget(self, key: K) -> None:
        """Wait for no images any more."""
        self._images_by_key.pop(key, None)
        for reference, wanted in list(self._wanted.items()):
            wanted.waiters.discard(key)
            if not wanted.waiters:
                del self._wanted[reference]

    async def _pull(self, reference: str) -> None:
        failures = 0
        while reference in self._wanted:
            try:
                image = await self._fetch(reference)
            except (NodeTrouble, OSError, ValueError) as trouble:
                log.info("image not fetched", image=reference, reason=str(trouble))
                why = str(trouble)
            except Exception as error:  # a bug may cost one image, not the agent
                log.exception("image not fetched", image=reference)
                why = f"the image {reference} could not be had inside Warren: {error!r}"
            else:
                self._deliver(reference, image)
                break
            failures += 1
            if reference in self._wanted:
                self._wanted[reference].trouble = why
                self._notify(self._wanted[reference])
            await asyncio.sleep(
                backoff(_RETRY_DELAY, failures, random.random(), self._max_retry_delay)
            )
        self._pulling.discard(reference)

    def _deliver(self, reference: str, image: Image) -> None:
        wanted: _WantedImage[K] = self._wanted.pop(reference, _WantedImage())
        for key in wanted.waiters:
            self._images_by_key[key][reference] = image
        self._notify(wanted)

    def _notify(self, wanted: _WantedImage[K]) -> None:
        for key in wanted.waiters:
            self._on_end(key)
