"""DirectiveBreakdowns: each directive is broken down once, and its need reported."""

from typing import Any

import pytest

from tests.dws.builders import (
    DELETING,
    JOBDW,
    SIZE,
    after,
    breakdown,
    changes,
    copied,
    made,
    meta,
    raw_profile,
    workflow,
)
from warren.base.objects import Key, Object, key_of
from warren.dws import kinds, labels
from warren.dws.breakdown.breakdownsnapshot import BreakdownSnapshot
from warren.dws.breakdown.directivebreakdown import decide, new
from warren.dws.objects.breakdowns import DirectiveBreakdown
from warren.dws.objects.decoding import read
from warren.dws.objects.meta import Meta


def test_a_breakdown_carries_its_directive_and_its_place_in_the_workflow() -> None:
    obj = new(workflow(JOBDW, JOBDW.replace("my-fs", "other")), 1)
    assert key_of(obj) == Key("default", "wf-1")
    assert obj["spec"]["userID"] == 1001
    assert obj["metadata"]["labels"][labels.DIRECTIVE_INDEX] == "1"
    assert labels.workflow_of(obj) == ("default/wf",)


SOURCE = raw_profile()


def seen(found: DirectiveBreakdown, *sources: Object, **more: Any) -> BreakdownSnapshot:
    return BreakdownSnapshot(breakdown=found, profiles=sources, **more)


def test_a_breakdown_makes_its_copy_of_the_profile_before_anything_else() -> None:
    (write,) = decide(seen(breakdown(), SOURCE))

    (found,) = made([write], kinds.NNF_STORAGE_PROFILE)
    assert key_of(found) == Key("default", "wf-0")
    assert found["metadata"]["ownerReferences"][0]["uid"] == "uid-wf-0"
    assert found["data"] == {**SOURCE["data"], "default": False, "pinned": True}
    # Crash after it, and the next pass makes it again, which is harmless.
    assert write == decide(seen(breakdown(), SOURCE))[0]


@pytest.mark.parametrize(("some", "label"), [("xfs", True), ("gfs2", False)])
def test_where_only_some_rabbits_make_a_type_its_set_asks_for_those(some: str, label: bool) -> None:
    view = seen(
        breakdown(), SOURCE, pinned_profile=copied(SOURCE), only_some_rabbits_make=some.__eq__
    )

    (patch,) = changes(decide(view), kinds.BREAKDOWN)

    (need,) = patch["status"]["storage"]["allocationSets"]
    asked = ["warren.cluster/makes-xfs=true"] if label else []
    assert need["constraints"]["labels"] == [
        *asked,
        "dataworkflowservices.github.io/storage=Rabbit",
    ]


def test_a_breakdown_makes_its_servers_and_then_says_what_is_needed() -> None:
    """Statements 002.13, 002.14, 002.25: a lifetime, and Servers that are empty."""
    writes = decide(seen(breakdown(), SOURCE, pinned_profile=copied(SOURCE)))

    (found,) = made(writes, kinds.SERVERS)
    assert key_of(found) == Key("default", "wf-0")
    assert found["metadata"]["ownerReferences"][0]["kind"] == "DirectiveBreakdown"
    (patch,) = changes(writes, kinds.BREAKDOWN)
    assert patch["status"]["ready"] is True
    reference = {"kind": "Servers", "name": "wf-0", "namespace": "default"}  # 002.14
    assert patch["status"]["storage"] == {
        "lifetime": "job",
        "reference": reference,
        "allocationSets": [
            {
                "allocationStrategy": "AllocatePerCompute",
                "minimumCapacity": SIZE,
                "label": "xfs",
                "constraints": {"labels": ["dataworkflowservices.github.io/storage=Rabbit"]},
            }
        ],
    }
    assert patch["status"]["compute"]["constraints"]["location"] == [
        {
            "access": [{"type": "physical", "priority": "mandatory"}],
            "reference": {**reference, "fieldPath": "servers.spec.allocationSets[0]"},
        }
    ]
    # Crash between the two, and the next pass makes the Servers again, which is harmless.
    assert writes[0] == decide(seen(breakdown(), SOURCE, pinned_profile=copied(SOURCE)))[0]


def test_what_becomes_of_a_profile_after_it_was_copied_changes_nothing() -> None:
    other = raw_profile(allocationPadding="10GiB")
    for sources in ([other], [], [raw_profile(default=False)]):
        writes = decide(seen(breakdown(), *sources, pinned_profile=copied(SOURCE)))
        (patch,) = changes(writes, kinds.BREAKDOWN)
        (found,) = patch["status"]["storage"]["allocationSets"]
        assert found["minimumCapacity"] == SIZE


@pytest.mark.parametrize(
    ("owner", "severity", "words"),
    [
        ({}, "Fatal", "NnfStorageProfile default/wf-0 is in the way of the copy"),
        (
            labels.of_owner(kinds.BREAKDOWN, Meta(name="wf-0", namespace="default", uid="old")),
            "Minor",
            "NnfStorageProfile default/wf-0 is of an earlier DirectiveBreakdown and about to go",
        ),
    ],
)
def test_a_profile_that_has_the_name_of_the_copy_is_never_taken_for_it(
    owner: dict[str, str], severity: str, words: str
) -> None:
    foreign = copied(SOURCE)
    foreign = {**foreign, "metadata": {**foreign["metadata"], "labels": owner}}
    (patch,) = changes(decide(seen(breakdown(), SOURCE, pinned_profile=foreign)), kinds.BREAKDOWN)
    assert patch["status"]["error"]["userMessage"].startswith(words)
    assert patch["status"]["error"]["severity"] == severity


def test_a_profile_of_which_no_copy_may_be_made_is_told_of_with_its_mistake() -> None:
    source = raw_profile(variableOverride={"PATH": "/"})
    (patch,) = changes(decide(seen(breakdown(), source)), kinds.BREAKDOWN)
    assert patch["status"]["error"]["userMessage"] == (
        "NnfStorageProfile default is wrong: data.xfsStorage.variableOverride: 'PATH' does not "
        "start with $: the name of a variable does"
    )


@pytest.mark.parametrize(
    "sources",
    [[SOURCE], [], [raw_profile("other", default=False)]],
    ids=["good", "none", "other"],
)
def test_a_breakdown_is_told_once_whether_it_is_good_or_bad(sources: list[Any]) -> None:
    first = breakdown()
    copy = copied(SOURCE) if sources == [SOURCE] else None
    writes = decide(seen(first, *sources, pinned_profile=copy))
    assert len(changes(writes, kinds.BREAKDOWN)) == 1
    assert not decide(seen(after(first, writes), *sources, pinned_profile=copy))


def test_a_fault_shows_in_the_breakdown_and_heals_when_its_cause_does() -> None:
    first = breakdown()
    failed = after(first, decide(seen(first)))
    assert failed.status.error is not None
    assert failed.status.error.severity == "Fatal"

    healed = after(failed, decide(seen(failed, SOURCE, pinned_profile=copied(SOURCE))))
    assert healed.status.ready
    assert healed.status.error is None


def test_a_breakdown_in_deletion_is_left_alone() -> None:
    going = read(
        {"metadata": meta("wf-0", **DELETING), "spec": {"directive": JOBDW}}, DirectiveBreakdown
    )
    assert not decide(seen(going, SOURCE))


@pytest.mark.parametrize(
    ("directive", "why"),
    [
        ("#DW copy_in source=/a destination=/b", "copy_in needs no storage and no nodes"),
        ("#DW", "A command is missing after #DW. Try jobdw."),
    ],
)
def test_a_breakdown_of_what_needs_none_says_so(directive: str, why: str) -> None:
    found = breakdown(directive=directive)
    (patch,) = changes(decide(seen(found, SOURCE)), kinds.BREAKDOWN)
    assert patch["status"]["error"]["userMessage"] == why
