"""What directives mean together and on their cluster (dws-spec section 2.2)."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from tests.directives.rulebook import RULES
from tests.dws.builders import lustre, meta, profile
from tests.rfc.vectors import vector
from warren.directives.parse import parse
from warren.directives.rules import check_directives
from warren.dws.containers import containerprofiles
from warren.dws.node import RawVolumeAccess
from warren.dws.persistent.sharing import Sharing
from warren.dws.validation.facts import NO_FACTS, Facts, InstanceFacts, instance_facts
from warren.dws.validation.findings import findings

JOBDW = "#DW jobdw type=xfs capacity=1GiB name=foo"
GFS2 = JOBDW.replace("xfs", "gfs2")

INSTANCES = {
    each.name: each
    for each in (
        InstanceFacts(name="mine", fs_type="xfs", userid=7),
        InstanceFacts(name="bare", fs_type="raw", userid=7),
        InstanceFacts(name="gone", fs_type="xfs", userid=7, deleting=True),
        InstanceFacts(name="soon", fs_type="xfs", userid=7, is_usable=False),
        InstanceFacts(name="brief", fs_type="xfs", userid=7, expires=60.0),
        InstanceFacts(name="busy", fs_type="xfs", userid=7, in_use=True),
        InstanceFacts(name="theirs", fs_type="xfs", userid=8),
        InstanceFacts(name="open", fs_type="xfs", userid=8, sharing=Sharing(everyone=True)),
    )
}


def facts(**more: Any) -> Facts:
    known = {
        "userid": 7,
        "file_systems": [lustre()],
        "raw_volume_access": RawVolumeAccess.FOR_USERS,
    }
    return Facts(**{**known, "instances": INSTANCES, **more})


def told(*directives: str, known: Facts | None = None) -> list[tuple[int, str, str]]:
    """Return the directive, the words under the carets, and what is said, of each mistake."""
    form = check_directives(directives, RULES)
    return [
        (
            each.directive_index,
            each.mistake.text[each.mistake.start : each.mistake.end],
            str(each.mistake),
        )
        for each in findings(form.directives, known or facts(), form.findings)
    ]


CONTAINER = facts(runs_containers=True, supported_types=("gfs2", "xfs", "raw"))
USE = "#DW container name=ab profile=cd"
FAR = InstanceFacts(name="far", fs_type="gfs2", userid=7)
OFFLOAD = facts(has_offload=True, runs_containers=True, supported_types=("gfs2", "xfs", "raw"))


@pytest.mark.parametrize(
    ("directives", "known", "index", "place", "words"),
    [
        (
            ["#DW create_persistent type=xfs capacity=1GiB name=new", JOBDW], None, 0,
            "create_persistent",
            "A create_persistent is the only directive of its job. Submit a job of its own for it.",
        ),
        (
            [JOBDW, "#DW destroy_persistent name=mine"], None, 1, "destroy_persistent",
            "A destroy_persistent is the only directive of its job. "
            "Submit a job of its own for it.",
        ),
        (
            ["#DW create_persistent type=xfs name=new"], None, 0, "create_persistent",
            "Creating persistent storage requires a capacity. Add capacity=100GiB, or what you "
            "need.",
        ),
        (
            ["#DW create_persistent type=xfs capacity=1GiB name=theirs"], None, 0, "theirs",
            "The persistent storage 'theirs' exists, and is another user's. Choose another name.",
        ),
        (
            ["#DW create_persistent type=xfs capacity=1GiB name=open"], None, 0, "open",
            "The persistent storage 'open' exists, and is another user's. Choose another name.",
        ),
        (
            [f"#DW create_persistent type=xfs capacity=1GiB name=n{63 * 'o'}"], None, 0,
            f"n{63 * 'o'}",
            "The name of persistent storage has 63 characters at most, and ends with a letter or a "
            "digit. Choose another name.",
        ),
        (
            ["#DW create_persistent type=xfs capacity=1GiB name=new-"], None, 0, "new-",
            "The name of persistent storage has 63 characters at most, and ends with a letter or a "
            "digit. Choose another name.",
        ),
        (
            ["#DW create_persistent type=xfs capacity=1GiB name=fluxjob-7-0"], None, 0,
            "fluxjob-7-0",
            "Names that begin with 'fluxjob-' are reserved for what is made for jobs and rabbits. "
            "Choose another name.",
        ),
        (
            ["#DW create_persistent type=xfs capacity=1GiB name=self-test-r0"], None, 0,
            "self-test-r0",
            "Names that begin with 'self-test-' are reserved for what is made for jobs and "
            "rabbits. Choose another name.",
        ),
        (
            ["#DW create_persistent type=xfs capacity=1GiB name=gone"], None, 0, "gone",
            "The persistent storage 'gone' is being destroyed. Wait until it is gone, or choose "
            "another name.",
        ),
        (
            ["#DW destroy_persistent name=open"], None, 0, "open",
            "The persistent storage 'open' is another user's, and only that user can destroy it.",
        ),
        (
            ["#DW destroy_persistent name=busy"], None, 0, "busy",
            "The persistent storage 'busy' cannot be destroyed while jobs use it. Submit this "
            "when they have ended, such as with --dependency=afterany:JOBID.",
        ),
        (
            ["#DW persistentdw name=mime"], None, 0, "mime",
            "There is no persistent storage named 'mime'. Did you mean 'mine'?",
        ),
        (
            ["#DW persistentdw name=gone"], None, 0, "gone",
            "The persistent storage 'gone' is being destroyed. Make another.",
        ),
        (
            ["#DW persistentdw name=soon"], None, 0, "soon",
            "The persistent storage 'soon' is still being made. Submit again when its state is "
            "Active, or with --dependency=afterok:JOBID.",
        ),
        (
            ["#DW persistentdw name=other"],
            facts(storage_of_dependencies=frozenset({"new"})), 0, "other",
            "There is no persistent storage named 'other'. Make it first, with create_persistent, "
            "or wait for the job that does: --dependency=afterok:JOBID.",
        ),
        (
            ["#DW persistentdw name=gone"],
            facts(storage_of_dependencies=frozenset({"gone"})), 0, "gone",
            "The persistent storage 'gone' is being destroyed. Make another.",
        ),
        (
            ["#DW create_persistent type=xfs capacity=2GiB name=mine"],
            facts(instances={"mine": InstanceFacts(
                name="mine", fs_type="xfs", userid=7,
                directive="#DW create_persistent type=xfs capacity=1GiB name=mine")}), 0, "mine",
            "The persistent storage 'mine' exists, and was made by '#DW create_persistent "
            "type=xfs capacity=1GiB name=mine'. Choose another name, or destroy it first.",
        ),
        (
            ["#DW persistentdw name=brief"], facts(now=60.0), 0, "brief",
            "The persistent storage 'brief' has expired at 1970-01-01T00:01:00Z. Make another.",
        ),
        (
            ["#DW persistentdw name=brief"], facts(now=50.0, duration=11.0), 0, "brief",
            "The persistent storage 'brief' expires at 1970-01-01T00:01:00Z, before the job's time "
            "limit. Give the job a shorter one, or ask its user for: warren persistent expire "
            "brief --for=TIME.",
        ),
        (
            ["#DW persistentdw name=theirs"], None, 0, "theirs",
            "The persistent storage 'theirs' is another user's. Its user may share it: warren "
            "persistent share theirs --user=YOU.",
        ),
        (
            ["#DW persistentdw name=mine", "#DW persistentdw name=mine"], None, 1, "mine",
            "The persistent storage 'mine' is named by an earlier persistentdw of this job. "
            "Once is enough.",
        ),
        (
            ["#DW copy_in source=/lus/a destination=$DW_PERSISTENT_mine/"], None, 0,
            "$DW_PERSISTENT_mine",
            "This job has no persistentdw named 'mine'. Add #DW persistentdw name=mine.",
        ),
        (
            ["#DW persistentdw name=bare"],
            facts(raw_volume_access=RawVolumeAccess.FOR_ROOT),
            0,
            "bare",
            "The persistent storage 'bare' is raw, and raw volumes are for root alone here: the "
            "rabbits make them as loop devices, and who holds one reaches the storage of others.",
        ),
        (
            ["#DW persistentdw name=bare",
             "#DW copy_in source=/lus/a destination=$DW_PERSISTENT_bare/"], None, 1,
            "$DW_PERSISTENT_bare",
            "Data movement cannot be used with 'bare', which is raw.",
        ),
        (
            [JOBDW, "#DW copy_in source= destination=$DW_JOB_foo/"], None, 1, "source",
            "'' is no path of a global file system: it begins with '/'.",
        ),
        (
            [JOBDW, "#DW copy_in source=/lus/a destination=$DW_JOB_foo/ profile=fast"], None, 1,
            "fast", "There is no profile of copies named 'fast' here. Leave it out.",
        ),
        (
            [GFS2], facts(supported_types=("raw", "xfs", "ext4")), 0, "gfs2",
            "File systems of type gfs2 are not made by this cluster: its rabbits make raw, xfs or "
            "ext4. Try type=xfs, of which each compute node has its own.",
        ),
        (
            [JOBDW.replace("1GiB", "0TB")], NO_FACTS, 0, "0TB",
            "'capacity' must be a non-zero value. Try 100GiB.",
        ),
        (
            [JOBDW.replace("1GiB", "9999999TiB")], NO_FACTS, 0, "9999999TiB",
            "'9999999TiB' is too large: a capacity is less than 8 EiB.",
        ),
        (
            [f"{JOBDW} profile=fasd"],
            facts(storage_profiles=[profile(), profile("fast", default=False)]), 0, "fasd",
            "Unable to find NnfStorageProfile: fasd. Did you mean 'fast'?",
        ),
        # Containers
        (
            [JOBDW, f"{USE} DW_JOB_xx=nope"], None, 1, "container",
            "Containers cannot run here: this cluster has nothing that would start them. "
            "Take the directive out, and start the program in the job.",
        ),
        (
            [USE, USE], CONTAINER, 1, "container",
            "Only one container directive is supported for each job.",
        ),
        (
            [GFS2, f"{USE} DW_JOB_xx=fou"], CONTAINER, 1, "fou",
            "This job has no jobdw named 'fou'. Did you mean 'foo'?",
        ),
        (
            [JOBDW, f"{USE} DW_JOB_xx=foo"], CONTAINER, 1, "foo",
            "Containers cannot use 'foo', which is xfs. Make it of type gfs2, lustre or raw.",
        ),
        (
            [f"{USE} DW_PERSISTENT_xx=mine"], CONTAINER, 0, "mine",
            "This job has no persistentdw named 'mine'.",
        ),
        (
            ["#DW persistentdw name=mine", f"{USE} DW_PERSISTENT_xx=mine"], CONTAINER, 1, "mine",
            "Containers cannot use 'mine', which is xfs. Make it of type gfs2, lustre or raw.",
        ),
        (
            [f"{USE} DW_GLOBAL_xx=/nope"], CONTAINER, 0, "/nope",
            "No global file system of this cluster contains '/nope'. "
            "Its global file systems are /lus.",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_carried_out_is_told_at_its_place(
    directives: list[str], known: Facts | None, index: int, place: str, words: str
) -> None:
    assert told(*directives, known=known) == [(index, place, words)]


@pytest.mark.parametrize(
    ("directives", "words"),
    [
        ([f"{JOBDW} requires=copy-offload"], "and xfs is for one of them at a time. Make it of"),
        ([JOBDW.replace("xfs", "raw") + " requires=user-container-auth,copy-offload"],
         "and raw is for one of them at a time"),
        (["#DW persistentdw name=mine requires=copy-offload"], "and xfs is for one of them"),
        ([f"{GFS2} requires=copy-offload", USE],
         "A job with a container cannot ask for copies while it runs"),
    ],
)  # fmt: skip
def test_a_job_that_could_get_no_copies_while_it_runs_is_told_why(
    directives: list[str], words: str
) -> None:
    found = told(*directives, known=OFFLOAD)
    assert [each[:2] for each in found] == [(0, directives[0].rpartition("=")[2])]
    assert words in found[0][2]


@pytest.mark.parametrize(
    ("directives", "known"),
    [
        (["#DW create_persistent type=xfs capacity=1GiB name=new"], None),
        ([f"#DW create_persistent type=xfs capacity=1GiB name=n{62 * 'o'}"], None),
        (["#DW create_persistent type=xfs capacity=1GiB name=fluxjob"], None),
        (["#DW create_persistent type=xfs capacity=1GiB name=mine"], None),  # it is adopted
        (["#DW create_persistent type=lustre name=new"], NO_FACTS),  # a standalone MGT has none
        (["#DW destroy_persistent name=mine"], None),
        (["#DW destroy_persistent name=nothing"], None),
        (["#DW persistentdw name=open", "#DW persistentdw name=mine"], None),
        (["#DW persistentdw name=mine",
          "#DW copy_in source=/lus/a destination=$DW_PERSISTENT_mine/",
          "#DW copy_out source=$DW_PERSISTENT_mine/a destination=/lus/"], None),
        (["#DW persistentdw name=nothing"], facts(instances=None)),
        ([GFS2, f"{JOBDW.replace('foo', 'bar')} requires=copy-offload"],
         facts(supported_types=("gfs2", "xfs"))),
        ([GFS2, f"{JOBDW.replace('foo', 'bar')} requires=copy-offload"], OFFLOAD),
        ([f"{JOBDW} requires=copy-offload"], NO_FACTS),
        ([f"{GFS2} requires=copy-offload", USE],
         facts(runs_containers=True, supported_types=("gfs2",))),
        (["#DW persistentdw name=far requires=copy-offload"],
         facts(has_offload=True, instances={"far": FAR})),
        (["#DW persistentdw name=far requires=copy-offload"],
         facts(has_offload=True, instances=None)),
        ([GFS2, f"{USE} DW_JOB_xx=foo DW_GLOBAL_xx=/lus/a"], CONTAINER),
        ([JOBDW.replace("xfs", "raw"), f"{USE} DW_JOB_xx=foo"], CONTAINER),
        ([GFS2, USE, "#DW copy_in source=/anywhere destination=$DW_JOB_foo profile=any"], NO_FACTS),
    ],
)  # fmt: skip
def test_what_can_be_carried_out_passes(directives: list[str], known: Facts | None) -> None:
    assert told(*directives, known=known) == []


@pytest.mark.parametrize(
    "directives",
    [
        ["#DW jobdv type=xfs capacity=1GiB name=foo"],
        ["#DW jobdw type=xfs capacity=1GiB"],
        ["#DW jobdw type=xfs capacity=1GiB name=Foo"],
        ["jobdw"],
        ["#DW jobdw type=xfs capacity=1GiB name='f oo'"],
    ],
)
def test_what_only_follows_from_another_mistake_is_not_told(directives: list[str]) -> None:
    copy = "#DW copy_in source=/lus/a destination=$DW_JOB_foo/"
    assert [index for index, _, _ in told(*directives, copy)] == [0]


def test_everything_is_told_at_once_in_order() -> None:
    directives = [
        "#DW jobdw type=gfs2 capacity=0GiB name=foo",
        "#DW copy_in source=/nope/a destination=$DW_JOB_fou/",
        "#DW create_persistent type=zfs",
    ]
    found = told(*directives, known=facts(why_not_made={"gfs2": "too old on r0"}.get))
    assert [(index, place) for index, place, _ in found] == [
        (0, "gfs2"),
        (0, "0GiB"),
        (1, "/nope/a"),
        (1, "$DW_JOB_fou"),
        (2, "zfs"),
        (2, "create_persistent"),
        (2, "create_persistent"),
        (2, "create_persistent"),
    ]


def test_an_instance_is_read_from_its_object() -> None:
    obj = {
        "metadata": {
            "name": "keep",
            "annotations": {"dataworkflowservices.github.io/ignore-uid": "True"},
        },
        "spec": {"fsType": "xfs", "userID": 5, "state": "Destroying", "consumerReferences": [{}]},
    }
    assert instance_facts(obj) == InstanceFacts(
        name="keep",
        fs_type="xfs",
        userid=5,
        sharing=Sharing(everyone=True),
        is_usable=False,
        deleting=True,
        in_use=True,
    )
    plain: dict[str, Any] = {
        "metadata": {"name": "a"},
        "spec": {"fsType": "raw", "userID": 5, "state": "Active"},
    }
    unmade = InstanceFacts(name="a", fs_type="raw", userid=5, is_usable=False)
    assert instance_facts(plain) == unmade
    plain["status"] = {"state": "Degraded"}
    assert instance_facts(plain) == replace(unmade, is_usable=True)


# What the real controllers answer

_ELSEWHERE = (
    "Unable to find NnfStorageProfile",  # of a profile of theirs
    "container profile",  # there are none here
    "NnfDataMovementProfile",
    "standaloneMgt",
    "MGT",
    "externalMgs",
)
_DAEMONS = "-requires-copy-offload-no-secret"
"""What the word needs there is a Secret; here the site's rule has the word or not."""
_OTHERS = ("-by-other-user", "-other-user")


def _cases() -> list[tuple[str, list[str], int, str]]:
    driven = json.loads(vector("nnf-objects/drive.json").read_text())
    cases = []
    for name, steps in driven.items():
        first = steps[0]
        if first.get("step") != "create" or not first.get("directives"):
            continue
        second = steps[1].get("message") or "" if len(steps) > 1 else ""
        failed = len(steps) > 1 and steps[1].get("status") == "Error"
        cases.append((name, first["directives"], first["code"], second if failed else ""))
    assert len(cases) > 60
    return cases


def test_the_rules_refuse_what_the_real_webhook_refuses() -> None:
    for name, directives, code, _ in _cases():
        if name in ("12-wlmid-state-setup", "12-no-jobid"):
            continue  # not the directives' fault
        assert bool(check_directives(directives, RULES).findings) is (code != 201), name


def test_what_the_real_driver_refuses_in_proposal_is_refused_here() -> None:
    refused = 0
    for name, directives, code, message in _cases():
        if code != 201 or not message or any(words in message for words in _ELSEWHERE):
            continue
        if name.endswith(_DAEMONS):
            continue
        theirs = InstanceFacts(name="per-gfs2", fs_type="gfs2", userid=8)
        known = facts(
            file_systems=[lustre("global0", "/lus/global0")],
            supported_types=("raw", "xfs", "gfs2", "lustre"),
            runs_containers=True,
            instances={"per-gfs2": theirs} if name.endswith(_OTHERS) else {},
        )
        assert told(*directives, known=known), (name, message)
        refused += 1
    assert refused >= 12


@pytest.mark.parametrize(("now", "duration"), [(None, 0.0), (59.0, 0.0), (59.0, 1.0)])
def test_storage_may_be_used_by_jobs_that_end_before_it_expires(
    now: float | None, duration: float
) -> None:
    """A job without a limit keeps what it uses to its end."""
    assert told("#DW persistentdw name=brief", known=facts(now=now, duration=duration)) == []


SHARED = "#DW jobdw type=gfs2 capacity=1GiB name=fast"


def profiled(**data: Any) -> Facts:
    """Make facts of a cluster with one container profile, `beside`."""
    pod = {"containers": [{"name": "main", "image": "a"}]}
    storages = [
        {"name": "DW_JOB_foo-fast", "minimumCapacity": "1GiB"},
        {"name": "DW_PERSISTENT_kept", "optional": True},
    ]
    made = {"metadata": meta("beside"), "data": {"spec": pod, "storages": storages, **data}}
    return replace(
        CONTAINER, container_profiles={"beside": containerprofiles.decode(made)}, groupid=9
    )


def test_a_container_has_the_storage_that_its_profile_demands() -> None:
    """Statement 001.6: the directive names a profile and its storages.

    Statement 001.8: it is held against the profile.
    """
    good = "#DW container name=ab profile=beside DW_JOB_foo_fast=fast"
    assert told(SHARED, good, known=profiled()) == []
    dashed = [parse(SHARED), parse(good.replace("foo_fast", "foo-fast"))]
    assert findings(dashed, profiled()) == []
    ((_, place, words),) = told(SHARED, good.replace("beside", "besides"), known=profiled())
    assert place == "besides"
    assert "There is no container profile named 'besides' here. Did you mean" in words
    ((_, place, words),) = told(SHARED, good.replace("foo_fast", "foo_slow"), known=profiled())[:1]
    assert place == "DW_JOB_foo_slow"
    assert "The container profile 'beside' has no storage DW_JOB_foo_slow." in words
    ((_, place, words),) = told("#DW container name=ab profile=beside", known=profiled())
    assert place == "beside"
    assert "needs the storage DW_JOB_foo_fast." in words
    ((_, place, words),) = told(SHARED.replace("1GiB", "1MiB"), good, known=profiled())
    assert place == "fast"
    assert "The application needs 1GiB, and 'fast' has 1MiB." in words
    (found,) = findings([parse(SHARED), parse(f"{good} DW_JOB_foo-fast=fast")], profiled())
    assert "DW_JOB_foo_fast is there twice." in str(found.mistake)


@pytest.mark.parametrize(
    ("data", "words"),
    [({"userID": 1234}, "is for user 1234 alone."), ({"groupID": 12}, "is for group 12 alone.")],
)
def test_a_container_profile_may_be_for_one_user_or_group(data: dict[str, int], words: str) -> None:
    good = "#DW container name=ab profile=beside DW_JOB_foo_fast=fast"
    ((_, place, said),) = told(SHARED, good, known=profiled(**data))
    assert place == "beside"
    assert words in said


@pytest.mark.parametrize("runs", [True, False])
def test_an_application_that_others_start_needs_nothing_that_runs_it(runs: bool) -> None:
    good = "#DW container name=ab profile=beside DW_JOB_foo_fast=fast"
    assert (
        told(SHARED, good, known=replace(profiled(createContainer=False), runs_containers=runs))
        == []
    )
    # Its directive is judged as others are.
    known = replace(profiled(createContainer=False, userID=1234), runs_containers=runs)
    ((_, place, _),) = told(SHARED, good, known=known)
    assert place == "beside"


def test_no_container_runs_as_root() -> None:
    good = "#DW container name=ab profile=beside DW_JOB_foo_fast=fast"
    ((_, place, said),) = told(SHARED, good, known=replace(profiled(), userid=0))
    assert place == "container"
    assert "Containers run as the job's user, and never as root." in said
