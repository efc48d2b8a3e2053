"""Options of a cluster: what is remembered, what is applied, and what is refused."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from warren.base.bytesize import GIB
from warren.base.errors import UserMistake
from warren.daemons.clustershape import ClusterShape
from warren.daemons.options import ExistingCluster, RequestedOptions, cluster_shape

KNOWN = ClusterShape(
    rabbits=2,
    computes_per_rabbit=3,
    capacity=100 * GIB,
    flash="image",
    devices={"rabbit-1": "/dev/one"},
    global_file_systems=("/data",),
    port=6443,
    isolated=True,
    separate=True,
)


def found(volumes: Mapping[str, int] | None = None, **others: Any) -> ExistingCluster:
    return ExistingCluster(count_volumes=lambda: volumes or {}, **others)


def named(value: object) -> str | None:
    """Name a case by the options that it gives."""
    if not isinstance(value, RequestedOptions):
        return ""
    given = {
        key: each for key, each in msgspec.structs.asdict(value).items() if each not in (None, {})
    }
    return ",".join(f"{key}={each}" for key, each in given.items()) or "nothing"


def test_at_first_what_is_not_given_is_as_usual() -> None:
    assert cluster_shape(None, RequestedOptions(), found()) == ClusterShape(flash="image")
    assert cluster_shape(None, RequestedOptions(), found(why_no_images="not root")) == ClusterShape(
        flash="directory"
    )


def test_what_is_not_given_is_as_it_was() -> None:
    assert (
        cluster_shape(
            KNOWN, RequestedOptions(), found({"rabbit-0": 1, "rabbit-1": 1}, shells_alive=True)
        )
        == KNOWN
    )


def test_a_directory_of_an_older_version_is_taken_as_it_is() -> None:
    older = msgspec.json.decode(b'{"rabbits": 3, "computes_per_rabbit": 1}', type=ClusterShape)

    assert cluster_shape(older, RequestedOptions(), found()) == ClusterShape(
        rabbits=3, computes_per_rabbit=1
    )


def test_what_is_there_is_not_looked_at_without_need() -> None:
    def look() -> Mapping[str, int]:
        raise AssertionError

    assert (
        cluster_shape(
            KNOWN, RequestedOptions(rabbits=3), ExistingCluster(count_volumes=look)
        ).rabbits
        == 3
    )


FULL = {"rabbit-0": 1}


def test_agents_that_have_made_volumes_are_not_taken_from_a_cluster() -> None:
    with pytest.raises(UserMistake, match="--no-agents: rabbit-0 still has volumes of jobs"):
        cluster_shape(KNOWN, RequestedOptions(agents=False), found(FULL))
    without = msgspec.structs.replace(KNOWN, agents=False)
    assert cluster_shape(without, RequestedOptions(), found(FULL)) == without
    assert cluster_shape(without, RequestedOptions(agents=True), found(FULL)) == KNOWN


@pytest.mark.parametrize(
    ("asked", "changed", "volumes"),
    [
        (RequestedOptions(rabbits=5), {"rabbits": 5}, FULL),
        (RequestedOptions(capacity=200 * GIB), {"capacity": 200 * GIB}, FULL),
        (RequestedOptions(capacity=50 * GIB), {"capacity": 50 * GIB}, {}),
        (
            RequestedOptions(global_file_systems=("/a", "/b")),
            {"global_file_systems": ("/a", "/b")},
            FULL,
        ),
        (RequestedOptions(global_file_systems=()), {"global_file_systems": ()}, FULL),
        (RequestedOptions(port=7000), {"port": 7000}, FULL),
        (RequestedOptions(port=0), {"port": None}, FULL),
        (RequestedOptions(isolated=False), {"isolated": False}, {}),
        (RequestedOptions(separate=False), {"separate": False}, FULL),
        (RequestedOptions(agents=False), {"agents": False}, {}),
        (
            RequestedOptions(devices={"rabbit-1": "/dev/two"}),
            {"devices": {"rabbit-1": "/dev/two"}},
            FULL,
        ),
        (
            RequestedOptions(devices={"rabbit-0": "vg:fast"}),
            {"devices": {"rabbit-0": "vg:fast", "rabbit-1": "/dev/one"}},
            {"rabbit-1": 1},
        ),
        (
            RequestedOptions(rabbits=3, devices={"rabbit-2": "/dev/two"}),
            {"rabbits": 3, "devices": {"rabbit-1": "/dev/one", "rabbit-2": "/dev/two"}},
            FULL,
        ),
        (RequestedOptions(devices={"rabbit-1": "image"}), {"devices": {}}, FULL),
        (RequestedOptions(rabbits=2, computes_per_rabbit=3, flash="image"), {}, FULL),
    ],
    ids=named,
)
def test_what_can_be_changed_is(
    asked: RequestedOptions, changed: dict[str, Any], volumes: Mapping[str, int]
) -> None:
    expected = msgspec.structs.replace(KNOWN, **changed)

    assert cluster_shape(KNOWN, asked, found(volumes)) == expected


LEAVE = "Leave the option out, or choose another state directory."


@pytest.mark.parametrize(
    ("asked", "there", "why"),
    [
        (
            RequestedOptions(rabbits=1),
            found(),
            f"--rabbits 1: there are 2 here, and rabbits can only be added. {LEAVE}",
        ),
        (
            RequestedOptions(computes_per_rabbit=4),
            found(),
            "--computes-per-rabbit 4: there are 3 here, and another number would give compute "
            f"nodes other names. {LEAVE}",
        ),
        (
            RequestedOptions(flash="directory"),
            found(),
            f"--flash directory: volumes are on block devices here, and stay that. {LEAVE}",
        ),
        (
            RequestedOptions(capacity=50 * GIB),
            found({"rabbit-0": 2}),
            "--rabbit-capacity 50GiB: rabbit-0 still has 2 volumes of jobs in 100 GiB. Start the "
            "cluster without this option, and let those jobs end first.",
        ),
        (
            RequestedOptions(devices={"rabbit-1": "/dev/two"}),
            found({"rabbit-1": 1}),
            "--rabbit-device rabbit-1=/dev/two: rabbit-1 still has 1 volume of jobs on /dev/one. "
            "Start the cluster without this option, and let those jobs end first.",
        ),
        (
            RequestedOptions(devices={"rabbit-0": "/dev/two"}),
            found({"rabbit-0": 1}),
            "--rabbit-device rabbit-0=/dev/two: rabbit-0 still has 1 volume of jobs on its image. "
            "Start the cluster without this option, and let those jobs end first.",
        ),
        (
            RequestedOptions(devices={"rabbit-1": "image"}),
            found({"rabbit-1": 1}),
            "--rabbit-device rabbit-1=image: rabbit-1 still has 1 volume of jobs on /dev/one. "
            "Start the cluster without this option, and let those jobs end first.",
        ),
        (
            RequestedOptions(devices={"rabbit-2": "/dev/two"}),
            found(),
            "--rabbit-device rabbit-2=/dev/two: the rabbits are rabbit-0, rabbit-1.",
        ),
        (
            RequestedOptions(isolated=False),
            found(shells_alive=True),
            "--no-namespaces: jobs of this cluster still run as they were started: end them with "
            "'warren down' first.",
        ),
        (
            RequestedOptions(),
            found(why_no_images="loop devices take root"),
            "Flash cannot be disk images with loop devices here: loop devices take root.",
        ),
    ],
    ids=named,
)
def test_what_cannot_be_changed_is_refused_with_what_to_do(
    asked: RequestedOptions, there: ExistingCluster, why: str
) -> None:
    with pytest.raises(UserMistake) as refused:
        cluster_shape(KNOWN, asked, there)
    assert str(refused.value) == why


def test_simulated_flash_has_faults_and_no_device() -> None:
    faults = {"make": {"fails": 1}}
    shape = cluster_shape(None, RequestedOptions(flash="simulated", faults=faults), found())

    assert (shape.flash, shape.faults) == ("simulated", faults)
    assert cluster_shape(shape, RequestedOptions(), found()) == shape
    assert cluster_shape(shape, RequestedOptions(faults={}), found(FULL)).faults == {}
    with pytest.raises(UserMistake, match="simulated flash needs no device"):
        cluster_shape(
            None, RequestedOptions(flash="simulated", devices={"rabbit-0": "/dev/one"}), found()
        )
    with pytest.raises(UserMistake, match="volumes are simulated here, and stay that"):
        cluster_shape(shape, RequestedOptions(flash="image"), found())
    with pytest.raises(UserMistake, match="only flash that is simulated has them"):
        cluster_shape(KNOWN, RequestedOptions(faults=faults), found())


def test_plain_directories_need_no_device() -> None:
    with pytest.raises(UserMistake, match="plain directories need no device"):
        cluster_shape(
            None, RequestedOptions(flash="directory", devices={"rabbit-0": "/dev/one"}), found()
        )
