"""Which nodes reach the flash under the storage of an NnfAccess."""

from typing import Any

from tests.dws.accesses import by, flash, lasting, mounted, reached, seen
from tests.dws.builders import changes, computes, nnf_access
from warren.dws import kinds
from warren.dws.access.nnfaccess import decide
from warren.dws.objects.accesses import NnfAccess


def test_flash_names_the_computes_that_mount_it_while_they_do() -> None:
    """Case 01 of the vectors: added in PreRun, gone in PostRun."""
    blocks = [flash("r0", "r0"), flash("r1", "r1")]
    writes = decide(seen(nnf_access(), blocks=blocks))
    assert reached(writes) == [(9, ["r0", "n0", "n1"]), (9, ["r1", "n2"])]
    # Before anything is mounted: who dies in between does it once more.
    kind = [each.kind for each in writes][:4]
    blocks_first = [kinds.NNF_NODE_BLOCK_STORAGE] * 2 + [kinds.CLIENT_MOUNT]
    assert kind == [kinds.NNF_STORAGE, *blocks_first]

    blocks = [flash("r0", "r0", "n0", "n1"), flash("r1", "r1", "n2")]
    assert changes(decide(seen(nnf_access(), blocks=blocks)), kinds.NNF_NODE_BLOCK_STORAGE) == []
    gone = nnf_access(desired="unmounted")
    late = decide(seen(gone, *mounted("n0", desired="unmounted"), blocks=blocks))
    assert changes(late, kinds.NNF_NODE_BLOCK_STORAGE) == []
    done = mounted("n0", state="unmounted", desired="unmounted")
    assert reached(decide(seen(gone, *done, blocks=blocks))) == [(9, ["r0"]), (9, ["r1"])]


def test_flash_is_not_told_of_rabbits_nor_while_it_goes() -> None:
    blocks = [flash("r0", "r0"), flash("r1", "r1", deleting=True)]
    on_rabbits = decide(seen(nnf_access("servers"), computes=None, blocks=blocks))
    assert changes(on_rabbits, kinds.NNF_NODE_BLOCK_STORAGE) == []
    assert reached(decide(seen(nnf_access(), blocks=blocks))) == [(9, ["r0", "n0", "n1"])]


def test_flash_of_persistent_storage_names_the_nodes_of_all_that_mount_it() -> None:
    blocks = [flash("r0", "r0", "n1"), flash("r1", "r1")]
    held = [by("n1", "n2"), by("n0", on_rabbits=True, name="copies"), by(name="unknown")]

    def writes(access: NnfAccess, *mounts: Any, nodes: str = "n0") -> Any:
        own = computes(nodes)
        others = {"storage": lasting(), "computes": own, "blocks": blocks}
        return decide(seen(access, *mounts, other_holdings=held, **others))

    assert reached(writes(nnf_access(), nodes="n1")) == [(9, ["r1", "n2"])]
    held.pop(1)
    assert reached(writes(nnf_access())) == [(9, ["r0", "n0", "n1"]), (9, ["r1", "n2"])]
    blocks[:] = [flash("r0", "r0", "n1", "n0"), flash("r1", "r1", "n2")]
    assert reached(writes(nnf_access())) == []
    done = mounted("n0", state="unmounted", desired="unmounted")[:1]
    assert reached(writes(nnf_access(desired="unmounted"), *done)) == [(9, ["r0", "n1"])]
