"""A rabbit's flash, and portions of it: of one pool, or of quanta that are given out whole.

A portion is one number: of a pool its GiB, of quanta the ids of those that are in it, as bits.
What a portion means is known here alone. Of the portions of one rabbit no two have anything in
common.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import msgspec

from warren.rfc.errors import BadFormat
from warren.rfc.jgf import Vertex

KIND_PROPERTY: Final = "flash"
"""The property of a chassis that says how its flash is given out, where it is not in quanta."""

POOL: Final = "pool"

RESERVED_PROPERTIES: Final = frozenset(("rabbit", "ssdcount", KIND_PROPERTY))
"""Properties of a chassis that are not labels of its rabbit."""


class Flash(Protocol):
    """The flash of one rabbit."""

    @property
    def whole_portion(self) -> int:
        """The portion that is all of it."""
        ...

    @property
    def up_portion(self) -> int:
        """The portion that the graph says can be used."""
        ...

    @property
    def gib(self) -> int:
        """How much there is."""
        ...

    @property
    def id_count(self) -> int:
        """How many ids its vertices take."""
        ...

    @property
    def unit_gib(self) -> int:
        """How many GiB are given out together."""
        ...

    def units_for(self, gib: int) -> int:
        """Return how many units make up so much flash; 0 where there is none at all."""
        ...

    def intersect(self, one: int, other: int) -> int:
        """Return what is in both of two portions."""
        ...

    def unit_count(self, portion: int) -> int:
        """Return how many units there are in a portion."""
        ...

    def first_units(self, portion: int, units: int) -> int:
        """Return so many units of a portion, which has as many."""
        ...

    def contains(self, free: int, portion: int) -> bool:
        """Return whether all of a portion is free."""
        ...

    def subtract(self, free: int, portion: int) -> int:
        """Return what is left free when a portion is taken."""
        ...

    def add(self, free: int, portion: int) -> int:
        """Return what is free with a portion that is given back."""
        ...

    def ssds(self, portion: int) -> Iterator[tuple[int, int]]:
        """Return the ssds that a portion is in a graph: the id and the GiB of each."""
        ...

    def read_portion(self, vertices: Sequence[Vertex]) -> int:
        """Read a portion that was written here. Raises BadFormat if it is not of this flash."""
        ...


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """Flash of which each job has as many GiB as it asks for."""

    gib: int = 0
    up_portion: int = 0

    @property
    def whole_portion(self) -> int:
        return self.gib

    @property
    def id_count(self) -> int:
        return 1

    @property
    def unit_gib(self) -> int:
        return 1

    def units_for(self, gib: int) -> int:
        return gib if self.gib else 0

    def intersect(self, one: int, other: int) -> int:
        return min(one, other)

    def unit_count(self, portion: int) -> int:
        return portion

    def first_units(self, portion: int, units: int) -> int:
        return units

    def contains(self, free: int, portion: int) -> bool:
        return portion <= free

    def subtract(self, free: int, portion: int) -> int:
        return free - portion

    def add(self, free: int, portion: int) -> int:
        return free + portion

    def ssds(self, portion: int) -> Iterator[tuple[int, int]]:
        if portion:
            yield 0, portion

    def read_portion(self, vertices: Sequence[Vertex]) -> int:
        # However it was cut when it was given out: what counts is how much it is.
        portion = sum(vertex.size for vertex in vertices)
        if portion > self.gib:
            path = vertices[0].parent_path
            raise BadFormat(f"R names {portion} GiB of flash of {path}, which has {self.gib}")
        return portion


class Quanta(msgspec.Struct, frozen=True, kw_only=True):
    """Flash that was cut into pieces of one size."""

    quantum_gib: int = 0
    """GiB of each piece."""
    whole_portion: int = 0
    up_portion: int = 0

    @property
    def gib(self) -> int:
        return self.whole_portion.bit_count() * self.quantum_gib

    @property
    def id_count(self) -> int:
        return self.whole_portion.bit_length()

    @property
    def unit_gib(self) -> int:
        return self.quantum_gib

    def units_for(self, gib: int) -> int:
        return -(-gib // self.quantum_gib) if self.quantum_gib else 0

    def intersect(self, one: int, other: int) -> int:
        return one & other

    def unit_count(self, portion: int) -> int:
        return portion.bit_count()

    def first_units(self, portion: int, units: int) -> int:
        return lowest_bits(portion, units)

    def contains(self, free: int, portion: int) -> bool:
        return not portion & ~free

    def subtract(self, free: int, portion: int) -> int:
        return free & ~portion

    def add(self, free: int, portion: int) -> int:
        return free | portion

    def ssds(self, portion: int) -> Iterator[tuple[int, int]]:
        while portion:
            low = portion & -portion
            yield low.bit_length() - 1, self.quantum_gib
            portion ^= low

    def read_portion(self, vertices: Sequence[Vertex]) -> int:
        portion = 0
        for vertex in vertices:
            index = max(vertex.id, 0)
            bit = 1 << index if index < self.id_count else 0
            if not bit:
                raise BadFormat(f"R names {vertex.path}, which the system does not have")
            if vertex.size != self.quantum_gib:
                raise BadFormat(
                    f"R names {vertex.path} of {vertex.size} GiB, which has {self.quantum_gib} here"
                )
            portion |= bit
        return portion


def from_vertices(path: str, properties: dict[str, str], ssds: Sequence[Vertex]) -> Flash:
    """Return the flash of a chassis whose graph has these ssds. Raises BadFormat."""
    if properties.get(KIND_PROPERTY) == POOL:
        return Pool(
            gib=sum(ssd.size for ssd in ssds), up_portion=sum(ssd.size for ssd in ssds if ssd.up)
        )
    sizes = {ssd.size for ssd in ssds}
    if len(sizes) > 1:
        raise BadFormat(f"the ssds of {path} are not of one size")
    up_bits = sum(1 << index for index, ssd in enumerate(ssds) if ssd.up)
    return Quanta(
        quantum_gib=max(sizes, default=0), whole_portion=(1 << len(ssds)) - 1, up_portion=up_bits
    )


def lowest_bits(bits: int, count: int) -> int:
    """Keep the lowest `count` bits."""
    if bits.bit_count() == count:
        return bits
    lowest = 0
    for _ in range(count):
        low = bits & -bits
        lowest |= low
        bits ^= low
    return lowest
