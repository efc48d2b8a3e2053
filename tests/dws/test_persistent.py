"""Persistent storage: an instance's life, and its Workflows (dws-spec section 7)."""

from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from tests.dws.builders import (
    DELETING,
    NOW,
    after,
    breakdown,
    changes,
    computes,
    configuration,
    error,
    lustre,
    made,
    meta,
    need,
    nnf_access,
    nnf_storage,
    rabbit,
    removed,
    share_of,
    workflow,
)
from warren.base.objects import Change, Key, key_of
from warren.base.times import rfc3339, rfc3339_micro
from warren.dws import kinds, labels, nodelocal
from warren.dws.objects.accesses import NnfAccess
from warren.dws.objects.assignments import Servers
from warren.dws.objects.breakdowns import DirectiveBreakdown
from warren.dws.objects.decoding import read
from warren.dws.objects.meta import Meta, Reference
from warren.dws.objects.nnfstorages import NnfStorage
from warren.dws.objects.persistentinstances import PersistentStorageInstance
from warren.dws.objects.workflows import Workflow
from warren.dws.persistent import expiry, instances
from warren.dws.persistent.instances import InstanceSnapshot
from warren.dws.workflow.driver import decide
from warren.dws.workflow.workflowsnapshot import WorkflowSnapshot

CREATE = "#DW create_persistent type=xfs capacity=1GiB name=pers"
USE = "#DW persistentdw name=pers"
DESTROY = "#DW destroy_persistent name=pers"
KEY = "default/pers"
USER = {"kind": "Workflow", "name": "wf-0", "namespace": "default"}
OTHER = {"kind": "Workflow", "name": "other-0", "namespace": "default"}


def psi(
    state: str = "",
    *users: Any,
    deleting: bool = False,
    spec: Any = None,
    metadata: Any = None,
    **status: Any,
) -> PersistentStorageInstance:
    """Make an instance; `state` is that of its status."""
    more = {"finalizers": [labels.PERSISTENT_FINALIZER], **(metadata or {})}
    told = {"state": state, "servers": {"kind": "Servers", "name": "pers"}} if state else {}
    return read(
        {
            "metadata": meta("pers", **more, **(DELETING if deleting else {})),
            "spec": {
                "name": "pers",
                "fsType": "xfs",
                "dwDirective": CREATE,
                "userID": 1001,
                "state": "Active",
                "consumerReferences": list(users),
                **(spec or {}),
            },
            "status": {**told, **status},
        },
        PersistentStorageInstance,
    )


OWN = labels.of_owner(kinds.PERSISTENT_INSTANCE, psi().metadata)


def the_servers(**metadata: Any) -> Servers:
    found = {"labels": OWN, **metadata}
    spec = {"allocationSets": [share_of(r0=1)]}
    return read({"metadata": meta("pers", **found), "spec": spec}, Servers)


def the_storage(metadata: Any = None, **status: Any) -> NnfStorage:
    spec = {"fileSystemType": "xfs", "allocationSets": []}
    found = meta("pers", **{"labels": OWN, **(metadata or {})})
    return read({"metadata": found, "spec": spec, "status": status}, NnfStorage)


def whole(state: str = "Active", *users: Any, **options: Any) -> InstanceSnapshot:
    """Make an instance with all that it has."""
    return InstanceSnapshot(
        object=psi(state, *users, **options), servers=the_servers(), storage=the_storage(ready=True)
    )


# An instance's own life


def test_an_instance_is_held_before_it_has_anything() -> None:
    """dws-spec section 0.2: its finalizer."""
    new = psi(metadata={"finalizers": ["theirs"]})

    (patch,) = changes(instances.decide(InstanceSnapshot(object=new)), kinds.PERSISTENT_INSTANCE)

    assert patch == {"metadata": {"finalizers": ["theirs", labels.PERSISTENT_FINALIZER]}}


def test_what_its_owner_wants_destroyed_is_deleted_when_no_job_uses_it() -> None:
    """ADR 057: asked for by a single write, whatever dies after it."""
    wanted = whole(spec={"state": "Destroying"})
    assert removed(instances.decide(wanted), kinds.PERSISTENT_INSTANCE) == ["default/pers"]
    used = whole("Active", USER, spec={"state": "Destroying"})
    assert removed(instances.decide(used), kinds.PERSISTENT_INSTANCE) == []
    assert (
        changes(instances.decide(used), kinds.PERSISTENT_INSTANCE)[0]["status"]["state"]
        == "Destroying"
    )


def test_an_instance_makes_its_servers_and_is_being_created() -> None:
    writes = instances.decide(InstanceSnapshot(object=psi()))

    (servers,) = made(writes, kinds.SERVERS)
    assert key_of(servers) == Key("default", "pers")
    assert servers["metadata"]["ownerReferences"][0]["kind"] == "PersistentStorageInstance"
    assert servers["metadata"]["labels"] == {
        **OWN,
        labels.PERSISTENT_NAME: "pers",
        labels.PERSISTENT_NAMESPACE: "default",
    }
    (patch,) = changes(writes, kinds.PERSISTENT_INSTANCE)
    assert patch["status"]["state"] == "Creating"
    assert patch["status"]["servers"] == {"kind": "Servers", "name": "pers", "namespace": "default"}


@pytest.mark.parametrize(
    ("before", "storage", "state"),
    [
        ("", None, "Creating"),
        ("Creating", the_storage(ready=False), "Creating"),
        ("Creating", the_storage(ready=True), "Active"),
        ("Creating", the_storage(ready=True, health="Healthy"), "Active"),
        ("Active", the_storage(ready=True, health="Degraded"), "Degraded"),
        ("Active", the_storage(ready=False), "Degraded"),
        ("Degraded", the_storage(ready=False), "Degraded"),
        ("Degraded", the_storage(ready=True), "Active"),
    ],
)
def test_an_instance_is_as_its_storage_is(
    before: str, storage: NnfStorage | None, state: str
) -> None:
    seen = InstanceSnapshot(object=psi(before), servers=the_servers(), storage=storage)

    writes = instances.decide(seen)

    told = after(seen.object, writes)
    assert told.status.state == state
    assert not instances.decide(replace(seen, object=told))


def test_an_error_of_the_storage_is_the_instances() -> None:
    failed = the_storage(error=error("r0: broke"))
    seen = InstanceSnapshot(object=psi("Creating"), servers=the_servers(), storage=failed)

    (patch,) = changes(instances.decide(seen), kinds.PERSISTENT_INSTANCE)

    assert patch["status"]["error"]["debugMessage"] == "r0: broke"


@pytest.mark.parametrize("kind", [kinds.SERVERS, kinds.NNF_STORAGE])
def test_what_has_the_name_of_an_instance_and_another_owner_is_not_its_own(kind: Any) -> None:
    """A user may name an instance as another user's job names its storage."""
    theirs = {"labels": labels.of_owner(kinds.BREAKDOWN, Meta(name="job-0", uid="uid-job"))}
    seen = InstanceSnapshot(
        object=psi("Creating"),
        servers=the_servers(**(theirs if kind is kinds.SERVERS else {})),
        storage=the_storage(theirs, ready=True) if kind is kinds.NNF_STORAGE else None,
    )

    (patch,) = changes(instances.decide(seen), kinds.PERSISTENT_INSTANCE)

    assert patch["status"]["state"] == "Creating"
    assert patch["status"]["error"]["type"] == "User"
    assert (
        f"the name pers is taken: there is a {kind.name}"
        in (patch["status"]["error"]["userMessage"])
    )
    # Nor is it removed with the instance.
    going = replace(seen, object=psi("Destroying", deleting=True))
    assert kind not in going.dependents


def test_an_instance_in_use_stays_until_its_users_are_gone() -> None:
    """dws-spec section 0.2: the finalizer is kept while consumerReferences is non-empty."""
    writes = instances.decide(whole("Active", USER, deleting=True))

    (patch,) = changes(writes, kinds.PERSISTENT_INSTANCE)
    assert patch["status"]["state"] == "Destroying"
    assert len(writes) == 1


def test_an_instance_gives_back_its_flash_then_the_rest_and_goes_last() -> None:
    going = psi("Destroying", deleting=True)
    profile = read(meta("pers", labels=OWN), Meta)
    seen = InstanceSnapshot(
        object=going, servers=the_servers(), storage=the_storage(ready=True), profile=profile
    )

    assert removed(instances.decide(seen), kinds.NNF_STORAGE) == [KEY]
    seen = replace(seen, storage=the_storage(DELETING))
    assert instances.decide(seen) == []
    seen = replace(seen, storage=None)
    assert removed(instances.decide(seen), kinds.SERVERS) == [KEY]
    seen = replace(seen, servers=None)
    assert removed(instances.decide(seen), kinds.NNF_STORAGE_PROFILE) == [KEY]
    assert not instances.is_about_to_go(seen)
    seen = replace(seen, profile=None)
    assert instances.is_about_to_go(seen)
    (patch,) = changes(instances.decide(seen), kinds.PERSISTENT_INSTANCE)
    assert patch == {"metadata": {"finalizers": []}}


def test_what_keeps_an_instance_from_going_is_told() -> None:
    kept = the_storage(DELETING, error=error("r0: a process keeps it"))
    seen = InstanceSnapshot(object=psi("Destroying", deleting=True), storage=kept)

    (patch,) = changes(instances.decide(seen), kinds.PERSISTENT_INSTANCE)

    assert patch["status"]["error"]["debugMessage"] == "r0: a process keeps it"


def test_only_directives_that_name_instances_have_them_looked_up() -> None:
    texts = [
        "#DW jobdw type=xfs capacity=1GiB name=scratch",
        "#DW persistentdw name=one requires=copy-offload",
        "#DW  destroy_persistent   name=two",
        "#DW persistentdw name=one",
        "#DW",
    ]
    assert instances.instance_names(texts) == ["one", "two"]


# What Workflows do with instances


def seen(wf: Workflow, instance: InstanceSnapshot | None = None, **more: Any) -> WorkflowSnapshot:
    named: dict[str, Any] = {
        kind: {each.metadata.name: each for each in more.pop(kind, ())}
        for kind in ("breakdowns", "accesses")
    }
    return WorkflowSnapshot(
        workflow=wf,
        **named,
        servers={},
        storages={},
        movements=(),
        computes=more.pop("computes", computes("n0")),
        file_systems=[lustre()],
        rabbits={"r0": rabbit("r0")},
        instances=more.pop("instances", {"pers": instance} if instance else {}),
        wiring=configuration().rabbits_of_all_computes(),
        positions=nodelocal.positions(configuration()),
        dependents=more.pop("dependents", ()),
        mount_prefix="/mnt/nnf",
        now=NOW,
    )


def told(writes: Any) -> tuple[str, str]:
    (patch,) = changes(writes, kinds.WORKFLOW)
    return patch["status"]["status"], patch["status"].get("message", "")


def is_ready(writes: Any) -> bool:
    return any(patch["status"].get("ready") for patch in changes(writes, kinds.WORKFLOW))


def broken_down(directive: str = CREATE) -> DirectiveBreakdown:
    return breakdown(0, need(), directive=directive)


MADE = {"labels": labels.of_owner(kinds.BREAKDOWN, broken_down().metadata)}
"""Of an instance that the Workflow has made."""


def test_an_instances_storage_is_made_for_it_in_setup() -> None:
    """dws-spec section 0.3: named as the instance and owned by it, not by the Workflow."""
    here = InstanceSnapshot(object=psi("Creating", metadata=MADE), servers=the_servers())

    writes = decide(seen(workflow(CREATE, state="Setup"), here, breakdowns=[broken_down()]))

    (storage,) = made(writes, kinds.NNF_STORAGE)
    assert key_of(storage) == Key("default", "pers")
    assert storage["metadata"]["ownerReferences"][0]["kind"] == "PersistentStorageInstance"
    assert OWN.items() <= storage["metadata"]["labels"].items()
    assert labels.WORKFLOW_UID not in storage["metadata"]["labels"]
    assert storage["metadata"]["annotations"] == {labels.MADE_BY: "default/wf"}
    assert storage["spec"]["userID"] == 1001
    assert not is_ready(writes)


def test_who_finds_an_instance_waits_for_its_maker_to_have_its_storage() -> None:
    """The storage is in the flash that its maker was given (ADR 052, 054)."""
    here = InstanceSnapshot(object=psi("Creating"), servers=the_servers())

    writes = decide(seen(workflow(CREATE, state="Setup"), here, breakdowns=[broken_down()]))

    assert not made(writes, kinds.NNF_STORAGE)
    assert not is_ready(writes)


@pytest.mark.parametrize(("state", "ready"), [("Creating", False), ("Active", True)])
def test_setup_waits_until_the_instance_is_active(state: str, ready: bool) -> None:
    writes = decide(seen(workflow(CREATE, state="Setup"), whole(state), breakdowns=[broken_down()]))

    assert is_ready(writes) is ready
    assert not made(writes, kinds.NNF_STORAGE)


def test_servers_of_another_owner_are_not_taken_for_the_instances() -> None:
    here = InstanceSnapshot(object=psi("Creating"), servers=the_servers(labels={}))

    writes = decide(seen(workflow(CREATE, state="Setup"), here, breakdowns=[broken_down()]))

    assert not made(writes, kinds.NNF_STORAGE)


@pytest.mark.parametrize("state", ["Proposal", "Setup"])
def test_what_is_wrong_with_an_instance_is_told_to_its_maker(state: str) -> None:
    here = InstanceSnapshot(object=psi("Creating", error=error("taken", "Fatal", "User")))

    writes = decide(seen(workflow(CREATE, state=state), here, breakdowns=[broken_down()]))

    assert told(writes) == ("Error", "DW Directive 0: User error: taken")


def test_the_name_of_another_users_instance_is_not_to_be_had() -> None:
    """dws-spec section 7: Fatal where userID differs."""
    theirs = whole("Active", spec={"userID": 7})

    writes = decide(seen(workflow(CREATE, state="Proposal"), theirs, breakdowns=[broken_down()]))

    assert told(writes) == (
        "Error",
        "DW Directive 0: User error: User ID does not match existing persistent storage",
    )


# Who may use one


@pytest.mark.parametrize(
    ("here", "message"),
    [
        (None, "PersistentStorageInstance 'pers' not found"),
        (whole(spec={"userID": 7}), "User ID does not match existing persistent storage"),
        (whole(spec={"state": "Destroying"}), "PersistentStorageInstance 'pers' is being deleted"),
        (whole(deleting=True), "PersistentStorageInstance 'pers' is being deleted"),
    ],
)
@pytest.mark.parametrize("state", ["Proposal", "Setup"])
def test_who_may_not_use_an_instance_is_told_why(
    here: InstanceSnapshot | None, message: str, state: str
) -> None:
    """dws-spec section 2.2."""
    writes = decide(seen(workflow(USE, state=state), here))

    assert told(writes) == ("Error", f"DW Directive 0: User error: {message}")
    assert not made(writes, kinds.BREAKDOWN)


def test_an_instance_may_be_said_to_be_for_all_users() -> None:
    """dws-spec section 0.1: ignore-uid, in any case."""
    shared = whole(spec={"userID": 7}, metadata={"annotations": {labels.IGNORE_UID: "True"}})

    assert changes(decide(seen(workflow(USE, state="Setup"), shared)), kinds.PERSISTENT_INSTANCE)


@pytest.mark.parametrize(
    ("text", "groups", "may"),
    [
        ("uid:1001", (), True),
        ("uid:1002", (), False),
        ("gid:50", (49, 50), True),
        ("gid:50", (49,), False),
    ],
)
def test_an_instance_may_be_shared_with_users_and_groups(
    text: str, groups: tuple[int, ...], may: bool
) -> None:
    """Issue 15, ADR 057."""
    shared = whole(spec={"userID": 7}, metadata={"annotations": {labels.SHARED_WITH: text}})
    for state in ("Proposal", "Setup"):
        snapshot = replace(seen(workflow(USE, state=state), shared), groups=groups)
        refused = "User ID does not match" in str(told(decide(snapshot)))
        assert refused is not may
    assert instances.is_shared_with_groups([None, shared]) is text.startswith("gid")


MOMENT = "2026-01-31T12:00:00Z"
EXPIRES = {"annotations": {labels.EXPIRES: MOMENT}}


@pytest.mark.parametrize(("late", "may"), [(0.0, False), (-1.0, True)])
def test_what_has_expired_has_no_more_users(late: float, may: bool) -> None:
    """ADR 057."""
    pers = whole(metadata=EXPIRES)
    snapshot = replace(seen(workflow(USE, state="Setup"), pers), now=NOW + late)
    assert ("has expired" in str(told(decide(snapshot)))) is not may
    used = replace(pers, object=psi("Active", USER, metadata=EXPIRES))
    snapshot = replace(seen(workflow(USE, state="Setup"), used), now=NOW + late)
    assert "has expired" not in str(told(decide(snapshot)))


@pytest.mark.parametrize(
    ("options", "late", "decided"),
    [
        ({}, 0.0, ({"spec": {"state": "Destroying"}}, None)),
        ({}, -9.0, (None, 9.0)),
        ({"metadata": {"annotations": {labels.EXPIRES: "soon"}}}, 0.0, (None, None)),
        ({"metadata": {}}, 0.0, (None, None)),
        ({"spec": {"state": "Destroying"}}, 0.0, (None, None)),
        ({"deleting": True}, 0.0, (None, None)),
        ({"metadata": {**EXPIRES, "labels": labels.of_owner(kinds.BREAKDOWN, psi().metadata)}}, 0.0,
         (None, None)),
    ],
)  # fmt: skip
def test_an_instance_that_expires_is_destroyed_when_its_time_has_come(
    options: Any, late: float, decided: Any
) -> None:
    obj = psi("Active", **{"metadata": EXPIRES, **options})
    writes, later = instances.decide_expiry(obj, NOW + late)
    assert (next((each.patch for each in writes), None), later) == decided
    used = psi("Active", USER, **{"metadata": EXPIRES, **options})
    assert instances.decide_expiry(used, NOW + 9) == ((), None)


@pytest.mark.parametrize(
    "text",
    ["1969-12-31T00:00:00Z", "1970-01-01T00:00:00+05:00", "9999-12-31T23:59:59-12:00"],
)
def test_a_time_that_cannot_be_written_is_as_none(text: str) -> None:
    obj = psi("Active", metadata={"annotations": {labels.EXPIRES: text}})
    assert instances.decide_expiry(obj, NOW) == ((), None)
    assert expiry.from_annotations(obj.metadata.annotations) is None
    assert not expiry.has_expired(obj.metadata.annotations, NOW)


@pytest.mark.parametrize(
    ("text", "moment"),
    [("1970-01-01T00:00:00Z", 0.0), ("9999-12-31T23:59:59Z", expiry.LAST_TIMESTAMP)],
)
def test_the_first_and_the_last_time_that_can_be_written_are_read(text: str, moment: float) -> None:
    assert expiry.from_annotations({labels.EXPIRES: text}) == moment
    assert expiry.expiry_text(moment) == text


@pytest.mark.parametrize(
    ("own", "most", "expires"),
    [
        (None, 60.0, "2026-01-31T12:01:00Z"),
        ("2026-01-31T12:02:00Z", 60.0, "2026-01-31T12:01:00Z"),
        ("2026-01-31T12:00:30Z", 60.0, None),
        ("2026-01-31T12:02:00Z", None, None),
        (None, None, None),
        ("1969-12-31T00:00:00Z", 60.0, "2026-01-31T12:01:00Z"),
    ],
)
def test_a_site_bounds_for_how_long_an_instance_is_kept(
    own: str | None, most: float | None, expires: str | None
) -> None:
    annotations = {} if own is None else {labels.EXPIRES: own}
    obj = psi("Active", metadata={"creationTimestamp": MOMENT, "annotations": annotations})
    writes, _ = instances.decide_expiry(obj, NOW, most)
    wanted = [] if expires is None else [{"metadata": {"annotations": {labels.EXPIRES: expires}}}]
    assert [each.patch for each in writes] == wanted


@pytest.mark.parametrize("state", ["", "Creating", "Degraded"])
def test_an_instance_that_is_not_active_is_not_used(state: str) -> None:
    writes = decide(seen(workflow(USE, state="Setup"), whole(state)))

    assert not changes(writes, kinds.PERSISTENT_INSTANCE)
    assert told(writes) == (
        "Error",
        "DW Directive 0: User error: PersistentStorage is not active: pers is "
        f"{state or 'Creating'}",
    )


def test_a_user_of_an_instance_that_is_degraded_since_goes_on() -> None:
    writes = decide(seen(workflow(USE, state="Setup"), whole("Degraded", USER)))

    assert not changes(writes, kinds.PERSISTENT_INSTANCE)
    assert told(writes)[0] == "Completed"


def test_a_user_enters_itself_and_then_has_the_storage() -> None:
    """dws-spec section 7: consumerReferences, added in Setup, with what was seen as a condition."""
    wf = workflow(USE, state="Setup")

    writes = decide(seen(wf, whole("Active", OTHER)))

    (change,) = [each for each in writes if isinstance(each, Change)][:1]
    assert change.patch == {"spec": {"consumerReferences": [OTHER, USER]}}
    assert change.resource_version == "7"
    assert not is_ready(writes)
    assert is_ready(decide(seen(wf, whole("Active", OTHER, USER))))


def for_instance(uid: str) -> DirectiveBreakdown:
    """Make the breakdown of a directive that uses an instance."""
    own = breakdown(0, directive=USE, ready=True)
    return replace(own, metadata=replace(own.metadata, annotations={labels.USED_INSTANCE: uid}))


def test_the_instance_that_a_job_asks_for_is_recorded_in_its_breakdown() -> None:
    wf = workflow(USE, metadata={"annotations": {labels.EXPIRES: "2026-12-24T00:00:00Z"}})

    (made_breakdown,) = made(decide(seen(wf, whole())), kinds.BREAKDOWN)

    assert made_breakdown["metadata"]["annotations"] == {
        labels.EXPIRES: "2026-12-24T00:00:00Z",
        labels.USED_INSTANCE: "uid-pers",
    }


@pytest.mark.parametrize("state", ["Proposal", "Setup"])
def test_another_instance_of_the_name_is_not_used(state: str) -> None:
    wf = workflow(USE, state=state)

    writes = decide(seen(wf, whole(), breakdowns=[for_instance("uid-earlier")]))

    assert not changes(writes, kinds.PERSISTENT_INSTANCE)
    assert told(writes) == (
        "Error",
        "DW Directive 0: User error: persistent storage 'pers' is not the one that this job asked "
        "for: that is gone, and another has its name; submit the job again if it is to use this "
        "one",
    )
    (patch,) = changes(writes, kinds.WORKFLOW)
    drivers: Any = patch["status"]["drivers"]
    assert [each["error"] for each in drivers if "error" in each] == [
        "the job asked for instance uid-earlier, and uid-pers of user ID 1001 has its name"
    ]


@pytest.mark.parametrize(
    ("userid", "seconds", "is_used"), [(1001, 60, True), (1002, 60, False), (1002, -60, True)]
)
def test_what_another_user_has_made_since_a_job_was_submitted_is_not_used(
    userid: int, seconds: float, is_used: bool
) -> None:
    """A job that waits for others has asked for nothing yet, but by a name that anyone may take."""
    metadata = {
        "creationTimestamp": rfc3339(NOW + seconds),
        "annotations": {labels.SHARED_WITH: "everyone"},
    }
    instance = whole(spec={"userID": userid}, metadata=metadata)
    submitted = {"annotations": {labels.SUBMITTED_AT: rfc3339_micro(NOW)}}

    writes = decide(seen(workflow(USE, metadata=submitted), instance))

    assert bool(made(writes, kinds.BREAKDOWN)) is is_used
    if not is_used:
        assert told(writes) == (
            "Error",
            "DW Directive 0: User error: persistent storage 'pers' was made by another user after "
            "this job was submitted; submit the job again if it is to use that",
        )


def test_the_instance_that_was_asked_for_is_used() -> None:
    writes = decide(
        seen(workflow(USE, state="Setup"), whole(), breakdowns=[for_instance("uid-pers")])
    )

    (patch,) = changes(writes, kinds.PERSISTENT_INSTANCE)
    assert patch == {"spec": {"consumerReferences": [USER]}}


def test_what_another_user_has_made_since_is_not_taken_for_what_a_job_creates() -> None:
    theirs = {"annotations": {labels.IGNORE_UID: "true"}}
    here = whole(spec={"userID": 1003}, metadata=theirs)

    writes = decide(seen(workflow(CREATE, state="Setup"), here, breakdowns=[broken_down()]))

    assert told(writes)[0] == "Error"
    assert "User ID does not match existing persistent storage" in told(writes)[1]


@pytest.mark.parametrize("name", ["fluxjob-7-0", "self-test-r0"])
def test_storage_with_a_name_of_warrens_own_is_not_created_but_used_and_destroyed_if_there(
    name: str,
) -> None:
    def named(directive: str) -> str:
        return directive.replace("name=pers", f"name={name}")

    instance = {name: whole()}

    status, message = told(decide(seen(workflow(named(CREATE)), instances=instance)))

    assert status == "Error"
    assert "Names that begin with" in message
    use = decide(seen(workflow(named(USE)), instances=instance))
    assert made(use, kinds.BREAKDOWN)
    destroy = workflow(named(DESTROY), state="Teardown")
    assert changes(decide(seen(destroy, instances=instance)), kinds.PERSISTENT_INSTANCE)


def test_nodes_mount_the_instances_storage_at_a_place_of_the_job() -> None:
    """dws-spec section 8: the mount path is the Workflow's; no DW_PERSISTENT_ without a name."""
    wf = workflow(USE, state="PreRun")

    (access,) = made(decide(seen(wf, whole("Active", USER))), kinds.NNF_ACCESS)
    assert access["metadata"]["name"] == "wf-0-computes"
    assert access["spec"]["storageReference"] == {
        "kind": "NnfStorage",
        "name": "pers",
        "namespace": "default",
    }
    assert access["spec"]["mountPath"] == "/mnt/nnf/uid-wf-0"

    mounted = nnf_access(state="mounted", ready=True)
    (patch,) = changes(decide(seen(wf, whole(), accesses=[mounted])), kinds.WORKFLOW)
    assert patch["status"]["env"] == {
        "DW_PERSISTENT_pers": "/mnt/nnf/uid-wf-0",
        "DW_PERSISTENTS": "pers:/mnt/nnf/uid-wf-0",
    }


# Copies to and from it (ADR 065)

COPY_IN = "#DW copy_in source=/lus/in destination=$DW_PERSISTENT_pers/data/"
COPY_OUT = "#DW copy_out source=$DW_PERSISTENT_pers/data destination=/lus/out/"
STATES = [("DataIn", (USE, COPY_IN), "PreRun"), ("DataOut", (USE, COPY_OUT), "Teardown")]


def on_rabbits(index: int = 0, desired: str = "mounted", **status: Any) -> NnfAccess:
    told = {"state": desired, "ready": True, **status}
    return nnf_access("servers", desired, index, **told)


def filled(**nodes: int) -> InstanceSnapshot:
    """Make an instance in use, with so many allocations on each rabbit."""
    storage = structs.replace(the_storage(ready=True), spec=nnf_storage(*nodes.items()).spec)
    return replace(whole("Active", USER), storage=storage)


@pytest.mark.parametrize(("state", "directives", "until"), STATES)
def test_a_copy_has_rabbits_mount_what_is_for_the_nodes_of_the_job(
    state: str, directives: tuple[str, str], until: str
) -> None:
    writes = decide(seen(workflow(*directives, state=state), whole("Active", USER)))

    (access,) = made(writes, kinds.NNF_ACCESS)
    assert access["metadata"]["name"] == "wf-0-servers"
    spec = access["spec"]
    assert (spec["target"], spec["teardownState"]) == ("all", until)
    assert spec["mountPathPrefix"] == "/mnt/nnf/uid-wf-0"
    assert spec["storageReference"]["name"] == "pers"
    assert spec["clientReference"] == {"kind": "Computes", "name": "wf", "namespace": "default"}
    assert told(writes)[1] == "DW Directive 1: pending mount"


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (("n0",), ["r0/wf-1-0"]),
        (("n2", "n1"), ["r0/wf-1-1", "r1/wf-1-0"]),
        (("n0", "n1", "n2"), ["r0/wf-1-0", "r0/wf-1-1", "r1/wf-1-0"]),
    ],
)
@pytest.mark.parametrize(("state", "directives", "_"), STATES)
def test_then_each_part_of_the_jobs_nodes_has_its_copy(
    state: str, directives: tuple[str, str], _: str, nodes: tuple[str, ...], expected: list[str]
) -> None:
    found = decide(
        seen(
            workflow(*directives, state=state),
            filled(r0=2, r1=1),
            accesses=[on_rabbits()],
            computes=computes(*nodes),
        )
    )
    movements = made(found, kinds.NNF_DATA_MOVEMENT)
    assert sorted(str(key_of(each)) for each in movements) == expected
    for each in movements:
        own = each["spec"]["destination" if state == "DataIn" else "source"]
        meta_ = each["metadata"]
        place = f"{meta_['namespace']}-{meta_['name'].rpartition('-')[2]}"
        assert own["path"].rstrip("/") == f"/mnt/nnf/uid-wf-0/{place}/data"
        assert own["storageReference"]["name"] == "pers"
        assert (each["spec"]["userId"], each["spec"]["groupId"]) == (1001, 1002)


FOR_ITS_NODES = {"kind": "Computes", "name": "wf", "namespace": "default"}
NOTHING_COPIED = "DW Directive 1: WLM error: nothing of pers is for this job's compute nodes"


@pytest.mark.parametrize("nodes", [None, ()])
@pytest.mark.parametrize(("state", "directives", "_"), STATES)
def test_a_copy_without_compute_nodes_is_for_all_that_rabbits_have_mounted(
    state: str, directives: tuple[str, str], _: str, nodes: tuple[str, ...] | None
) -> None:
    """As NNF does it: dws-spec section 11."""
    own = None if nodes is None else computes(*nodes)
    wf, access = workflow(*directives, state=state), on_rabbits()
    writes = decide(seen(wf, filled(r0=2), accesses=[access], computes=own))
    found = [str(key_of(each)) for each in made(writes, kinds.NNF_DATA_MOVEMENT)]
    assert found == ["r0/wf-1-0", "r0/wf-1-1"]

    # What is for nodes that are not known has nothing mounted.
    spec = structs.replace(access.spec, client_reference=read(FOR_ITS_NODES, Reference))
    access = structs.replace(access, spec=spec)
    writes = decide(seen(wf, filled(r0=2), accesses=[access], computes=own))
    assert made(writes, kinds.NNF_DATA_MOVEMENT) == []
    assert told(writes) == ("Error", NOTHING_COPIED)


def test_a_copy_of_nothing_is_an_error_and_not_done() -> None:
    """Of the second of the rabbit's nodes, where the storage has one allocation."""
    wf = workflow(USE, COPY_OUT, state="DataOut")
    writes = decide(seen(wf, filled(r0=1), accesses=[on_rabbits()], computes=computes("n1")))
    assert made(writes, kinds.NNF_DATA_MOVEMENT) == []
    assert told(writes) == ("Error", NOTHING_COPIED)


def test_a_job_has_its_own_storage_and_persistent_storage_of_the_same_name() -> None:
    own = "#DW jobdw type=xfs capacity=1GiB name=pers"
    copies = (COPY_IN, COPY_IN.replace("PERSISTENT", "JOB"))
    wf = workflow(own, USE, *copies, state="DataIn")
    here = filled(r0=1)
    view = replace(seen(wf, here), storages={"wf-0": nnf_storage(("r0", 1), ready=True)})
    accesses = made(decide(view), kinds.NNF_ACCESS)
    told = {each["metadata"]["name"]: each["spec"]["storageReference"] for each in accesses}
    assert {name: each["name"] for name, each in told.items()} == {
        "wf-0-servers": "wf-0",
        "wf-1-servers": "pers",
    }


def test_rabbits_unmount_before_the_nodes_mount_and_mount_again_for_copy_out() -> None:
    wf = workflow(USE, COPY_IN, COPY_OUT, state="PreRun")
    writes = decide(seen(wf, filled(r0=1), accesses=[on_rabbits()]))
    assert changes(writes, kinds.NNF_ACCESS) == [{"spec": {"desiredState": "unmounted"}}]
    assert not made(writes, kinds.NNF_ACCESS)

    wf = workflow(USE, COPY_IN, COPY_OUT, state="DataOut")
    writes = decide(seen(wf, filled(r0=1), accesses=[on_rabbits(desired="unmounted")]))
    (patch,) = changes(writes, kinds.NNF_ACCESS)
    assert patch["spec"] == {"desiredState": "mounted", "teardownState": "Teardown"}
    assert not made(writes, kinds.NNF_DATA_MOVEMENT)


def two(name: str) -> InstanceSnapshot:
    return replace(
        filled(r0=1),
        object=structs.replace(
            psi("Active", USER), metadata=structs.replace(psi().metadata, name=name)
        ),
    )


@pytest.mark.parametrize(
    ("mounted", "said"), [({"error": error(severity="Fatal")}, "Error"), ({}, "DriverWait")]
)
def test_a_copy_out_that_failed_does_not_wait_for_one_whose_turn_to_mount_comes_after_it(
    mounted: dict[str, Any], said: str
) -> None:
    uses = [f"#DW persistentdw name={name}" for name in ("aa", "zz")]
    copies = [COPY_OUT.replace("_pers", f"_{name}") for name in ("aa", "zz")]
    wf = workflow(*uses, *copies, state="DataOut")
    has = nnf_access("servers", **mounted)
    instances = {name: two(name) for name in ("aa", "zz")}
    writes = decide(seen(wf, instances=instances, accesses=[has]))
    assert told(writes)[0] == said


@pytest.mark.parametrize("mounted", [False, True])
@pytest.mark.parametrize("state", ["DataIn", "PreRun", "DataOut"])
def test_all_take_persistent_storage_in_one_order_and_none_waits_for_who_waits_for_it(
    state: str, mounted: bool
) -> None:
    """Of two jobs, each with what the other waits for, neither would ever go on."""
    later, first = "#DW persistentdw name=zz", "#DW persistentdw name=aa"
    copies = [each.replace("_pers", f"_{name}") for each in (COPY_IN, COPY_OUT)
              for name in ("zz", "aa")]  # fmt: skip
    clients = "computes" if state == "PreRun" else "servers"
    has = nnf_access(clients, index=1, state="mounted", ready=mounted)
    wf = workflow(later, first, *copies, state=state)
    instances = {name: two(name) for name in ("aa", "zz")}
    # The first is mounted, or on its way.
    writes = decide(seen(wf, instances=instances, accesses=[has]))
    made_ = {each["metadata"]["name"] for each in made(writes, kinds.NNF_ACCESS)}
    assert made_ == ({f"wf-0-{clients}"} if mounted else set())

    writes = decide(seen(wf, instances=instances))
    made_ = {each["metadata"]["name"] for each in made(writes, kinds.NNF_ACCESS)}
    assert made_ == {f"wf-1-{clients}"}


def test_rabbits_unmount_all_there_is_whatever_its_turn() -> None:
    """What is held while something else is waited for is not what others wait for."""
    wf = workflow("#DW persistentdw name=zz", "#DW persistentdw name=aa", state="PreRun")
    instances = {name: two(name) for name in ("aa", "zz")}
    accesses = [on_rabbits(0), on_rabbits(1)]
    writes = decide(seen(wf, instances=instances, accesses=accesses))
    asked = [each for each in writes if isinstance(each, Change) and each.kind == kinds.NNF_ACCESS]
    assert {each.key.name for each in asked} == {"wf-0-servers", "wf-1-servers"}


@pytest.mark.parametrize("directive", [COPY_IN, COPY_OUT])
def test_raw_persistent_storage_is_not_copied_to_or_from(directive: str) -> None:
    """dws-spec section 2.2."""
    raw = whole("Active", spec={"fsType": "raw"})
    writes = decide(seen(workflow(USE, directive), raw, breakdowns=[broken_down(USE)]))
    assert told(writes) == (
        "Error",
        "DW Directive 1: User error: data movement can not be used with raw allocations",
    )
    xfs = decide(seen(workflow(USE, directive), whole("Active")))
    assert told(xfs)[0] != "Error"


@pytest.mark.parametrize(
    ("directives", "here", "message"),
    [
        ((COPY_IN,), filled(r0=1), "Error: User error: this job has no persistentdw named 'pers'"),
        ((COPY_IN, USE), None, "TransientCondition: Internal error: the storage pers is gone"),
    ],
)
def test_a_copy_whose_storage_is_not_to_be_had_says_so(
    directives: tuple[str, ...], here: InstanceSnapshot | None, message: str
) -> None:
    status, words = told(decide(seen(workflow(*directives, state="DataIn"), here)))
    assert f"{status}: {words.removeprefix('DW Directive 0: ')}" == message


def test_a_job_that_is_torn_down_takes_its_copies_and_what_rabbits_have_mounted_along() -> None:
    wf = workflow(USE, COPY_IN, state="Teardown")
    here = whole("Active", USER)
    writes = decide(seen(wf, here, accesses=[on_rabbits()]))
    assert removed(writes, kinds.NNF_ACCESS) == ["default/wf-0-servers"]
    assert not changes(writes, kinds.PERSISTENT_INSTANCE)


def test_a_state_is_not_called_ready_before_what_its_work_writes_is_written() -> None:
    wf = workflow(USE, state="DataOut", desired="Teardown", ready=True)

    writes = decide(seen(wf, whole("Active", USER)))

    assert [each.kind for each in writes] == [kinds.PERSISTENT_INSTANCE, kinds.WORKFLOW]
    assert is_ready(writes)


def test_a_user_leaves_after_its_mounts_and_before_it_is_done() -> None:
    wf = workflow(USE, state="Teardown")
    here = whole("Active", OTHER, USER)

    first = decide(seen(wf, here, accesses=[nnf_access()]))
    assert removed(first, kinds.NNF_ACCESS) == ["default/wf-0-computes"]
    assert not changes(first, kinds.PERSISTENT_INSTANCE)

    writes = decide(seen(wf, here))
    assert [each.kind for each in writes] == [kinds.PERSISTENT_INSTANCE, kinds.WORKFLOW]
    assert changes(writes, kinds.PERSISTENT_INSTANCE) == [{"spec": {"consumerReferences": [OTHER]}}]
    assert is_ready(writes)


@pytest.mark.parametrize("state", ["Setup", "PreRun", "PostRun"])
def test_a_workflow_that_is_deleted_in_any_state_leaves_the_instance(state: str) -> None:
    """dws-spec section 7: removed in Teardown or on Workflow deletion."""
    wf = workflow(USE, state=state, metadata=DELETING)

    writes = decide(
        seen(wf, whole("Active", USER), dependents=[(kinds.BREAKDOWN, wf.metadata.key)])
    )

    assert changes(writes, kinds.PERSISTENT_INSTANCE) == [{"spec": {"consumerReferences": []}}]
    assert removed(writes, kinds.BREAKDOWN) == ["default/wf"]


# What becomes of an instance when its maker goes


def owned(by: DirectiveBreakdown, **more: Any) -> Any:
    return {"labels": labels.of_owner(kinds.BREAKDOWN, by.metadata) | more}


def test_an_instance_that_is_complete_is_its_own_from_then_on() -> None:
    """dws-spec section 17: no labels, no ownerReferences, status Active."""
    by = broken_down()
    here = whole("Active", metadata=owned(by, kept="yes"))

    writes = decide(seen(workflow(CREATE, state="Teardown"), here, breakdowns=[by]))

    (patch,) = changes(writes, kinds.PERSISTENT_INSTANCE)
    assert patch["metadata"]["ownerReferences"] is None
    assert after(here.object, writes).metadata.labels == {"kept": "yes"}
    assert is_ready(writes)


def test_an_instance_whose_making_failed_goes() -> None:
    """dws-spec section 7: it stays owned and is deleted."""
    by = broken_down()
    wf = workflow(CREATE, state="Teardown")
    drivers = [dict(each) for each in wf.status.drivers]
    drivers[1] |= {"completed": False, "status": "Error"}
    wf = workflow(CREATE, state="Teardown", status={"drivers": drivers})

    writes = decide(seen(wf, whole("Creating", metadata=owned(by)), breakdowns=[by]))
    assert removed(writes, kinds.PERSISTENT_INSTANCE) == [KEY]
    assert not is_ready(writes)

    going = whole("Destroying", OTHER, deleting=True, metadata=owned(by))
    writes = decide(seen(wf, going, breakdowns=[by]))
    assert not removed(writes, kinds.PERSISTENT_INSTANCE)
    assert told(writes)[1] == "DW Directive 0: delete, once 1 user let go"

    assert is_ready(decide(seen(wf, None, breakdowns=[by])))


def test_an_instance_that_was_there_before_is_not_taken_away() -> None:
    """It belongs to no directive any more: a second create_persistent of its name owns nothing."""
    writes = decide(
        seen(workflow(CREATE, state="Teardown"), whole("Active"), breakdowns=[broken_down()])
    )

    assert not changes(writes, kinds.PERSISTENT_INSTANCE)
    assert is_ready(writes)


# Destroying


def test_an_instance_becomes_its_destroyers_before_it_is_deleted() -> None:
    """dws-spec section 7: spec.state Destroying, owner the Workflow, deleted; waited for."""
    wf = workflow(DESTROY, state="Teardown")
    here = whole("Active")

    writes = decide(seen(wf, here))
    (patch,) = changes(writes, kinds.PERSISTENT_INSTANCE)
    assert patch["spec"] == {"state": "Destroying"}
    assert patch["metadata"]["labels"] == labels.of_owner(kinds.WORKFLOW, wf.metadata)
    assert patch["metadata"]["ownerReferences"][0]["uid"] == "uid-wf"
    assert not is_ready(writes)

    here = replace(here, object=after(here.object, writes))
    writes = decide(seen(wf, here))
    assert removed(writes, kinds.PERSISTENT_INSTANCE) == [KEY]
    assert not is_ready(writes)

    assert not is_ready(decide(seen(wf, whole("Destroying", deleting=True))))
    assert is_ready(decide(seen(wf, None)))


@pytest.mark.parametrize(
    ("here", "message"),
    [
        (whole("Active", USER), "persistent storage cannot be deleted while in use"),
        (whole(spec={"userID": 7}), "user ID does not match existing persistent storage"),
        (
            whole(spec={"userID": 7}, metadata={"annotations": {labels.IGNORE_UID: "true"}}),
            "user ID does not match existing persistent storage",
        ),
    ],
)
def test_an_instance_in_use_or_of_another_user_is_not_destroyed(
    here: InstanceSnapshot, message: str
) -> None:
    """dws-spec section 7: ignore-uid does not apply."""
    writes = decide(seen(workflow(DESTROY, state="Teardown"), here))

    assert told(writes) == ("Error", f"DW Directive 0: User error: {message}")
    assert not changes(writes, kinds.PERSISTENT_INSTANCE)
    assert not removed(writes, kinds.PERSISTENT_INSTANCE)


def test_what_keeps_an_instance_from_being_destroyed_is_told() -> None:
    kept = whole("Destroying", deleting=True, error=error("r0: in use", "Major"))

    assert told(decide(seen(workflow(DESTROY, state="Teardown"), kept))) == (
        "TransientCondition",
        "DW Directive 0: Internal error: r0: in use",
    )
