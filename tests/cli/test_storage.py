"""`warren rabbits`: what has flash on each of them."""

from typing import Any

from warren.cli.storage import rabbit_summaries
from warren.dws import kinds, labels
from warren.dws.objects.meta import Meta

STORAGES = [
    {"metadata": {"name": name}, "spec": {"state": "Enabled"}, "status": {"capacity": 100}}
    for name in ("r0", "r1")
]


def share(rabbit: str, name: str, carried: dict[str, str]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": rabbit, "labels": carried}
    return {"metadata": metadata, "spec": {"count": 2, "capacity": 5}}


def persistent(name: str, namespace: str = "default") -> dict[str, str]:
    return {labels.PERSISTENT_NAME: name, labels.PERSISTENT_NAMESPACE: namespace}


def system(name: str) -> dict[str, str]:
    owner = Meta(name=name, namespace="default", uid="uid")
    return {labels.SYSTEM_STORAGE: "uid", **labels.of_owner(kinds.NNF_STORAGE, owner)}


def test_a_rabbit_tells_what_has_its_flash() -> None:
    shares = [
        share("r0", "a", {labels.WORKFLOW_NAME: "job-1", labels.WORKFLOW_NAMESPACE: "default"}),
        share("r0", "b", persistent("kept")),
        share("r0", "c", persistent("kept")),
        share("r0", "d", persistent("kept", "elsewhere")),
        share("r0", "e", system("local")),
    ]
    found = {each["name"]: each for each in rabbit_summaries(STORAGES, shares, [], [])}
    assert found["r0"]["allocated"] == 50
    who = ("workflows", "persistent", "system")
    assert [found["r0"][each] for each in who] == [["job-1"], ["elsewhere/kept", "kept"], ["local"]]
    assert [found["r1"][each] for each in who] == [[], [], []]
