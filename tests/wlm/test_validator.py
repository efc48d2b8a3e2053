"""What is said of a job's storage before the job is accepted."""

from typing import Any

import pytest

from tests.directives.rulebook import RULES
from tests.dws.builders import profile
from tests.scheduling.systems import system
from warren.base.errors import UserMistake
from warren.directives.diagnostics import Mistake
from warren.rfc import jobspec
from warren.scheduling.graph import Graph
from warren.wlm.embedded.validator import StorageValidator
from warren.wlm.jobdirectives import MAX_CHARS, MAX_DIRECTIVES

JOBDW = "#DW jobdw type=xfs capacity=1GiB name=ab"


def judge(*profiles: Any, creator: int | None = None, **more: Any) -> StorageValidator:
    """Return the validator of a system of one rabbit with two nodes and 144 GiB."""
    graph = Graph(system((2, 144)))
    return StorageValidator(
        rules=lambda: RULES,
        file_systems=list,
        profiles=lambda: profiles or [profile(), profile("fast", default=False)],
        rabbits=list,
        find_refusal=graph.infeasibility,
        min_allocation=0,
        persistent={},
        nodes=lambda name: None,
        now=lambda: 0.0,
        creator=creator,
        why_not_made={"lustre": "mkfs.lustre is not installed on r0"}.get,
        **more,
    )


def refused(directive: str, *profiles: Any, creator: int | None = None, **more: Any) -> str:
    """Return what the author of a job with a directive is told."""
    validator = judge(*profiles, creator=creator, **more)
    with pytest.raises(UserMistake) as mistake:
        validator(jobspec.make(["true"], nodes=1, attributes={"dw": directive}), 1001)
    return (
        mistake.value.text_with_carets if isinstance(mistake.value, Mistake) else str(mistake.value)
    )


@pytest.mark.parametrize(
    ("directive", "carets", "sentence"),
    [
        (
            JOBDW.replace("1GiB", "0GiB"),
            "                            ^^^^",
            "'capacity' must be a non-zero value. Try 100GiB.",
        ),
        (
            JOBDW.replace("1GiB", "8388608TiB"),
            "                            ^^^^^^^^^^",
            "'8388608TiB' is too large: a capacity is less than 8 EiB.",
        ),
        (
            f"{JOBDW} profile=nope",
            "                                                 ^^^^",
            "Unable to find NnfStorageProfile: nope. Take default or fast.",
        ),
        (
            f"{JOBDW} profile=fasd",
            "                                                 ^^^^",
            "Unable to find NnfStorageProfile: fasd. Did you mean 'fast'?",
        ),
        (
            JOBDW.replace("xfs", "lustre"),
            "               ^^^^^^",
            "No rabbit makes file systems of type lustre: mkfs.lustre is not installed on r0. "
            "Take another type, or ask an admin for this one.",
        ),
    ],
)
def test_what_cannot_be_made_is_shown_with_a_caret(
    directive: str, carets: str, sentence: str
) -> None:
    assert refused(directive) == f"{directive}\n{carets}\n{sentence}"


def test_what_is_no_arguments_fault_is_told_at_the_command() -> None:
    assert refused(JOBDW, profile("a"), profile("b")) == (
        f"{JOBDW}\n    ^^^^^\n2 NnfStorageProfiles are the default, and one must be: a, b."
    )


def test_sizes_are_told_in_units_that_fit_them() -> None:
    assert refused(JOBDW.replace("1GiB", "100TiB")) == (
        "1 node with 100.1 TiB of flash is asked for, and a rabbit has 144 GiB for the nodes that "
        "are wired to it."
    )


def test_more_directives_than_one_job_has_are_refused_before_they_are_looked_at() -> None:
    """Passes of the storage side look at all of them: thousands would stop all jobs."""
    copies = [
        f"#DW copy_in source=/data/{n} destination=$DW_JOB_ab/" for n in range(MAX_DIRECTIVES)
    ]
    assert refused("\n".join([JOBDW, *copies])) == (
        f"The job has {MAX_DIRECTIVES + 1} directives, and one has {MAX_DIRECTIVES} at most: "
        "copy a directory rather than each file in it."
    )
    # As many as there may be, and this sentence is about one of them.
    assert "No global file system" in refused("\n".join([JOBDW, *copies[1:]]))


def test_directives_that_are_longer_than_objects_should_be_are_refused() -> None:
    long = f"{JOBDW}{'a' * MAX_CHARS}"
    assert refused(long) == (
        f"The job's directives have {len(long)} characters together, and {MAX_CHARS} at most: "
        "use shorter names, such as that of a link."
    )


def test_a_site_may_have_persistent_storage_created_by_the_owner_alone() -> None:
    create = "#DW create_persistent type=xfs capacity=1GiB name=ab"
    _, carets, sentence = refused(create, creator=1000).splitlines()
    assert create[carets.index("^") : carets.rindex("^") + 1] == "create_persistent"
    assert sentence.startswith("Only the instance owner can create persistent storage here.")
    for name in ("profile=no", "name=a"):  # its user may, and hears of other mistakes
        own = refused(f"#DW create_persistent type=xfs capacity=1GiB {name}", creator=1001)
        assert "instance owner" not in own


@pytest.mark.parametrize(
    ("containers", "words"),
    [
        ("r0: bubblewrap is not installed", "cannot run here: r0: bubblewrap is not installed."),
        ({}, "There is no container profile named 'beside' here. Ask an admin to make it."),
    ],
)
def test_a_container_is_judged_at_submit(containers: Any, words: str) -> None:
    """Statement 001.8: before the job is accepted, too."""
    directive = "#DW container name=ab profile=beside"
    assert words in refused(directive, containers=lambda: containers)


def on_chassis(chassis: int, nodes: int, gib: int) -> dict[str, Any]:
    """Make the jobspec of a job on so many chassis, with as many nodes on each."""
    directive = JOBDW.replace("1GiB", f"{gib}GiB")
    spec = jobspec.make(["true"], nodes=1, attributes={"dw": directive})
    (node,) = spec["resources"]
    spec["resources"] = [{"type": "chassis", "count": chassis, "with": [{**node, "count": nodes}]}]
    return spec


def test_a_job_on_chassis_is_judged_with_the_flash_that_it_will_ask_for() -> None:
    validator = judge()
    (chassis,) = validator(on_chassis(1, 2, 70), 1001)["resources"]
    node, ssd = chassis["with"]
    assert (chassis["type"], node["type"], node["count"]) == ("chassis", "node", 2)
    assert (ssd["type"], ssd["count"]) == ("ssd", 2 * 71)  # 300 MiB of padding for each node

    for spec, words in (
        (on_chassis(1, 2, 80), "2 nodes with 81 GiB of flash each are asked for, and a rabbit has "
                               "144 GiB for the nodes that are wired to it."),
        (on_chassis(2, 1, 1), "2 chassis with 1 node each are asked for, and the cluster has 1."),
        (on_chassis(1, 3, 1), "3 nodes are asked for, and the cluster has 2."),
    ):  # fmt: skip
        with pytest.raises(UserMistake) as mistake:
            validator(spec, 1001)
        assert str(mistake.value) == words
