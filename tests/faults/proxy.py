"""A client between a component and the API, on which falls whatever can fall on a real one.

A `Schedule` says what befalls each request and each watch. All of it is what
HTTPS, an API server and the boxes between them do, and no more:

* A request that has failed may have been done or not, or may be done yet: what a client
  has written and given up is in the hands of its kernel. No request takes longer than the
  HTTPS client lets it.
* A box that loses an answer may send the request again: then it is done twice, and the
  answer is the second one.
* A list is old by the time that its answer takes, and never older than the question: those
  that name no version, as ours, are answered from what is acknowledged. So there are late
  lists here, and none of an earlier time.
* A watch tells everything that follows its version, each object's changes in order. It may
  be slow, so that kinds run apart; tell things again, as one does that starts further back;
  end in peace or with an error at any time; or fall silent, with its reader none the wiser
  until `SILENCE` is over. What it leaves out, it leaves out with all that follows.

Informers promise to bear one thing more, and it is done to them as well: the changes of
two objects may come in each other's place.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from warren.base.errors import WarrenError
from warren.base.objects import Change, Key, Kind, Object, Remove, key_of
from warren.dws import kinds
from warren.kube.client import (
    Client,
    Conflict,
    Expired,
    Forbidden,
    Listing,
    Unavailable,
    WatchEvent,
)
from warren.kube.transport import REQUEST_TIMEOUT

T = TypeVar("T")
Action = Callable[[], Coroutine[Any, Any, T]]

SILENCE: Final = 150.0
"""After how many seconds without a word the HTTPS client takes a watch for dead."""

_WRITTEN: Final = frozenset(kinds.ALL) - {kinds.DIRECTIVE_RULE, kinds.LUSTRE_FILE_SYSTEM}
"""What components write. All else is written by the API's own process, with nothing between."""


# What befalls a request


@dataclass(frozen=True)
class Refusal:
    """Nothing is done."""

    why: str
    error: type[WarrenError] = Unavailable
    after: float | None = None
    """When the server wants to be asked again, if it says so."""

    def raised(self) -> WarrenError:
        found = self.error(self.why)
        if self.after is not None and isinstance(found, Unavailable):
            found.delay = self.after
        return found


@dataclass(frozen=True)
class Lost:
    """All is done, and no answer comes."""


@dataclass(frozen=True)
class Late:
    """The request is `there` seconds on its way, and its answer `back`."""

    there: float = 0.0
    back: float = 0.0


@dataclass(frozen=True)
class Belated:
    """The client gives up, and the request is done so many seconds after that."""

    seconds: float


@dataclass(frozen=True)
class Twice:
    """A box on the way has not heard the answer, and asks again."""


Mishap = Refusal | Lost | Late | Belated | Twice

GONE: Final = Refusal("connection refused")
BROKEN: Final = Refusal("500: etcdserver: request timed out")
CLOSED: Final = Refusal("503: service unavailable")
BUSY: Final = Refusal("429: too many requests")
BUSY_FOR_NOW: Final = Refusal("429: too many requests", after=5.0)
CHANGED: Final = Refusal("the object has been modified", Conflict)
LOST: Final = Lost()
TWICE: Final = Twice()


# What befalls a watch


@dataclass(frozen=True, kw_only=True)
class Fate:
    """How a watch goes. It ends after so many events or seconds, whichever is first."""

    events: int | None = None
    seconds: float | None = None
    ends: Refusal | None = None
    """What it ends with; None is in peace."""
    silent: bool = False
    """Whether it falls silent instead, until its reader gives it up."""
    lag: float = 0.0
    """The seconds that it takes to tell one event."""
    again: int = 0
    """How many events it tells a second time before each new one."""
    swapped: bool = False
    """Whether changes of two objects come in each other's place, where both are there."""


PLAIN: Final = Fate()
MAY_NOT: Final = Refusal('things is forbidden: User "w" cannot do that here', Forbidden)
"""What a server says of everything that has not read its roles yet."""

CUT_OFF: Final = Refusal("the watch was cut off")
TOO_OLD: Final = Refusal("too old resource version", Expired)


class Schedule(Protocol):
    """Says what happens when. Times are those of the loop."""

    def mishap(self, verb: str, kind: Kind, now: float) -> Mishap | None:
        """Say what befalls the request that is made now."""
        ...

    def fate(self, kind: Kind, now: float) -> Fate:
        """Say how the watch goes that begins now."""
        ...

    def down(self, now: float) -> bool:
        """Return whether the API is out of reach."""
        ...

    def next_fall(self, now: float) -> float | None:
        """Return when the API will go down next, if ever."""
        ...


class Faults:
    """What the clients of a world meet. `wrap` goes into the place of `World.client`."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self._still: set[asyncio.Task[None]] = set()
        self.met: list[str] = []
        """What has befallen whom, and when."""

    def wrap(self, client: Client) -> Client:
        """Put between a component and the API all that may come between them."""
        return FaultyClient(client, self)

    def of_request(self, verb: str, kind: Kind) -> Mishap | None:
        """Say what befalls a request."""
        now = asyncio.get_running_loop().time()
        found = GONE if self.schedule.down(now) else self.schedule.mishap(verb, kind, now)
        if found is not None:
            self.met.append(f"{now:.2f} {verb} {kind.plural}: {found}")
        return found

    def of_watch(self, kind: Kind) -> tuple[Fate, float | None]:
        """Say how a watch goes, and when at last the API goes down under it."""
        now = asyncio.get_running_loop().time()
        if self.schedule.down(now):
            raise GONE.raised()
        fate = self.schedule.fate(kind, now)
        if fate != PLAIN:
            self.met.append(f"{now:.2f} watch {kind.plural}: {fate}")
        return fate, self.schedule.next_fall(now)

    def do_later(self, seconds: float, action: Action[Any]) -> None:
        """Do something for a client that does not wait for it any more."""

        async def later() -> None:
            await asyncio.sleep(seconds)
            with suppress(WarrenError):
                await action()

        task = asyncio.create_task(later())
        self._still.add(task)
        task.add_done_callback(self._still.discard)

    async def wait_done(self) -> None:
        """Return once nothing is to be done any more for those that have given up."""
        while self._still:
            await asyncio.wait(self._still)

    async def drop(self) -> None:
        """Forget what is to be done for those that have given up: the API is gone, too."""
        for task in list(self._still):
            task.cancel()
        await self.wait_done()


class FaultyClient:
    """A `Client` to which things happen."""

    def __init__(self, inner: Client, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    async def get(self, kind: Kind, key: Key) -> Object:
        return await self._ask("get", kind, lambda: self._inner.get(kind, key))

    async def list(
        self, kind: Kind, namespace: str = "", labels: Mapping[str, str] | None = None
    ) -> Listing:
        if kind == kinds.LUSTRE_FILE_SYSTEM and labels:
            return await self._inner.list(kind, namespace, labels)
        return await self._ask("list", kind, lambda: self._inner.list(kind, namespace, labels))

    async def create(self, kind: Kind, obj: Object) -> Object:
        source = key_of(obj).namespace == kinds.PROFILES_NAMESPACE
        if kind not in _WRITTEN or kind == kinds.SYSTEM_CONFIGURATION or source:
            return await self._inner.create(kind, obj)
        return await self._ask("create", kind, lambda: self._inner.create(kind, obj))

    async def patch(self, change: Change) -> Object:
        kind = change.kind
        source = change.key.namespace == kinds.PROFILES_NAMESPACE
        own = kind == kinds.SYSTEM_CONFIGURATION and not change.status
        if kind not in _WRITTEN or own or source:
            return await self._inner.patch(change)
        return await self._ask("patch", kind, lambda: self._inner.patch(change))

    async def delete(self, remove: Remove) -> None:
        if remove.kind in _WRITTEN:
            await self._ask("delete", remove.kind, lambda: self._inner.delete(remove))
        else:
            await self._inner.delete(remove)

    async def watch(self, kind: Kind, since: str, namespace: str = "") -> AsyncIterator[WatchEvent]:
        fate, fall = self._faults.of_watch(kind)
        told = self._inner.watch(kind, since, namespace)
        async with aclosing(told) as events:  # type: ignore[type-var]
            if fate == PLAIN and fall is None:
                async for event in events:
                    yield event
                return
            async with aclosing(_going(events, fate, fall)) as going:  # type: ignore[type-var]
                async for event in going:
                    yield event

    async def _ask(self, verb: str, kind: Kind, action: Action[T]) -> T:
        match self._faults.of_request(verb, kind):
            case None:
                return await action()
            case Refusal() as refusal:
                raise refusal.raised()
            case Lost():
                await action()
                raise Unavailable("connection reset by peer")
            case Late(there, back):
                return await _late(action, there, back)
            case Belated(seconds):
                self._faults.do_later(REQUEST_TIMEOUT + seconds, action)
                await asyncio.sleep(REQUEST_TIMEOUT)
                raise Unavailable("no answer in time")
            case Twice():
                with suppress(WarrenError):
                    await action()
                return await action()


async def _late(action: Action[T], there: float, back: float) -> T:
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT):
            await asyncio.sleep(there)
            answer = await action()
            await asyncio.sleep(back)
            return answer
    except TimeoutError as error:
        raise Unavailable("no answer in time") from error


async def _going(
    events: AsyncIterator[WatchEvent], fate: Fate, fall: float | None
) -> AsyncIterator[WatchEvent]:
    """Tell the events of a watch as it goes."""
    loop = asyncio.get_running_loop()
    never = float("inf")
    falls = never if fall is None else fall
    ends = never if fate.seconds is None else loop.time() + fate.seconds
    last = min(falls, ends)
    told = 0
    before: deque[WatchEvent] = deque(maxlen=fate.again)
    coming = asyncio.ensure_future(anext(events))
    try:
        while loop.time() < last and told != fate.events:
            await asyncio.wait({coming}, timeout=None if last == never else last - loop.time())
            if not coming.done():
                break
            fresh = [coming.result()]
            coming = asyncio.ensure_future(anext(events))
            if fate.swapped:
                await asyncio.wait({coming}, timeout=0)
                if coming.done():
                    fresh.append(coming.result())
                    coming = asyncio.ensure_future(anext(events))
                    if key_of(fresh[0].object) != key_of(fresh[1].object):
                        fresh.reverse()
            for event in fresh:
                await asyncio.sleep(fate.lag)
                for old in before:
                    yield old
                yield event
                before.append(event)
            told += 1
    finally:
        coming.cancel()
        await asyncio.wait({coming})
    if falls <= ends and loop.time() >= falls:
        raise CUT_OFF.raised()
    if fate.silent:
        await asyncio.sleep(SILENCE)
        raise CUT_OFF.raised()
    if fate.ends is not None:
        raise fate.ends.raised()
