"""SystemConfigurations: what is wrong with one is told in its status (dws-spec section 6)."""

from typing import Any

import pytest

from tests.dws.builders import after, changes, meta
from tests.dws.builders import configuration as built
from warren.dws import kinds
from warren.dws.objects.decoding import read
from warren.dws.objects.systemconfiguration import SystemConfiguration
from warren.dws.rabbits import configurationmistakes


def system(name: str = "default", status: Any = None, **spec: Any) -> SystemConfiguration:
    found = {"metadata": meta(name), "spec": spec, "status": status or {}}
    return read(found, SystemConfiguration)


def node(name: str, *computes: str, type: str = "Rabbit") -> dict[str, Any]:
    access = [{"name": each, "index": index} for index, each in enumerate(computes)]
    return {"name": name, "type": type, "computesAccess": access}


def said(seen: SystemConfiguration) -> tuple[bool, str | None]:
    """Return what its status says once nothing is left to be said."""
    seen = after(seen, configurationmistakes.report(seen))
    assert configurationmistakes.report(seen) == []
    return seen.status.ready, seen.status.error.user_message if seen.status.error else None


RIGHT: dict[str, Any] = {
    "storageNodes": [node("r0", "n0", "n1"), node("r1")],
    "externalComputeNodes": [{"name": "login"}],
    "ports": [5000, "5001-5999", "6000"],
}


def test_a_configuration_without_mistakes_is_ready() -> None:
    assert said(system(**RIGHT)) == (True, None)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            {"storageNodes": [node("r0", "n0"), node("r1", "n0", "n1")]},
            "n0 is listed more than once among the compute nodes.",
        ),
        (
            {"storageNodes": [node("r0", "n0")], "externalComputeNodes": [{"name": "n0"}]},
            "n0 is listed more than once among the compute nodes.",
        ),
        (
            {"storageNodes": [node("r0"), node("r0")]},
            "r0 is listed more than once in storageNodes.",
        ),
        (
            {"storageNodes": [node("r0", "r0")]},
            "r0 cannot be both a storage node and a compute node.",
        ),
        (
            {"storageNodes": [node("r0", type="Hare"), node("r1", type="rabbit")]},
            "the type of r0, r1 is not Rabbit, which is the only one.",
        ),
        (
            {"ports": [0, "7-6", 65536, "x"], "storageNodes": [node("a", "n"), node("b", "n")]},
            "n is listed more than once among the compute nodes; "
            "0 is neither a port nor a range START-END of ports; "
            "'7-6' is neither a port nor a range START-END of ports; "
            "65536 is neither a port nor a range START-END of ports; "
            "'x' is neither a port nor a range START-END of ports.",
        ),
        (
            {"storageNodes": [node("r", *(f"n{i:02}" for i in range(12)))] * 2},
            "r is listed more than once in storageNodes; "
            "n00, n01, n02, n03, n04, n05, n06, n07, n08, n09 and 2 more are listed more than once "
            "among the compute nodes.",
        ),
    ],
)
def test_what_is_wrong_with_a_configuration_is_named(spec: Any, sentence: str) -> None:
    assert said(system(**spec)) == (False, sentence)


def test_a_configuration_that_was_ready_and_is_wrong_now_says_so_and_recovers() -> None:
    wrong = {**RIGHT, "storageNodes": [node("r0", "n0", "n0")]}
    seen = system(status={"ready": True}, **wrong)

    seen = after(seen, configurationmistakes.report(seen))
    assert (seen.status.ready, seen.status.error is not None) == (False, True)

    status = {"ready": False, "error": {"debugMessage": "n0 is listed", "severity": "Fatal"}}
    assert said(system(status=status, **RIGHT)) == (True, None)


def test_only_one_configuration_has_an_effect() -> None:
    ready, sentence = said(system("other", **RIGHT))

    assert not ready
    assert sentence == (
        "the SystemConfiguration is default/default, and default/other has no effect: delete it."
    )


def test_a_mistake_is_the_administrators() -> None:
    (patch,) = changes(configurationmistakes.report(system("other")), kinds.SYSTEM_CONFIGURATION)

    assert (patch["status"]["error"]["type"], patch["status"]["error"]["severity"]) == (
        "User",
        "Fatal",
    )


def test_each_compute_is_wired_to_one_rabbit() -> None:
    assert built().rabbits_of_computes() == {"n0": "r0", "n1": "r0", "n2": "r1"}
    found = built()
    assert found.rabbits_of_computes() is found.rabbits_of_computes()
