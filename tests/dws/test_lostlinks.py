"""Links over a network: when one is lost and back, and what a node's word counts for."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.base.objects import Change, Create
from warren.dws import kinds, labels
from warren.dws.objects.meta import Meta
from warren.dws.objects.storages import (
    NnfNode,
    NnfNodeStatus,
    NnfServer,
    NodeLink,
    Storage,
    StorageAccess,
    StorageStatus,
)
from warren.dws.objects.systemconfiguration import ComputeAccess, StorageNode, SystemConfiguration
from warren.dws.rabbits import links, rabbitstorages
from warren.dws.rabbits.links import LinkTestPolicy, LostLink

RABBIT = StorageNode(
    name="r0", computes_access=(ComputeAccess(name="n0"), ComputeAccess(name="n1", index=1))
)
CONFIGURATION = SystemConfiguration(metadata=Meta(name="default", namespace="default", uid="u"))
NETWORK = {labels.NETWORK: "true"}
LOST = LostLink(rabbit="r0", since="2026-11-26T12:00:00Z", why="10.0.0.1 port 4420: no answer")


def of_rabbit(annotations: Mapping[str, str] = NETWORK, **servers: str) -> NnfNode:
    said = tuple(NnfServer(hostname=name, status=status) for name, status in servers.items())
    return NnfNode(
        metadata=Meta(name="nnf-nlc", namespace="r0", annotations=annotations),
        status=NnfNodeStatus(status="Ready", servers=said),
    )


def of_node(word: LostLink | str | None = None, rabbit: str = "r0", node: str = "n0") -> NnfNode:
    said = {labels.RABBIT: rabbit}
    if word is not None:
        text = word if isinstance(word, str) else msgspec.json.encode(word).decode()
        said[labels.LOST_LINK] = text
    return NnfNode(metadata=Meta(name=links.NNF_NODE_NAME, namespace=node, annotations=said))


def storage(**known: str) -> Storage:
    computes = tuple(NodeLink(name=name, status=status) for name, status in known.items())
    return Storage(
        metadata=Meta(name="r0", namespace="default"),
        status=StorageStatus(access=StorageAccess(computes=computes)),
    )


@given(st.lists(st.booleans(), max_size=40), st.integers(1, 5))
def test_a_link_is_lost_by_so_many_failures_in_a_row_and_back_by_one_success(
    answers: list[bool], needed: int
) -> None:
    policy = LinkTestPolicy(failures=needed)
    meta, failures = of_node().metadata, 0
    for number, answered in enumerate(answers):
        why = None if answered else f"why {number}"
        failures = 0 if answered else failures + 1
        before = links.lost_link_of(meta)
        found = links.lost_link_after(
            before, "r0", why, failures=failures, now=f"moment {number}", policy=policy
        )
        row = answers[: number + 1][-needed:]
        if answered:
            assert found is None
        elif len(row) == needed and not any(row) and before is None:
            assert found == LostLink(rabbit="r0", since=f"moment {number}", why=f"why {number}")
        else:
            assert found == before
        writes = links.report_writes(meta, found)
        assert bool(writes) == (found != before), "it is told of what has changed, and once"
        for write in writes:
            assert isinstance(write, Change)
            text = write.patch["metadata"]["annotations"][labels.LOST_LINK]
            meta = of_node(text).metadata
        assert links.lost_link_of(meta) == found


def test_an_agent_that_starts_anew_keeps_its_old_word_until_a_test_succeeds() -> None:
    def after(why: str | None, rabbit: str = "r0") -> LostLink | None:
        return links.lost_link_after(
            LOST, rabbit, why, failures=1, now="later", policy=LinkTestPolicy()
        )

    assert after("anything") == LOST
    assert after(None) is None
    assert after("anything", rabbit="r1") is None, "it was the word on another rabbit"


@given(st.text(max_size=400))
def test_what_a_node_says_is_short_and_can_be_shown_and_is_told_once(why: str) -> None:
    found = links.lost_link_after(None, "r0", why, failures=3, now="now", policy=LinkTestPolicy())
    assert found is not None
    (write,) = links.report_writes(of_node().metadata, found)
    assert isinstance(write, Change)
    again = of_node(write.patch["metadata"]["annotations"][labels.LOST_LINK]).metadata
    assert links.report_writes(again, links.lost_link_of(again)) == []
    assert len(found.why) <= 200
    assert found.why.isprintable()


DEEP = '{"since":' * 100_000


@pytest.mark.parametrize(
    "text", ["", "lost", "[]", '{"since": 7}', '"r0"', "null", pytest.param(DEEP, id="deep")]
)
def test_a_garbled_word_is_none(text: str) -> None:
    assert links.lost_link_of(of_node(text).metadata) is None


@given(st.floats(0.0, 1.0, exclude_max=True), st.floats(1.0, 1e6))
def test_nodes_test_at_times_of_their_own_and_a_lost_link_more_often(
    jitter: float, interval: float
) -> None:
    policy = LinkTestPolicy(interval=interval)
    well, lost = (policy.delay(lost=each, jitter=jitter) for each in (False, True))
    assert 0.8 * interval <= well <= interval
    assert lost <= min(well, 10.0)
    assert policy.enabled
    assert not LinkTestPolicy(interval=math.inf).enabled


@given(st.floats(1.0, 1e6), st.integers(1, 9))
def test_a_node_says_no_sooner_that_a_link_is_lost_than_is_promised(
    interval: float, needed: int
) -> None:
    policy = LinkTestPolicy(interval=interval, failures=needed)
    pauses = (needed - 1) * policy.delay(lost=False, jitter=1.0)
    assert policy.min_detection_seconds == pytest.approx(pauses)
    assert LinkTestPolicy(interval=math.inf, failures=1).min_detection_seconds == math.inf


def test_a_node_is_asked_to_test_its_link_once_and_anew_when_it_has_another_rabbit() -> None:
    (made,) = links.request_writes(CONFIGURATION, "r0", "n0", None)
    assert isinstance(made, Create)
    assert (made.kind, made.key) == (kinds.NNF_NODE, ("n0", links.NNF_NODE_NAME))
    assert made.object["metadata"]["annotations"] == {labels.RABBIT: "r0"}
    assert links.request_writes(CONFIGURATION, "r0", "n0", of_node()) == []
    (moved,) = links.request_writes(CONFIGURATION, "r1", "n0", of_node(LOST))
    assert isinstance(moved, Change)
    assert moved.patch == {"metadata": {"annotations": {labels.RABBIT: "r1"}}}


@pytest.mark.parametrize(
    ("rabbit", "computes", "known", "lease_steady", "lost"),
    [
        (of_rabbit(), {"n0": of_node(LOST), "n1": of_node(node="n1")}, {}, True, {"n0"}),
        (of_rabbit(), {"n0": of_node()}, {"n0": "Offline"}, True, set()),
        # Of another rabbit, or of none, or no word at all.
        (of_rabbit(), {"n0": of_node(LostLink(rabbit="r1"))}, {}, True, set()),
        (of_rabbit(), {"n0": of_node("lost")}, {}, True, set()),
        # Of a node that is not wired to it.
        (of_rabbit(), {"n7": of_node(LOST, node="n7")}, {}, True, set()),
        # Of a rabbit that is not reached over a network, or is not there.
        (of_rabbit({}), {"n0": of_node(LOST)}, {}, True, set()),
        (None, {"n0": of_node(LOST)}, {}, True, set()),
        # The rabbit's own word holds, whatever it is.
        (of_rabbit(n0="Ready"), {"n0": of_node(LOST), "n1": of_node(LOST)}, {}, True, {"n1"}),
        (of_rabbit(n0="Degraded"), {"n0": of_node(LOST)}, {"n0": "Degraded"}, True, set()),
        # While it is gone nothing is lost anew, and what was lost is back by the node's word.
        (of_rabbit(), {"n0": of_node(LOST), "n1": of_node(LOST)}, {"n1": "Offline"}, False, {"n1"}),
        (of_rabbit(), {"n0": of_node(LOST)}, {"n0": "Ready"}, False, set()),
        (of_rabbit(), {"n0": of_node()}, {"n0": "Offline"}, False, set()),
    ],
)
def test_which_words_count(
    rabbit: NnfNode | None, computes: Any, known: Any, lease_steady: bool, lost: set[str]
) -> None:
    assert {
        *links.lost_links(RABBIT, storage(**known), rabbit, computes, lease_steady=lease_steady)
    } == lost


def test_a_storage_says_which_links_are_lost_and_first_of_all_why() -> None:
    computes = {"n0": of_node(LOST), "n1": of_node(node="n1")}

    def decided(known: Storage) -> Any:
        (write,) = rabbitstorages.decide(CONFIGURATION, RABBIT, known, of_rabbit(), computes)
        assert isinstance(write, Change)
        return write.patch

    annotations = decided(storage())["metadata"]["annotations"]
    said = {"n0": {"since": LOST.since, "why": LOST.why}}
    assert msgspec.json.decode(annotations[labels.LOST_LINKS]) == said

    explained = Storage(metadata=Meta(name="r0", annotations=annotations))
    status = decided(explained)["status"]["access"]["computes"]
    assert status == [{"name": "n0", "status": "Offline"}, {"name": "n1", "status": "Ready"}]

    shown = Storage(
        metadata=explained.metadata,
        status=storage(n0="Offline", n1="Ready").status,
    )
    row = {"rabbit": "r0", "node": "n0", "status": "Offline", **said["n0"]}
    assert links.lost_link_rows(shown) == [row]
    computes["n0"] = of_node()
    assert decided(shown)["metadata"]["annotations"] == {labels.LOST_LINKS: None}


def test_a_link_of_which_no_node_has_said_anything_is_shown_without_a_reason() -> None:
    garbled = Storage(
        metadata=Meta(name="r0", annotations={labels.LOST_LINKS: "?"}),
        status=storage(n0="Failed", n1="Ready").status,
    )
    row = {"rabbit": "r0", "node": "n0", "status": "Failed", "since": "", "why": ""}
    assert links.lost_link_rows(garbled) == [row]
