"""What a site's configuration may say of queues, and how a mistake in it is told."""

from typing import Any

import pytest

from warren.base.errors import UserMistake
from warren.instance import config
from warren.lifecycle import policy, tables
from warren.lifecycle.policy import Policy, Queue, QueueLimits
from warren.rfc.errors import BadFormat


def parsed(text: str) -> Any:
    return config.parse(text, "site.toml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[queues.a]\nhosts = 'n[1-'", "hosts"),
        ("[queues.a]\nrequires = ['^b']", "names no property"),
        ("[queues.a]\nrequires = ['']", "requires"),
        ("[queues.a]\nhosts = 'n1'\nrequires = ['b']", "both hosts and requires"),
        ("[queues.'']", "has no blanks"),
        ("[queues.'a b']", "has no blanks"),
        ("[queues.'a&b']", "has no blanks"),
        (
            "[queues.a.policy.jobspec.defaults.system]\nqueue = 'b'\n[queues.b]",
            "names a default queue",
        ),
        ("[queues.a]\nparent = 'b'", "which is no queue"),
        ("[queues.a]\nparent = 'b'\nhosts = 'n1'\n[queues.b]", "whose nodes it takes"),
        ("[queues.a]\nparent = 'b'\nrequires = ['x']\n[queues.b]", "whose nodes it takes"),
        ("[queues.a]\nparent = 'b'\n[queues.b]\nparent = 'c'\n[queues.c]", "has a parent itself"),
        ("[queues.a]\n[queues.b]", "is missing"),
        ("[queues.a]\n[policy.jobspec.defaults.system]\nqueue = 'b'", "which is no queue"),
        ("policy.limits.duration = '1x'", "duration"),
        ("policy.jobspec.defaults.system.duration = '1x'", "duration"),
        (
            "[policy.limits.job-size]\nmin.nnodes = 3\nmax.nnodes = 2",
            "policy.limits.job-size: no job has at least 3",
        ),
        (
            "[queues.a.policy.limits.job-size]\nmin.ncores = 3\nmax.ncores = 2",
            "queues.a.policy.limits.job-size: no job has at least 3",
        ),
        ("[policy.limits]\njob-size.max.nnodes = -2", "nnodes"),
        ("[policy.acess]", "there is 'access'"),
        ("[policy.access]\nallow-users = ['a']", "there is 'allow-user'"),
        ("[policy]\nzzz = 1", "there is no key 'zzz'"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(text: str, words: str) -> None:
    with pytest.raises(UserMistake) as refused:
        parsed(text)
    assert words in str(refused.value)
    assert "site.toml" in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[queues.a]",
        "[queues.a]\nhosts = 'n[1-2]'",
        "[queues.a]\nrequires = ['b', 'c']",
        "[queues.a]\nparent = 'b'\n[queues.b]\n[policy.jobspec.defaults.system]\nqueue = 'a'",
        "[queues.a]\n[queues.b]\n[policy.jobspec.defaults.system]\nqueue = 'b'",
        "[policy.limits.job-size]\nmin.nnodes = 2\nmax.nnodes = 2",
        "[policy.limits.job-size]\nmin.nnodes = 1\nmax.nnodes = 2",
        "[policy.limits.job-size]\nmin.nnodes = 1",
        "[policy.limits.job-size]\nmax.nnodes = -1\nmin.nnodes = 3",
        "policy.limits.duration = 0",
    ],
)
def test_what_can_be_meant_is_taken(text: str) -> None:
    parsed(text)


def test_of_keys_that_are_like_none_all_are_named_or_the_nearest() -> None:
    with pytest.raises(UserMistake, match="there is no key 'quueues' here, but there is 'queues'"):
        parsed("[quueues]")
    with pytest.raises(UserMistake) as refused:
        parsed("[queues.a.policy.limits]\nqqqq = 1")
    assert "duration" in str(refused.value) or "qqqq" in str(refused.value)


@pytest.mark.parametrize(
    ("users", "groups", "restricted"),
    [((), (), False), (("a",), (), True), ((), ("g",), True), (("a",), ("g",), True)],
)
def test_a_queue_is_restricted_by_users_or_by_groups(
    users: tuple[str, ...], groups: tuple[str, ...], restricted: bool
) -> None:
    held = QueueLimits(users=frozenset(users), groups=frozenset(groups))
    assert held.restricted is restricted


def test_a_child_of_a_queue_with_requirements_has_them_too() -> None:
    queues = {"a": Queue(requires=("x",)), "b": Queue(parent="a"), "c": Queue()}
    found = policy.queue_limits(queues, Policy())
    assert {name: held.properties for name, held in found.items()} == {
        "a": ("x",),
        "b": ("x",),
        "c": (),
    }
    assert {name: held.parent for name, held in found.items()} == {"a": None, "b": "a", "c": None}


@pytest.mark.parametrize(("queues", "found"), [(("a",), "a"), (("a", "b"), None), ((), None)])
def test_the_only_queue_is_the_default_one(queues: tuple[str, ...], found: str | None) -> None:
    assert policy.default_queue({name: Queue() for name in queues}, Policy()) == found


def test_lengths_of_time_that_are_not_said_are_not_demanded() -> None:
    policy.Limits(duration=None)
    policy.Limits(duration="1h")
    with pytest.raises(ValueError, match="duration"):
        policy.Limits(duration="1x")
    with pytest.raises(ValueError, match="duration"):
        policy.SystemDefaults(duration="1x")


def test_what_is_demanded_is_refused_by_its_name() -> None:
    tables.check_value("size", int, "3")
    with pytest.raises(ValueError, match="size"):
        tables.check_value("size", _bad, "x")


def _bad(value: str) -> None:
    raise BadFormat("not this")
