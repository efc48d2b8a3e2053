"""When things happen: as a script says, or as dice fall."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.faults.proxy import (
    BROKEN,
    BUSY,
    BUSY_FOR_NOW,
    CHANGED,
    CLOSED,
    CUT_OFF,
    GONE,
    LOST,
    MAY_NOT,
    PLAIN,
    TOO_OLD,
    TWICE,
    Belated,
    Fate,
    Late,
    Mishap,
)
from warren.base.objects import Kind

WRITES = ("create", "patch", "delete")


@dataclass(frozen=True)
class Line:
    """One line of a script: what befalls some requests, or watches, counted from 1."""

    first: int
    last: int
    verb: str
    kind: Kind
    what: Mishap | Fate

    def __str__(self) -> str:
        return f"{self.verb} {self.first}..{self.last} of {self.kind.plural}: {self.what}"


def the(number: int, verb: str, kind: Kind, what: Mishap | Fate) -> Line:
    """Say what befalls one request of all that are made."""
    return Line(number, number, verb, kind, what)


def first(count: int, verb: str, kind: Kind, what: Mishap | Fate) -> Line:
    """Say what befalls the first requests that are made."""
    return Line(1, count, verb, kind, what)


class Outages:
    """When the API is down: from when to when, in order."""

    def __init__(self, outages: Sequence[tuple[float, float]]) -> None:
        self._outages = outages

    def down(self, now: float) -> bool:
        return any(begin <= now < end for begin, end in self._outages)

    def next_fall(self, now: float) -> float | None:
        return next((begin for begin, _ in self._outages if begin > now), None)


class Script(Outages):
    """What is written happens, and nothing else."""

    def __init__(self, *lines: Line, outages: Sequence[tuple[float, float]] = ()) -> None:
        super().__init__(outages)
        self._counts: Counter[tuple[str, Kind]] = Counter()
        self.left = list(lines)
        """What has not happened yet."""
        self._lines = lines

    def mishap(self, verb: str, kind: Kind, now: float) -> Mishap | None:
        found = self._next(verb, kind)
        assert not isinstance(found, Fate)
        return found

    def fate(self, kind: Kind, now: float) -> Fate:
        found = self._next("watch", kind)
        assert found is None or isinstance(found, Fate)
        return found or PLAIN

    def _next(self, verb: str, kind: Kind) -> Mishap | Fate | None:
        self._counts[verb, kind] += 1
        number = self._counts[verb, kind]
        for line in self._lines:
            if (line.verb, line.kind) == (verb, kind) and line.first <= number <= line.last:
                if line in self.left:
                    self.left.remove(line)
                return line.what
        return None


Sort = Callable[[random.Random], Mishap]

_ANY: Final[Mapping[str, Sort]] = {
    "gone": lambda dice: GONE,
    "broken": lambda dice: BROKEN,
    "closed": lambda dice: CLOSED,
    "forbidden": lambda dice: MAY_NOT,
    "busy": lambda dice: BUSY,
    "busy for now": lambda dice: BUSY_FOR_NOW,
    "lost": lambda dice: LOST,
    "late": lambda dice: Late(dice.uniform(0, 3), dice.uniform(0, 3)),
    "very late": lambda dice: Late(dice.uniform(0, 40), dice.uniform(0, 40)),
}
"""What can befall any request."""

_CHANGE: Final[Mapping[str, Sort]] = {"changed": lambda dice: CHANGED}
"""What can befall those that change what is there."""

_WRITE: Final[Mapping[str, Sort]] = {
    "twice": lambda dice: TWICE,
    "belated": lambda dice: Belated(dice.uniform(0, 60)),
}
"""What can befall those that leave something behind."""

_OF: Final[Mapping[str, Mapping[str, Sort]]] = {
    "get": _ANY,
    "list": _ANY,
    "create": {**_ANY, **_WRITE},
    "patch": {**_ANY, **_WRITE, **_CHANGE},
    "delete": {**_ANY, **_WRITE, **_CHANGE},
}

SORTS: Final = (*_ANY, *_CHANGE, *_WRITE)


@dataclass(frozen=True, kw_only=True)
class Climate:
    """How often what happens."""

    requests: float
    """The chance that something befalls a request."""
    sorts: Mapping[str, float]
    """What that may be, and its share."""
    watches: float
    """The chance that a watch does not go as one wishes."""
    outages: tuple[tuple[float, float], ...] = ()
    clears: float | None = None
    """From when on nothing happens any more."""


def climate(dice: random.Random) -> Climate:
    """Return some climate: mild for ever, or foul for a while, with a taste of its own."""
    lasting = dice.random() < 0.3
    sorts = dice.sample(SORTS, dice.randint(1, len(SORTS)))
    begins = sorted(dice.uniform(0, 60) for _ in range(dice.choice((0, 0, 0, 1, 2))))
    return Climate(
        requests=dice.uniform(0.01, 0.15) if lasting else 10 ** dice.uniform(-2, -0.1),
        sorts={sort: dice.random() for sort in sorts},
        watches=dice.uniform(0, 0.3 if lasting else 0.9),
        outages=tuple((begin, begin + 10 ** dice.uniform(0, 2)) for begin in begins),
        clears=None if lasting else 10 ** dice.uniform(0.5, 2.5),
    )


class Dice(Outages):
    """What happens is by chance, and the same for the same dice."""

    def __init__(self, climate: Climate, dice: random.Random) -> None:
        super().__init__(climate.outages)
        self._climate = climate
        self._dice = dice

    def mishap(self, verb: str, kind: Kind, now: float) -> Mishap | None:
        if self._clear(now) or self._dice.random() >= self._climate.requests:
            return None
        fitting = [sort for sort in self._climate.sorts if sort in _OF[verb]]
        if not fitting:
            return None
        shares = [self._climate.sorts[sort] for sort in fitting]
        return _OF[verb][self._dice.choices(fitting, shares)[0]](self._dice)

    def fate(self, kind: Kind, now: float) -> Fate:
        dice = self._dice
        if self._clear(now) or dice.random() >= self._climate.watches:
            return PLAIN
        if dice.random() < 0.1:
            return Fate(seconds=0, ends=TOO_OLD)
        return Fate(
            events=dice.choice((None, dice.randrange(1, 20))),
            seconds=10 ** dice.uniform(-1, 2),
            ends=dice.choice((None, CUT_OFF, TOO_OLD)),
            silent=dice.random() < 0.2,
            lag=dice.choice((0, 0, dice.random(), 10 * dice.random() ** 3)),
            again=dice.choice((0, 0, 1, 5)),
            swapped=dice.random() < 0.3,
        )

    def _clear(self, now: float) -> bool:
        return self._climate.clears is not None and now >= self._climate.clears
