"""Loop devices that cannot be detached, and what is said of them."""

from collections.abc import Sequence

import pytest

from tests.harness import virtual
from warren.dws.node import TIMED_OUT, Kept, NodeTrouble
from warren.node import commands, loops
from warren.node.loops import Loop

LOOP = Loop(device="/dev/loop7", backing="/image", offset=0, size=4096)


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        # The kernel remembers the wish of what is open.
        (None, Kept("/dev/loop7 is in use, and cannot be detached")),
        (
            "losetup: /dev/loop7: detach failed: Device or resource busy",
            Kept("/dev/loop7 is in use, and cannot be detached"),
        ),
        (
            f"losetup {TIMED_OUT} 20 s",
            NodeTrouble(f"/dev/loop7 cannot be detached: losetup {TIMED_OUT} 20 s"),
        ),
        (
            "losetup: /dev/loop7: detach failed: Input/output error",
            NodeTrouble(
                "/dev/loop7 cannot be detached: "
                "losetup: /dev/loop7: detach failed: Input/output error"
            ),
        ),
    ],
)
@pytest.mark.parametrize("is_gone", [False, True])
def test_a_device_that_cannot_be_detached_is_in_use_only_if_nothing_else_is_wrong(
    monkeypatch: pytest.MonkeyPatch, failure: str | None, said: NodeTrouble, is_gone: bool
) -> None:
    """A command that hung was called a use of the flash, for which no rabbit is disabled."""

    async def run(argv: Sequence[str]) -> str:
        if failure is not None:
            raise NodeTrouble(failure)
        return ""

    monkeypatch.setattr(commands, "run", run)
    monkeypatch.setattr(loops, "_read_loop", lambda name: None if is_gone else LOOP)

    if is_gone:
        virtual.run(loops.detach(LOOP))
        return
    with pytest.raises(NodeTrouble) as raised:
        virtual.run(loops.detach(LOOP))
    assert (type(raised.value), str(raised.value)) == (type(said), str(said))
