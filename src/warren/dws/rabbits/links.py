"""Links to rabbits over a network: what a compute node says of its own, and how much that counts.

A node says it in an NnfNode in its own namespace, which the controllers make there with the name
of the rabbit: no node can say anything of another one's link. What it says becomes the status of
that link in the Storage (`rabbitstorages`), and from there on all is as for links of any other
kind (`nodedrains`).
"""

import json
import math
from collections.abc import Mapping
from typing import Final

import msgspec

from warren.base.objects import Change, Create, Object, Write
from warren.base.printable import printable
from warren.dws import kinds, labels
from warren.dws.objects.decoding import Malformed, read_json
from warren.dws.objects.meta import Meta
from warren.dws.objects.storages import NnfNode, Storage
from warren.dws.objects.systemconfiguration import StorageNode, SystemConfiguration

NNF_NODE_NAME: Final = "rabbit-link"
"""The name of a compute node's NnfNode."""

LOST_STATUS: Final = "Offline"
"""What a link is then, in the words of Storages."""

SETTLE_SECONDS: Final = 45.0
"""Seconds for which a rabbit's Lease has to be renewed before its links are lost anew.

Nodes that have not reached it while it was gone have said since then that they do: the longest
test, and the longest time between two of a lost link, take less.
"""

_MAX_CHARACTERS: Final = 200
"""Characters of a reason: what a node says is kept in its rabbit's Storage."""

_LOST_INTERVAL: Final = 10.0
"""Seconds, at most, between tests of a link that is lost."""

_JITTER: Final = 0.2
"""The part of a time between tests that is left to chance."""


class LinkTestPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How a node tests its link."""

    interval: float = 30.0
    """Seconds between tests; `inf` where links are not tested."""
    failures: int = 3
    """How many tests have to fail in a row before a link is lost."""

    def delay(self, *, lost: bool, jitter: float) -> float:
        """Return the seconds to the next test; `jitter` is from 0 to 1, as `random.random` has it.

        A lost link is tested more often: jobs wait for its node.
        """
        seconds = min(self.interval, _LOST_INTERVAL) if lost else self.interval
        return seconds * (1.0 - _JITTER * jitter)

    @property
    def enabled(self) -> bool:
        """Whether links are tested at all."""
        return self.interval < math.inf

    @property
    def min_detection_seconds(self) -> float:
        """The seconds, at least, from a rabbit's end until a node says that its link is lost.

        The first test may fail just then.
        """
        return (self.failures - 1) * self.interval * (1.0 - _JITTER) if self.enabled else math.inf


class LostLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link that is lost: since when, and the words in which the first test failed."""

    rabbit: str = ""
    since: str = ""
    why: str = ""


def rabbit_of(meta: Meta) -> str:
    """Return the rabbit that a node is to test its link to, as its NnfNode says; or nothing."""
    return meta.annotations.get(labels.RABBIT, "")


def lost_link_of(meta: Meta) -> LostLink | None:
    """Return the lost link that a node reports in its NnfNode; None without one, or if garbled.

    It is cut, and escaped as terminals need it: the node may be in anyone's hands.
    """
    try:
        reported = read_json(meta.annotations.get(labels.LOST_LINK, ""), LostLink)
    except Malformed:
        return None
    return LostLink(
        rabbit=reported.rabbit, since=_printable(reported.since), why=_printable(reported.why)
    )


def lost_link_after(
    known: LostLink | None,
    rabbit: str,
    why: str | None,
    *,
    failures: int,
    now: str,
    policy: LinkTestPolicy,
) -> LostLink | None:
    """Return the lost link that a node is to report after a test; None where the link is not lost.

    `why` is the reason for which the test failed; None if it did not: one success is enough.
    `known` is what the node reports already, and stays as it is while tests fail; `failures` is
    how many have failed in a row, with this one.
    """
    if why is None:
        return None
    if known is not None and known.rabbit == rabbit:
        return known
    if failures < policy.failures:
        return None
    return LostLink(rabbit=rabbit, since=now, why=_printable(why))


def report_writes(meta: Meta, lost_link: LostLink | None) -> list[Write]:
    """Return the writes by which a node reports a lost link, or none; nothing if it does so."""
    known_text = meta.annotations.get(labels.LOST_LINK)
    text = None if lost_link is None else msgspec.json.encode(lost_link).decode()
    if text == known_text:
        return []
    patch = {"metadata": {"annotations": {labels.LOST_LINK: text}}}
    return [Change(kind=kinds.NNF_NODE, key=meta.key, patch=patch)]


def uses_network(nnf_node: NnfNode | None) -> bool:
    """Return whether compute nodes reach a rabbit over a network, as it says itself."""
    return nnf_node is not None and labels.NETWORK in nnf_node.metadata.annotations


def request_writes(
    configuration: SystemConfiguration, rabbit: str, compute: str, nnf_node: NnfNode | None
) -> list[Write]:
    """Return the writes that ask a compute node to test its link to a rabbit; nothing if asked."""
    if nnf_node is None:
        owner = labels.of_owner(kinds.SYSTEM_CONFIGURATION, configuration.metadata)
        annotations = {labels.RABBIT: rabbit}
        meta = {
            "name": NNF_NODE_NAME,
            "namespace": compute,
            "labels": owner,
            "annotations": annotations,
        }
        spec = {"name": compute, "state": "Enable"}
        return [Create(kind=kinds.NNF_NODE, object={"metadata": meta, "spec": spec})]
    if rabbit_of(nnf_node.metadata) == rabbit:
        return []
    # The node has moved to another rabbit.
    patch = {"metadata": {"annotations": {labels.RABBIT: rabbit}}}
    return [Change(kind=kinds.NNF_NODE, key=nnf_node.metadata.key, patch=patch)]


def lost_links(
    rabbit: StorageNode,
    storage: Storage,
    nnf_node: NnfNode | None,
    nnf_node_by_compute: Mapping[str, NnfNode],
    *,
    lease_steady: bool,
) -> dict[str, LostLink]:
    """Return which of a rabbit's links are lost, by what its compute nodes say of them.

    Nothing counts where the rabbit is not reached over a network, nor of a link of which the
    rabbit itself says how it is. Until the rabbit's Lease is `lease_steady`, renewed for
    `SETTLE_SECONDS`, no link is lost that was not before: what nodes say may come from the rabbit
    itself having been gone, which says nothing of the link, and jobs without storage may go on
    using its nodes.
    """
    if nnf_node is None or not uses_network(nnf_node):
        return {}
    reported_by_rabbit = {each.hostname for each in nnf_node.status.servers}
    lost_before = {each.name for each in storage.status.access.computes if each.status != "Ready"}
    lost = {}
    for each in rabbit.computes_access:
        compute_nnf_node = nnf_node_by_compute.get(each.name)
        reported = None if compute_nnf_node is None else lost_link_of(compute_nnf_node.metadata)
        if reported is None or reported.rabbit != rabbit.name or each.name in reported_by_rabbit:
            continue
        if lease_steady or each.name in lost_before:
            lost[each.name] = reported
    return lost


def encode_lost_links(lost: Mapping[str, LostLink]) -> str | None:
    """Return the text of an annotation with lost links by their nodes; None without any."""
    encoded = {name: {"since": each.since, "why": each.why} for name, each in sorted(lost.items())}
    return json.dumps(encoded, separators=(",", ":"), ensure_ascii=False) if encoded else None


def recorded_lost_links(meta: Meta) -> Mapping[str, LostLink]:
    """Return the lost links, by their nodes, that are recorded in a Storage's annotations."""
    try:
        return read_json(meta.annotations.get(labels.LOST_LINKS, "{}"), dict[str, LostLink])
    except Malformed:
        return {}


def lost_link_rows(storage: Storage) -> list[Object]:
    """Return the links of a rabbit that are not Ready, each with what is known of that."""
    known = recorded_lost_links(storage.metadata)
    return [
        {
            "rabbit": storage.metadata.name,
            "node": link.name,
            "status": link.status,
            "since": known[link.name].since if link.name in known else "",
            "why": known[link.name].why if link.name in known else "",
        }
        for link in storage.status.access.computes
        if link.status != "Ready"
    ]


def _printable(text: str) -> str:
    # Escapes are longer than what they stand for, and what was cut is not cut again.
    return printable(text[:_MAX_CHARACTERS])[:_MAX_CHARACTERS]
