"""What a job's tasks find in their environment: dws-spec section 9, row by row."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.harness import virtual
from tests.harness.workloads import Workloads
from tests.harness.world import World, opened
from warren.daemons.clustershape import ClusterShape
from warren.daemons.compose import Control
from warren.dws import kinds
from warren.rpc.message import RpcError

SPECIFICATION = Path(__file__).parents[2] / "docs" / "spec" / "dws-spec.md"
DIRECTIVES = [
    "#DW jobdw type=xfs capacity=1GiB name=my-fs",
    "#DW jobdw type=ext4 capacity=1GiB name=other",
    "#DW jobdw type=xfs capacity=1GiB name=third",
    "#DW persistentdw name=pers",
    "#DW persistentdw name=for-all",
]
SITE = ClusterShape(rabbits=1, computes_per_rabbit=2)

Found = Mapping[str, str]


def rows() -> list[str]:
    """Return the first column of the table."""
    section = SPECIFICATION.read_text().partition("\n## 9. ")[2].partition("\n## ")[0]
    table = [line.split("|")[1].strip() for line in section.splitlines() if line[:1] == "|"]
    return table[2:]


def at(index: int) -> str:
    return f"/compute-00/mnt/a,nnf/UID-{index}"


def by_name(env: Found) -> None:
    names = {"my_fs": 0, "other": 1, "third": 2}
    assert {each: env[f"DW_JOB_{each}"] for each in names} == {
        each: at(index) for each, index in names.items()
    }


def by_type(env: Found) -> None:
    assert (env["DW_JOB_XFS"], env["DW_JOB_EXT4"]) == (at(0), at(1))
    assert not {"DW_JOB_GFS2", "DW_JOB_LUSTRE", "DW_JOB_RAW"} & env.keys()


def all_of_the_job(env: Found) -> None:
    assert env["DW_JOBS"] == f"my-fs:{at(0)},other:{at(1)},third:{at(2)}"


def persistent(env: Found) -> None:
    assert (env["DW_PERSISTENT_pers"], env["DW_PERSISTENT_for_all"]) == (at(3), at(4))
    assert env["DW_PERSISTENTS"] == f"pers:{at(3)},for-all:{at(4)}"


def workflow(env: Found) -> None:
    assert re.fullmatch(r"fluxjob-\d+", env["DW_WORKFLOW_NAME"])
    assert env["DW_WORKFLOW_NAMESPACE"] == "default"


def without_a_name(env: Found) -> None:
    # It is a slip of theirs: a name ends in nothing, where the storage has a name.
    assert "DW_PERSISTENT_" not in env


def containers(env: Found) -> None:
    assert not any(name.startswith("NNF_CONTAINER") for name in env)


ROWS: Mapping[str, Callable[[Found], None]] = {
    "DW_WORKFLOW_NAME, DW_WORKFLOW_NAMESPACE": workflow,
    "DW_JOB_`<name>`": by_name,
    "DW_JOB_`<TYPE>` (XFS, GFS2, LUSTRE, RAW)": by_type,
    "DW_JOBS": all_of_the_job,
    "DW_PERSISTENT_`<name>`, DW_PERSISTENTS": persistent,
    "DW_PERSISTENT_ (literally with empty suffix)": without_a_name,
    "NNF_CONTAINER_PORTS, NNF_CONTAINER_PORTS_`<container name, - -> _>`": containers,
    "NNF_CONTAINER_SUBDOMAIN (=wf), NNF_CONTAINER_DOMAIN (=`<ns>.svc.cluster.local`), "
    "NNF_CONTAINER_HOSTNAMES (comma list)": containers,
    "NNF_CONTAINER_LAUNCHER": containers,
}


def environment() -> Found:
    """Run a job with storage of all sorts, and return what its task finds, with `UID` for ids."""

    async def life(world: World, control: Control) -> None:
        workloads = Workloads(world)
        for name in ("pers", "for-all"):
            create = f"#DW create_persistent type=xfs capacity=1GiB name={name}"
            await workloads.make(control, f"maker-{name}", create, userid=os.getuid())
            await workloads.finish(control, f"maker-{name}", ("compute-00", "compute-01"))
        job = await world.submit(control, nodes=1, attributes={"dw": DIRECTIVES})
        await world.ended(control, job)

    async def main() -> Found:
        async with opened(SITE) as world:
            # Nodes without a mount namespace have paths of their own.
            world.mount_prefix = "/mnt/a,nnf"
            world.place = lambda node, path: f"/{node}{path}"
            await world.live(lambda control: life(world, control))
            (found,) = world.seen.values()
            uid = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
            return {name: uid.sub("UID", value) for name, value in found.items()}

    return virtual.run(main())


@pytest.fixture(scope="module")
def found() -> Found:
    return environment()


def test_every_row_of_the_table_is_tried() -> None:
    assert list(ROWS) == rows()


@pytest.mark.parametrize("row", ROWS)
def test_a_job_finds_what_the_table_says(row: str, found: Found) -> None:
    """dws-spec section 9."""
    ROWS[row](found)


def test_a_job_that_asks_for_a_container_is_refused_before_it_misses_its_variables() -> None:
    async def life(world: World, control: Control) -> None:
        container = "#DW container name=app profile=any"
        with pytest.raises(RpcError, match="Containers cannot run here"):
            await world.submit(control, nodes=1, attributes={"dw": [container]})
        assert list(control.api.store.objects_of(kinds.WORKFLOW)) == []

    async def main() -> None:
        async with opened(SITE) as world:
            await world.live(lambda control: life(world, control))

    virtual.run(main())
