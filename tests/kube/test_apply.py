"""Server-side apply: who owns what, what an apply changes and removes, and who objects."""

import copy
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warren.base.objects import Object
from warren.kube.client import Conflict, Refused
from warren.kube.server.schemas import fieldsets
from warren.kube.server.schemas.apply import BEFORE_FIRST_APPLY, ApplyConflict, apply, track_update

VERSION = "dataworkflowservices.github.io/v1alpha7"
NOON, LATER = "2026-01-31T12:00:00Z", "2026-01-31T12:00:05Z"

SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "color": {"type": "string"},
                "inner": {"type": "object", "properties": {"depth": {}, "width": {}}},
                "ports": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name", "protocol"],
                    "items": {"properties": {"protocol": {"default": "TCP"}, "number": {}}},
                },
                "tags": {"type": "array", "x-kubernetes-list-type": "set"},
                "order": {"type": "array"},
                "corner": {"type": "object", "x-kubernetes-map-type": "atomic"},
                "extra": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        }
    },
}
HTTP = 'k:{"name":"http","protocol":"TCP"}'
DNS = 'k:{"name":"dns","protocol":"UDP"}'


def obj(spec: Any = None, metadata: Mapping[str, Any] | None = None, **rest: Any) -> dict[str, Any]:
    whole = {
        "apiVersion": VERSION,
        "kind": "Workflow",
        "metadata": {"name": "w", "namespace": "default", **(metadata or {})},
        **rest,
    }
    return whole if spec is None else {**whole, "spec": spec}


def ask(
    live: Object | None, manager: str, configuration: Object, *, force: bool = False, **more: Any
) -> Object:
    more = {"now": NOON, "schema": SCHEMA, **more}
    return apply(live, configuration, manager=manager, force=force, **more)


def write(old: Object | None, manager: str, new: Object, **more: Any) -> Object:
    more = {"now": NOON, "schema": SCHEMA, **more}
    return track_update(old, new, manager=manager, **more)


def change(old: Object, manager: str, spec: Mapping[str, Any], **more: Any) -> Object:
    """Write some fields of the spec, as a merge patch does."""
    return write(old, manager, {**old, "spec": {**old.get("spec", {}), **spec}}, **more)


def owned(found: Object) -> dict[str, Any]:
    """Return the fields of each manager; one of Update is marked."""
    return {
        entry["manager"] + ("" if entry["operation"] == "Apply" else "*"): entry["fieldsV1"]
        for entry in found["metadata"].get("managedFields", ())
    }


def spec_of(found: Object, manager: str) -> Any:
    return owned(found)[manager]["f:spec"]


def body(found: Object) -> dict[str, Any]:
    """Return an object without its owners."""
    metadata = {k: v for k, v in found["metadata"].items() if k != "managedFields"}
    return {**found, "metadata": metadata}


# What an apply does


def test_a_new_object_is_what_was_asked_for_and_says_who_asked() -> None:
    made = ask(None, "me", obj({"color": "red"}, {"labels": {"a": "b"}}))
    assert body(made) == obj({"color": "red"}, {"labels": {"a": "b"}})
    assert made["metadata"]["managedFields"] == [
        {
            "manager": "me",
            "operation": "Apply",
            "apiVersion": VERSION,
            "time": NOON,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {"f:a": {}}},
                "f:spec": {"f:color": {}},
            },
        }
    ]


def test_what_was_asked_for_and_is_no_more_is_removed() -> None:
    made = ask(None, "me", obj({"color": "red", "inner": {"depth": 1, "width": 2}}))
    after = ask(made, "me", obj({"inner": {"width": 2}}))
    assert after["spec"] == {"inner": {"width": 2}}
    assert spec_of(after, "me") == {"f:inner": {"f:width": {}}}
    assert "spec" not in ask(after, "me", obj())


def test_what_others_ask_for_too_stays() -> None:
    made = ask(None, "me", obj({"color": "red"}))
    both = ask(made, "you", obj({"color": "red"}))
    after = ask(both, "me", obj())
    assert after["spec"] == {"color": "red"}
    assert owned(after) == {"you": {"f:spec": {"f:color": {}}}}


def test_what_was_not_asked_for_stays() -> None:
    made = write(None, "controller", obj({"color": "red"}, status={"ready": True}))
    after = ask(made, "me", obj({"inner": {"depth": 1}}))
    after = ask(after, "me", obj())
    assert (after["spec"], after["status"]) == ({"color": "red"}, {"ready": True})


def test_a_map_stays_for_what_others_have_in_it() -> None:
    made = ask(None, "me", obj({"extra": {"a": "1"}}))
    both = change(made, "you", {"extra": {"a": "1", "b": "2"}})
    assert ask(both, "me", obj())["spec"] == {"extra": {"b": "2"}}


def test_metadata_of_the_server_is_the_servers() -> None:
    live = write(None, "you", obj({}, {"uid": "u", "generation": 3, "resourceVersion": "7"}))
    asked = obj({"color": "red"}, {"uid": "other", "creationTimestamp": None, "generation": 9})
    after = ask(live, "me", asked)
    assert body(after)["metadata"] == body(live)["metadata"]
    assert owned(after)["me"] == {"f:spec": {"f:color": {}}}
    assert "f:metadata" not in owned(live)["you*"]


def test_finalizers_are_a_set_and_references_go_by_uid() -> None:
    one = obj(None, {"finalizers": ["a/1"], "ownerReferences": [{"uid": "1", "name": "x"}]})
    two = obj(None, {"finalizers": ["b/2"], "ownerReferences": [{"uid": "2", "name": "y"}]})
    both = ask(ask(None, "me", one), "you", two)
    assert both["metadata"]["finalizers"] == ["a/1", "b/2"]
    assert [each["name"] for each in both["metadata"]["ownerReferences"]] == ["x", "y"]
    rest = ask(both, "me", obj())["metadata"]
    assert (rest["finalizers"], len(rest["ownerReferences"])) == (["b/2"], 1)


def test_asking_for_the_same_gives_the_same_object() -> None:
    made = ask(None, "me", obj({"color": "red", "tags": ["a"]}))
    assert ask(made, "me", obj({"color": "red", "tags": ["a"]}), now=LATER) is made


def test_an_entry_is_as_old_as_its_last_change() -> None:
    made = ask(None, "me", obj({"color": "red"}))
    both = ask(made, "you", obj({"color": "red"}), now=LATER)
    times = {entry["manager"]: entry["time"] for entry in both["metadata"]["managedFields"]}
    assert times == {"me": NOON, "you": LATER}


def test_subresources_have_entries_of_their_own() -> None:
    made = ask(None, "me", obj({"color": "red"}))
    both = ask(made, "me", obj(status={"ready": True}), subresource="status")
    assert both["spec"] == {"color": "red"}
    entries = both["metadata"]["managedFields"]
    assert [entry.get("subresource") for entry in entries] == [None, "status"]
    with pytest.raises(ApplyConflict, match=r'"me" with subresource "status": \.status\.ready$'):
        ask(both, "me", obj({"color": "red"}, status={"ready": False}))


def test_a_later_version_takes_over_from_an_earlier_one() -> None:
    made = ask(None, "me", obj({"color": "red"}))
    newer = {**obj(), "apiVersion": "dataworkflowservices.github.io/v1alpha8"}
    after = ask(made, "me", {**newer, "spec": {"tags": ["a"]}})
    assert after["spec"] == {"tags": ["a"]}
    assert [e["apiVersion"] for e in after["metadata"]["managedFields"]] == [newer["apiVersion"]]


def test_an_object_from_before_belongs_to_no_manager_in_particular() -> None:
    live = obj({"color": "red", "order": [1]})
    with pytest.raises(ApplyConflict, match=f'"{BEFORE_FIRST_APPLY}" using {VERSION}: .spec.color'):
        ask(live, "me", obj({"color": "blue"}))
    after = ask(live, "me", obj({"color": "red"}))
    assert spec_of(after, f"{BEFORE_FIRST_APPLY}*") == {".": {}, "f:color": {}, "f:order": {}}
    assert spec_of(after, "me") == {"f:color": {}}


def test_managed_fields_cannot_be_applied() -> None:
    with pytest.raises(Refused, match="managedFields"):
        ask(None, "me", obj({}, {"managedFields": [{"manager": "me"}]}))


# Lists


def test_lists_are_merged_by_what_the_schema_says() -> None:
    one = {"ports": [{"name": "http", "number": 80}], "tags": ["a"], "order": [1, 2]}
    two = {"ports": [{"name": "dns", "protocol": "UDP"}], "tags": ["b"]}
    both = ask(ask(None, "me", obj(one)), "you", obj(two))
    assert both["spec"] == {
        "ports": [{"name": "http", "number": 80}, {"name": "dns", "protocol": "UDP"}],
        "tags": ["a", "b"],
        "order": [1, 2],
    }
    assert spec_of(both, "me") == {
        "f:ports": {HTTP: {".": {}, "f:name": {}, "f:number": {}}},
        "f:tags": {'v:"a"': {}},
        "f:order": {},
    }
    assert ask(both, "me", obj())["spec"] == two


def test_a_list_of_which_nothing_is_said_is_whole() -> None:
    made = ask(None, "me", obj({"order": [{"name": "a"}]}))
    with pytest.raises(ApplyConflict, match=r"spec\.order"):
        ask(made, "you", obj({"order": [{"name": "b"}]}))
    after = ask(made, "you", obj({"order": [{"name": "b"}]}), force=True)
    assert after["spec"]["order"] == [{"name": "b"}]
    assert owned(after) == {"you": {"f:spec": {"f:order": {}}}}


def test_an_atomic_map_is_whole() -> None:
    made = ask(None, "me", obj({"corner": {"x": 1, "y": 2}}))
    after = ask(made, "me", obj({"corner": {"x": 1}}))
    assert after["spec"] == {"corner": {"x": 1}}
    assert spec_of(after, "me") == {"f:corner": {}}


@pytest.mark.parametrize(
    ("live", "asked", "result"),
    [("xaybz", "bna", "xbnayz"), ("ax", "an", "axn"), ("xy", "n", "xyn"), ("ab", "ba", "ba")],
)
def test_elements_are_ordered_as_asked_for_and_others_stay_where_they_are_among_them(
    live: str, asked: str, result: str
) -> None:
    made = write(None, "you", obj({"tags": list(live)}))
    assert ask(made, "me", obj({"tags": list(asked)}))["spec"]["tags"] == list(result)


def test_an_element_stays_findable_for_what_others_have_in_it() -> None:
    made = ask(None, "me", obj({"ports": [{"name": "http", "number": 80}]}))
    both = change(made, "you", {"ports": [{"name": "http", "number": 80, "note": "mine"}]})
    assert ask(both, "me", obj())["spec"]["ports"] == [{"name": "http", "note": "mine"}]


@pytest.mark.parametrize(
    "spec",
    [
        {"ports": [{"number": 80}]},
        {"ports": ["http"]},
        {"ports": [{"name": "a"}, {"name": "a", "protocol": "TCP"}]},
        {"tags": ["a", "a"]},
    ],
)
def test_elements_that_cannot_be_told_apart_are_refused_when_applied(spec: Any) -> None:
    with pytest.raises(Refused, match=r"^\.spec\.(ports|tags): "):
        ask(None, "me", obj(spec))
    made = write(None, "you", obj(spec))  # other writers are not bound to it
    (field,) = spec
    assert spec_of(made, "you*") == {".": {}, f"f:{field}": {}}


# Conflicts


def test_a_conflict_says_who_owns_what_as_the_api_does() -> None:
    made = write(None, "other", obj({"color": "red"}))
    with pytest.raises(ApplyConflict) as conflict:
        ask(made, "me", obj({"color": "blue"}))
    assert isinstance(conflict.value, Conflict)
    assert str(conflict.value) == (
        f'Apply failed with 1 conflict: conflict with "other" using {VERSION}: .spec.color'
    )
    (cause,) = conflict.value.causes
    assert (cause.field, cause.owner.manager) == (".spec.color", "other")
    assert cause.message == f'conflict with "other" using {VERSION}'


def test_conflicts_are_told_by_owner() -> None:
    made = ask(None, "a", obj({"color": "red", "ports": [{"name": "http", "number": 80}]}))
    made = change(made, "b", {"order": [1]})
    wanted = obj({"color": "x", "ports": [{"name": "http", "number": 81}], "order": [2]})
    with pytest.raises(ApplyConflict) as conflict:
        ask(made, "me", wanted)
    assert str(conflict.value).splitlines() == [
        'Apply failed with 3 conflicts: conflicts with "a":',
        "- .spec.color",
        '- .spec.ports[name="http",protocol="TCP"].number',
        f'conflicts with "b" using {VERSION}:',
        "- .spec.order",
    ]


def test_a_refused_apply_changes_nothing() -> None:
    made = write(None, "other", obj({"color": "red"}))
    before = copy.deepcopy(made)
    with pytest.raises(ApplyConflict):
        ask(made, "me", obj({"color": "blue"}))
    assert made == before


def test_force_takes_the_field_and_its_ownership() -> None:
    made = write(None, "other", obj({"color": "red", "order": [1]}))
    after = ask(made, "me", obj({"color": "blue"}), force=True)
    assert after["spec"] == {"color": "blue", "order": [1]}
    assert spec_of(after, "me") == {"f:color": {}}
    assert spec_of(after, "other*") == {".": {}, "f:order": {}}
    with pytest.raises(ApplyConflict):
        ask(after, "other", obj({"color": "red"}))


def test_asking_for_what_is_there_is_no_conflict() -> None:
    made = write(None, "other", obj({"color": "red"}))
    after = ask(made, "me", obj({"color": "red"}))
    assert spec_of(after, "me") == {"f:color": {}}
    assert "f:color" in spec_of(after, "other*")


# Other writers


def test_who_creates_an_object_owns_all_of_it() -> None:
    made = write(None, "me", obj({"color": "red", "inner": {}}, {"labels": {"a": "b"}}))
    assert owned(made)["me*"] == {
        "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
        "f:spec": {".": {}, "f:color": {}, "f:inner": {}},
    }


def test_the_manager_that_changes_a_field_owns_it_alone() -> None:
    made = ask(None, "me", obj({"color": "red", "order": [1]}))
    after = change(made, "you", {"color": "blue"}, now=LATER)
    assert spec_of(after, "me") == {"f:order": {}}
    assert spec_of(after, "you*") == {"f:color": {}}
    assert [entry["time"] for entry in after["metadata"]["managedFields"]] == [NOON, LATER]


def test_owners_of_nothing_vanish() -> None:
    made = ask(None, "me", obj({"color": "red"}))
    assert list(owned(change(made, "you", {"color": "blue"}))) == ["you*"]
    emptied = write(made, "you", obj({}))
    assert "managedFields" not in emptied["metadata"]


def test_a_write_that_changes_nothing_comes_back_as_it_is() -> None:
    made = write(None, "me", obj({"color": "red"}))
    again = {**made, "metadata": {**made["metadata"], "resourceVersion": "9", "generation": 2}}
    assert write(made, "you", again, now=LATER) is again
    assert write(made, "you", made, now=LATER) is made


@pytest.mark.parametrize(
    "wrong",
    [
        {"manager": 1},
        {"operation": "Guess"},
        {"apiVersion": None},
        {"subresource": 1},
        {"time": 1},
        {"fieldsV1": {"f:spec": "x"}},
        {"fieldsV1": None},
    ],
    ids=str,
)
def test_owners_survive_a_writer_who_leaves_them_out_or_makes_no_sense(wrong: Any) -> None:
    made = write(None, "me", obj({"color": "red"}))
    entries = made["metadata"]["managedFields"]
    told: dict[str, Any]
    for told in ({}, {"managedFields": [{**entries[0], **wrong}]}, {"managedFields": []}):
        new = obj({"color": "red"}, told)
        assert write(made, "you", new)["metadata"]["managedFields"] == entries


def test_a_writer_may_say_anew_who_owns_what() -> None:
    made = write(None, "me", obj({"color": "red"}))
    [entry] = made["metadata"]["managedFields"]
    theirs = {**entry, "manager": "them", "operation": "Apply"}
    del theirs["time"]
    new = obj({"color": "red"}, {"managedFields": [theirs]})

    assert write(made, "you", new)["metadata"]["managedFields"] == [theirs]
    assert list(owned(write(None, "me", new))) == ["me*"], "but not of what is new"
    also = {**new, "spec": {"color": "red", "size": 1}}
    assert {*owned(write(made, "you", also))} == {"them", "you*"}


def noted(spec: Any) -> dict[str, Any]:
    """Return metadata of what client-side apply has written."""
    written = orjson.dumps(obj(spec)).decode()
    return {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": written}}


def test_kubectl_goes_over_to_the_server_with_what_it_has_noted_and_nothing_else() -> None:
    made = write(None, "kubectl-client-side-apply", obj({"color": "red", "size": 1}))
    live = {**made, "metadata": {**made["metadata"], **noted({"color": "red"})}}

    assert ask(live, "kubectl", obj({"color": "blue"}))["spec"]["color"] == "blue"
    for manager, wanted in (("kubectl", {"size": 2}), ("other", {"color": "blue"})):
        with pytest.raises(ApplyConflict):
            ask(live, manager, obj(wanted))
    for nonsense in ("", "{", "[]", '{"metadata": 1}'):
        annotations = {"kubectl.kubernetes.io/last-applied-configuration": nonsense}
        odd = {**made, "metadata": {**made["metadata"], "annotations": annotations}}
        with pytest.raises(ApplyConflict):
            ask(odd, "kubectl", obj({"color": "blue"}))


def test_one_empty_entry_forgets_all_owners() -> None:
    made = write(None, "me", obj({"color": "red"}))
    forgotten = write(made, "you", obj({"color": "red"}, {"managedFields": [{}]}))
    assert forgotten == obj({"color": "red"})
    assert change(forgotten, "you", {"color": "blue"}) == obj({"color": "blue"})


def test_a_subresource_is_written_under_its_own_entry() -> None:
    made = write(None, "me", obj({"color": "red"}))
    after = write(made, "me", {**made, "status": {"ready": True}}, subresource="status")
    assert [
        (entry.get("subresource"), list(entry["fieldsV1"]))
        for entry in after["metadata"]["managedFields"]
    ] == [(None, ["f:spec"]), ("status", ["f:status"])]


def test_without_a_schema_maps_are_divided_and_lists_are_whole() -> None:
    made = ask(None, "me", obj({"a": {"b": [1]}}), schema=None)
    assert spec_of(made, "me") == {".": {}, "f:a": {".": {}, "f:b": {}}}


def test_a_map_in_the_place_of_a_whole_takes_its_ownership() -> None:
    made = write(None, "me", obj({"x": {"a": 1, "b": 2}}), schema=None)
    scalar = change(made, "you", {"x": 5}, schema=None)
    assert (spec_of(scalar, "me*"), spec_of(scalar, "you*")) == ({}, {"f:x": {}})
    again = change(scalar, "they", {"x": {"c": 1}}, schema=None)
    assert spec_of(again, "they*") == {"f:x": {".": {}, "f:c": {}}}
    assert "you*" not in owned(again)


# Properties

words = st.sampled_from(["a", "b", "c"])
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "color": words,
    "inner": st.dictionaries(st.sampled_from(["depth", "width"]), st.integers(0, 2)),
    "ports": st.lists(
        st.fixed_dictionaries(
            {"name": words}, optional={"number": st.integers(0, 2), "note": words}
        ),
        max_size=3,
        unique_by=lambda port: port["name"],
    ),
    "tags": st.lists(words, max_size=3, unique=True),
    "order": st.lists(st.integers(0, 2), max_size=2),
    "corner": st.dictionaries(words, st.integers(0, 2), max_size=2),
    "extra": st.dictionaries(words, words, max_size=3),
}
specs = st.fixed_dictionaries({}, optional=FIELDS)
objects = st.builds(
    lambda spec, labels: obj(spec, {"labels": labels} if labels else {}),
    specs,
    st.dictionaries(words, words, max_size=2),
)
managers = st.sampled_from(["me", "you", "they"])
histories = st.lists(st.tuples(st.sampled_from(["apply", "write"]), managers, objects), max_size=5)


def lived(history: list[tuple[str, str, Object]]) -> Object | None:
    """Return the object after some actions of several writers."""
    live: Object | None = None
    for action, manager, asked in history:
        if action == "apply":
            live = ask(live, manager, asked, force=True)
        else:
            live = write(live, manager, asked)
    return live


def everything(found: Object) -> set[fieldsets.Path]:
    """Return all there is to own, by what its only writer owns."""
    fields = owned(write(None, "one", body(found))).get("one*", {})
    return set(fieldsets.paths(fields))


@given(history=histories, manager=managers, asked=objects)
@settings(deadline=None)
def test_applying_twice_changes_nothing(
    history: list[tuple[str, str, Object]], manager: str, asked: Object
) -> None:
    live = lived(history)
    once = ask(live, manager, asked, force=True)
    before = copy.deepcopy(once)
    assert ask(once, manager, asked, now=LATER) is once
    assert once == before


@given(history=histories, asked=objects)
@settings(deadline=None)
def test_arguments_stay_as_they_are(history: list[tuple[str, str, Object]], asked: Object) -> None:
    live = lived(history)
    before = copy.deepcopy((live, asked))
    ask(live, "me", asked, force=True)
    write(live, "me", asked)
    assert (live, asked) == before


@given(first=objects, second=objects)
@settings(deadline=None)
def test_what_only_one_manager_had_and_drops_is_gone(first: Object, second: Object) -> None:
    alone = ask(None, "me", second)
    after = ask(ask(None, "me", first), "me", second)
    assert owned(after) == owned(alone)
    assert body(after) == body(alone)


@given(data=st.data(), whole=specs)
@settings(deadline=None)
def test_managers_of_different_fields_never_conflict(data: st.DataObject, whole: Any) -> None:
    def half(name: str) -> dict[str, Any]:
        return {field: value for field, value in whole.items() if mine[field] == name}

    mine = {field: data.draw(st.sampled_from(["me", "you"]), label=field) for field in whole}
    made = ask(ask(None, "me", obj(half("me"))), "you", obj(half("you")))
    assert made["spec"] == whole
    assert ask(made, "me", obj(half("me"))) is made
    assert ask(made, "you", obj(half("you"))) is made
    assert ask(made, "me", obj({}))["spec"] == half("you")


@given(history=histories, asked=objects)
@settings(deadline=None)
def test_a_forced_apply_gets_what_it_asks_for_and_owns_it(
    history: list[tuple[str, str, Object]], asked: Object
) -> None:
    live = lived(history)
    after = ask(live, "me", asked, force=True)
    assert owned(after).get("me") == owned(ask(None, "me", asked)).get("me")
    assert {**after["spec"], **asked["spec"], **_merged_apart(after, asked)} == after["spec"]
    for manager in owned(after).keys() - {"me", f"{BEFORE_FIRST_APPLY}*"}:
        was = owned(live)[manager] if live is not None else {}
        assert fieldsets.difference(owned(after)[manager], was) == {}


def _merged_apart(after: Object, asked: Object) -> dict[str, Any]:
    """Return the fields of which others may have parts, where all that was asked for is in them."""
    found = {}
    for field in ("inner", "extra"):
        if field in asked["spec"]:
            assert asked["spec"][field].items() <= after["spec"][field].items()
            found[field] = after["spec"][field]
    if "tags" in asked["spec"]:
        tags = after["spec"]["tags"]
        assert [tag for tag in tags if tag in asked["spec"]["tags"]] == asked["spec"]["tags"]
        found["tags"] = tags
    if "ports" in asked["spec"]:
        ports = {port["name"]: port for port in after["spec"]["ports"]}
        assert all(port.items() <= ports[port["name"]].items() for port in asked["spec"]["ports"])
        found["ports"] = after["spec"]["ports"]
    return found


@given(history=st.lists(st.tuples(st.just("write"), managers, objects), min_size=1, max_size=6))
@settings(deadline=None)
def test_every_field_belongs_to_one_writer(history: list[tuple[str, str, Object]]) -> None:
    live = lived(history)
    assert live is not None
    shares = [set(fieldsets.paths(fields)) for fields in owned(live).values()]
    assert all(one.isdisjoint(other) for one, other in combinations(shares, 2))
    if shares:
        assert set().union(*shares) == everything(live)


@given(history=histories)
@settings(deadline=None)
def test_what_is_not_there_has_no_owner(history: list[tuple[str, str, Object]]) -> None:
    live = lived(history)
    if live is not None:
        there = everything(live)
        for fields in owned(live).values():
            assert set(fieldsets.paths(fields)) <= there


# Sets of fields


trees: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.just({}),
    lambda inner: st.dictionaries(
        st.sampled_from([".", "f:a", 'v:"."', "i:0"]), inner, min_size=1, max_size=3
    ).map(lambda tree: {**tree, ".": {}} if "." in tree else tree),
    max_leaves=8,
)


def normal(tree: Any) -> Any:
    """Write a tree the one way: a name that stands alone has nothing under it."""
    inner = {name: normal(under) if name != "." else {} for name, under in tree.items()}
    return {} if inner == {".": {}} else inner


sets = trees.map(lambda tree: {k: v for k, v in normal(tree).items() if k != "."})


@given(fields=sets)
def test_a_set_is_the_same_after_the_wire_and_from_its_paths(fields: Any) -> None:
    assert orjson.loads(orjson.dumps(fields)) == fields
    again: Any = {}
    for path in fieldsets.paths(fields):
        single: Any = {}
        for name in reversed(path):
            single = {name: single}
        again = fieldsets.union(again, single)
    assert again == fields


@given(one=sets, other=sets)
def test_sets_of_fields_are_sets_of_paths(one: Any, other: Any) -> None:
    before = copy.deepcopy((one, other))
    left, right = set(fieldsets.paths(one)), set(fieldsets.paths(other))
    for found, expected in (
        (fieldsets.union(one, other), left | right),
        (fieldsets.difference(one, other), left - right),
        (fieldsets.intersection(one, other), left & right),
    ):
        assert set(fieldsets.paths(found)) == expected
        assert normal(found) == found
    assert (one, other) == before


def test_a_path_is_shown_as_the_api_shows_it() -> None:
    path = ("f:spec", "f:ports", 'k:{"name":"a","number":80}', 'v:"x"', "i:3", "f:b.c/d")
    assert fieldsets.path_text(path) == '.spec.ports[name="a",number=80][="x"][3].b.c/d'
