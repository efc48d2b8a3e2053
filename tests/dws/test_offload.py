"""What a running job asks of the service for copies: whose it is, what it says, what it becomes."""

import base64
import copy
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.dws.builders import DEEP, lustre, meta, raw_workflow
from tests.dws.test_containerauth import KEY, secret
from warren.base.objects import Key, Object, merge_patch
from warren.dws import containerauth, labels, offloadtokens
from warren.dws.containerauth import TokenSecrets
from warren.dws.objects.decoding import read
from warren.dws.objects.workflows import Workflow
from warren.dws.offload import copyservice, movements, progress, requests
from warren.dws.offload.copyservice import OffloadService
from warren.dws.offload.requests import CopyRequest, Refusal

FAST = "#DW jobdw type=gfs2 capacity=1GiB name=fast requires=copy-offload"
ON: dict[str, Any] = {"requires": ["copy-offload", "container-auth"]}
SERVICE = OffloadService(host="rabbit-0", port=4000, certificate="/etc/cert.pem")


def running(state: str = "PreRun", ready: bool = True, **more: Any) -> Workflow:
    raw = raw_workflow(FAST, state=state, ready=ready, status=ON, **more)
    return read(raw, Workflow)


# Where it is


def test_where_the_service_is_stands_in_an_annotation_of_the_system() -> None:
    said = merge_patch({"metadata": {"name": "default"}}, copyservice.announce(SERVICE).patch)
    assert copyservice.service_of_configuration(said) == SERVICE
    gone = merge_patch(said, copyservice.announce(None).patch)
    assert copyservice.service_of_configuration(gone) is None
    assert copyservice.service_of_configuration(None) is None
    assert copyservice.find_service({labels.COPY_OFFLOAD: '{"launcher": "a"}'}) is None
    assert copyservice.find_service({labels.COPY_OFFLOAD: DEEP}) is None
    assert copyservice.variables(SERVICE) == {
        "NNF_CONTAINER_LAUNCHER": "rabbit-0",
        "NNF_CONTAINER_PORTS": "4000",
        "TLS_CERT_PATH": "/etc/cert.pem",
    }


# Tokens


def key_secret(key: bytes = KEY, owner: str = "uid-wf") -> Object:
    create = containerauth.next_secret(
        running("Setup", ready=False), TokenSecrets(new_key=key), 0.0
    )
    assert create is not None
    return {**create.object, "metadata": meta("k", ownerReferences=[{"uid": owner}])}


def token(kid: str | None = "default/wf", key: bytes = KEY) -> str:
    return containerauth.signed_token(key, 5.0, kid).decode()


def forged(header: Mapping[str, Any], claims: Mapping[str, Any], key: bytes = KEY) -> str:
    parts = [
        base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=")
        for each in (header, claims)
    ]
    text = b".".join(parts)
    seal = base64.urlsafe_b64encode(hmac.digest(key, text, hashlib.sha256)).rstrip(b"=")
    return (text + b"." + seal).decode()


def test_the_token_of_a_workflow_that_may_ask_for_copies_names_the_workflow() -> None:
    found = TokenSecrets(key=key_secret())
    create = containerauth.next_secret(running("Setup", ready=False), found, 5.0)
    assert create is not None
    made = containerauth.token_of(create.object)
    assert made == token()
    assert offloadtokens.workflow_key_of(made) == Key("default", "wf")
    assert offloadtokens.is_valid(made, running(), key_secret())


def test_a_token_that_is_nested_for_ever_names_no_workflow() -> None:
    """It comes without any valid token."""
    deep = base64.urlsafe_b64encode(b'{"x":' + b"[" * 1400).rstrip(b"=").decode()
    assert offloadtokens.of_header(f"Bearer {deep}.e30.AA") is not None
    assert offloadtokens.workflow_key_of(f"{deep}.e30.AA") is None


def test_a_token_names_no_workflow_of_another_namespace() -> None:
    """Which the service may not read."""
    assert (
        offloadtokens.workflow_key_of(forged({**HEADER, "kid": "kube-system/wf"}, CLAIMS)) is None
    )


HEADER = {"alg": "HS256", "typ": "JWT", "kid": "default/wf"}
CLAIMS = {"sub": "user-container", "iat": 5}


@pytest.mark.parametrize(
    "bad",
    [
        token(key=b"another job's key"),
        token("default/other"),
        token(None),
        forged({**HEADER, "alg": "none"}, CLAIMS),
        forged({**HEADER, "alg": "HS512"}, CLAIMS),
        forged({**HEADER, "kid": "default/../x"}, CLAIMS),
        forged({**HEADER, "kid": 7}, CLAIMS),
        forged(HEADER, {"sub": "other", "iat": 5}),
        forged(HEADER, {"iat": 5}),
        token()[:-1],
        token() + ".",
        token().rpartition(".")[0] + ".",
        token().replace(".", "..", 1),
        token() + "\u00e9",
        token() + "A" * 4096,
        "",
        "..",
        "a.b.c",
    ],
)
def test_no_other_token_is_the_workflows(bad: str) -> None:
    assert not offloadtokens.is_valid(bad, running(), key_secret())


def test_a_secret_that_is_another_workflows_or_has_no_key_vouches_for_nothing() -> None:
    assert not offloadtokens.is_valid(token(), running(), key_secret(owner="uid-other"))
    assert not offloadtokens.is_valid(token(key=b""), running(), key_secret(key=b""))
    assert not offloadtokens.is_valid(token(key=b""), running(), secret("k", token_key=b""))
    damaged = {"metadata": meta("k", ownerReferences=[{"uid": "uid-wf"}])}
    broken = {**damaged, "data": {"token.key": base64.b64encode(b"a\n!\nb").decode()}}
    for each in (damaged, broken):
        assert not offloadtokens.is_valid(token(), running(), each)


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("Bearer a.b.c", "a.b.c"),
        ("bearer  a.b.c ", "a.b.c"),
        ("a.b.c", None),
        ("Basic a.b.c", None),
        ("Bearer", None),
        ("Bearer a b", None),
        ("Bearer " + "a" * 2049, None),
        ("", None),
    ],
)
def test_a_token_is_that_of_the_scheme_bearer(header: str, found: str | None) -> None:
    assert offloadtokens.of_header(header) == found


# Requests

BODY = {
    "computeName": "n0",
    "sourcePath": "/mnt/nnf/uid-wf-0/out",
    "destinationPath": "/lus/results/",
}


def body(**more: Any) -> bytes:
    return json.dumps({**BODY, **more}).encode()


def refused(status: int, words: str) -> Any:
    return pytest.raises(Refusal, match=words, check=lambda error: error.status == status)


def test_a_request_of_nnfs_library_is_understood() -> None:
    sent = body(dmProfile="", dryrun=True, dcpOptions="", logStdout=True, storeStdout=False,
                slots=-1, maxSlots=-1)  # fmt: skip
    assert requests.parse(sent) == CopyRequest(
        compute_name="n0",
        source_path="/mnt/nnf/uid-wf-0/out",
        destination_path="/lus/results/",
        dryrun=True,
        log_stdout=True,
        slots=-1,
        max_slots=-1,
    )


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"{", "unable to decode data movement request body"),
        (b"\xff", "unable to decode"),
        (b"[]", "unable to decode"),
        (body(slots="many"), "unable to decode"),
        (b"[" * 10000, "unable to decode"),
        (b'{"unknown": ' + b"[" * 10000, "unable to decode"),
        (b'{"unknown": 1}', "compute name must be supplied"),
        (body(computeName=""), "compute name must be supplied"),
        (body(sourcePath=""), "source path must be supplied"),
        (body(destinationPath=""), "destination path must be supplied"),
        (body(slots=-2), "slots must be -1"),
        (body(maxSlots=-2), "maxSlots must be -1"),
        (body(slots=2**31), "slots must be less than 2147483648"),
        (body(maxSlots=10**23), "maxSlots must be less than 2147483648"),
        (body(computeName="../n0"), "no name of a compute node"),
        (body(computeName="n0/../r0"), "no name of a compute node"),
        (body(sourcePath="relative"), "no absolute path"),
        (body(sourcePath="/a/../../etc/shadow"), "leads out of its directory"),
        (body(destinationPath="/lus/.."), "leads out of its directory"),
        (body(sourcePath="/a\nb"), "no control characters"),
        (body(sourcePath="/a\0b"), "no control characters"),
        (body(destinationPath="/" + "a" * 4095), "4095 bytes at most"),
        (body(dcpOptions="--direct"), "options of dcp and mpirun are the profile's"),
        (body(mpirunOptions="--host x"), "options of dcp and mpirun are the profile's"),
    ],
)
def test_a_bad_request_is_refused_with_what_is_wrong(sent: bytes, words: str) -> None:
    with refused(400, words):
        requests.parse(sent)


# Where the ends are

REFERENCE = {"kind": "NnfNodeStorage", "name": "wf-0-gfs2", "namespace": "r0"}
ELSEWHERE = {**REFERENCE, "namespace": "r1"}


def mount(
    node: str,
    path: str = "/mnt/nnf/uid-wf-0",
    kind: str = "gfs2",
    number: int = 0,
    reference: Object = REFERENCE,
    state: str = "mounted",
) -> Object:
    device: dict[str, Any] = {"objectReference": reference} | ({"data": number} if number else {})
    owner = "computes" if node.startswith("n") else "servers"
    carried = {
        labels.DIRECTIVE_INDEX: "0",
        "dataworkflowservices.github.io/owner.name": f"wf-0-{owner}",
    }
    return {
        "metadata": {"name": f"default-wf-0-{owner}", "namespace": node, "labels": carried},
        "spec": {
            "node": node,
            "desiredState": "mounted",
            "mounts": [
                {
                    "mountPath": path,
                    "type": kind,
                    "device": {"type": "lvm", "deviceReference": device},
                }
            ],
        },
        "status": {"mounts": [{"state": state, "ready": True}]},
    }


ON_COMPUTE = [mount("n0", number=1)]


def together(first: Object, *others: Object) -> Object:
    """Return the ClientMount that has the mounts of several."""
    made = copy.deepcopy(first)
    for each in others:
        made["spec"]["mounts"] += each["spec"]["mounts"]
        made["status"]["mounts"] += each["status"]["mounts"]
    return made


ON_RABBIT = [
    together(mount("r0", "/mnt/nnf/uid-wf-0/r0-0"), mount("r0", "/mnt/nnf/uid-wf-0/r0-1", number=1))
]


def become(
    request: CopyRequest | None = None,
    on_compute: list[Object] = ON_COMPUTE,
    on_rabbits: list[Object] = ON_RABBIT,
    profiles: Mapping[str, Object] = {},
    **more: Any,
) -> Object:
    asked = request or requests.parse(body(**more))
    ends = requests.find_ends(asked, on_compute, [lustre()])
    return movements.movement(asked, ends, running(), on_rabbits, profiles, "x")


def test_a_copy_is_made_by_the_rabbit_of_what_the_node_has_mounted() -> None:
    made = become(sourcePath="/mnt/nnf/uid-wf-0/out/", dryrun=True)
    assert (made["metadata"]["namespace"], made["metadata"]["name"]) == (
        "r0",
        f"{movements.name_prefix(running())}x",
    )
    # No link leads the copy out of there (ADR 093).
    assert made["metadata"]["annotations"] == {
        labels.SOURCE_STORAGE: "/mnt/nnf/uid-wf-0/r0-1",
    }
    assert made["spec"]["source"] == {
        "path": "/mnt/nnf/uid-wf-0/r0-1/out/",
        "storageReference": REFERENCE,
    }
    assert made["spec"]["destination"] == {
        "path": "/lus/results/",
        "storageReference": {"kind": "LustreFileSystem", "name": "lus", "namespace": "default"},
    }
    assert (made["spec"]["userId"], made["spec"]["groupId"]) == (1001, 1002)
    assert made["spec"]["userConfig"]["dryrun"] is True
    carried = made["metadata"]["labels"]
    assert labels.of_workflow(running(), 0).items() <= carried.items()
    assert carried[labels.TEARDOWN_STATE] == "PostRun"
    assert carried[labels.INITIATOR] == "n0"
    assert made["metadata"]["finalizers"] == [labels.MOVEMENT_FINALIZER]


def test_a_copy_may_go_into_storage_and_from_one_storage_into_another() -> None:
    inward = become(sourcePath="/lus/in", destinationPath="/mnt/nnf/uid-wf-0/in")
    assert inward["spec"]["destination"]["path"] == "/mnt/nnf/uid-wf-0/r0-1/in"
    storage = inward["metadata"]["annotations"]
    assert storage == {labels.DESTINATION_STORAGE: "/mnt/nnf/uid-wf-0/r0-1"}
    other = {**REFERENCE, "name": "wf-1-gfs2"}
    across = become(
        destinationPath="/mnt/nnf/uid-wf-1/b",
        on_compute=[*ON_COMPUTE, mount("n0", "/mnt/nnf/uid-wf-1", reference=other)],
        on_rabbits=[*ON_RABBIT, mount("r0", "/mnt/nnf/uid-wf-1/r0-0", reference=other)],
    )
    assert across["spec"]["destination"]["path"] == "/mnt/nnf/uid-wf-1/r0-0/b"


def test_lustre_is_copied_by_a_rabbit_that_has_it_mounted_at_the_same_place() -> None:
    storage = {"kind": "NnfStorage", "name": "wf-0", "namespace": "default"}
    path = "/mnt/nnf/uid-wf-0"
    on_compute = [mount("n0", path, "lustre", reference=storage)]
    # What other compute nodes have mounted is no rabbit's.
    everywhere = [
        *on_compute,
        *(mount(each, path, "lustre", reference=storage) for each in ("r1", "r0")),
    ]
    ends = requests.find_ends(requests.parse(body()), on_compute, [lustre()])
    assert movements.rabbit_mounts_selector(running(), ends)[0] == ""
    made = become(on_compute=on_compute, on_rabbits=everywhere)
    assert made["metadata"]["namespace"] == "r0"
    assert made["spec"]["source"]["path"] == "/mnt/nnf/uid-wf-0/out"
    assert made["metadata"]["annotations"] == {labels.SOURCE_STORAGE: path}


def test_a_rabbit_does_not_have_others_copy_by_what_it_says_of_its_mounts() -> None:
    elsewhere = merge_patch(ON_RABBIT[0], {"spec": {"node": "r9"}})
    assert become(on_rabbits=[elsewhere])["metadata"]["namespace"] == "r0"
    others = merge_patch(ON_RABBIT[0], {"metadata": {"name": "default-other-0-servers"}})
    with refused(503, "no rabbit has mounted"):
        become(on_rabbits=[others])


def test_the_mounts_to_look_at_are_those_of_the_workflow_on_the_rabbit() -> None:
    ends = requests.find_ends(requests.parse(body()), ON_COMPUTE, [lustre()])
    assert movements.rabbit_mounts_selector(running(), ends) == (
        "r0",
        labels.of_workflow(running()),
    )


@pytest.mark.parametrize(
    ("status", "words", "more"),
    [
        (400, "nothing mounted on n0", {"on_compute": []}),
        (403, "'/etc/shadow' is neither in storage", {"sourcePath": "/etc/shadow"}),
        (403, "is neither in storage", {"sourcePath": "/mnt/nnf/uid-wf-00/out"}),
        (403, "is neither in storage", {"sourcePath": "/mnt/nnf/uid-other-0/out"}),
        (403, "is neither in storage", {"destinationPath": "/lustre/x"}),
        (403, "neither path is in storage of this job", {"sourcePath": "/lus/a"}),
        (400, "filesystem not supported: .* is in xfs", {"on_compute": [mount("n0", kind="xfs")]}),
        (400, "filesystem not supported: .* is in raw", {"on_compute": [mount("n0", kind="none")]}),
        (503, "no rabbit has mounted", {"on_rabbits": []}),
        (503, "no rabbit has mounted", {"on_rabbits": [mount("r0", "/mnt/nnf/uid-wf-0/r0-0")]}),
        (503, "no rabbit has mounted", {"on_rabbits": ON_COMPUTE}),
        (503, "no rabbit has mounted",
         {"on_rabbits": [mount("r0", "/m", number=1, state="unmounted")]}),
        (400, "different rabbits",
         {"on_compute": [*ON_COMPUTE, mount("n0", "/b", reference=ELSEWHERE)],
          "destinationPath": "/b/c"}),
        (400, "Unable to find NnfDataMovementProfile: nosuch", {"dmProfile": "nosuch"}),
    ],
)  # fmt: skip
def test_a_copy_that_cannot_or_may_not_be_made_is_refused(
    status: int, words: str, more: dict[str, Any]
) -> None:
    with refused(status, words):
        become(**more)


def test_a_profile_says_how_and_the_request_says_more() -> None:
    data = {"command": "mpirun --hostfile $HOSTFILE dcp $SRC $DEST", "slots": 8, "maxSlots": 4}
    slow = {"metadata": meta("slow", "nnf-system"), "data": data}
    made = become(dmProfile="slow", profiles={"slow": slow}, slots=0, maxSlots=-1, storeStdout=True)
    assert made["spec"]["profileReference"] == {
        "kind": "NnfDataMovementProfile",
        "name": "slow",
        "namespace": "nnf-system",
    }
    told = json.loads(made["metadata"]["annotations"][labels.COPY_PROFILE])
    assert told == {**data, "slots": 0, "storeStdout": True}


# Which are taken


@pytest.mark.parametrize(
    "workflow",
    [
        running(ready=False),
        running("DataIn"),
        running("PostRun"),
        running(desired="PostRun"),
        running(desired="Teardown"),
        running(metadata={"deletionTimestamp": "2026-01-31T12:00:00Z"}),
    ],
)
def test_copies_are_taken_while_the_tasks_may_run_and_never_else(workflow: Workflow) -> None:
    movements.check_running(running())
    with refused(409, "workflow must be in 'PreRun' state and 'Completed' status"):
        movements.check_running(workflow)


def movement(number: int, status: str | None = "Success", **more: Any) -> Object:
    ended = {"state": "Finished", "status": status, "endTime": f"2026-01-31T12:00:{number:02}Z"}
    made = become()
    return {
        **made,
        "metadata": {**made["metadata"], "name": f"c{number}"},
        "status": {**(ended if status else {"state": "Running"}), **more},
    }


def test_a_job_has_so_many_copies_at_a_time_and_the_oldest_are_forgotten() -> None:
    some = [movement(3), movement(1), movement(2, "Failed"), movement(0, None)]
    movements.check_below_limit(some, max_active=2, max_remembered=3)
    with refused(429, "1 copies of this job have not ended"):
        movements.check_below_limit(some, max_active=1)
    with refused(429, "2 copies of this job go on or have failed"):
        movements.check_below_limit(some, max_remembered=2)
    assert movements.movements_to_forget(some, max_remembered=5) == []
    assert movements.movements_to_forget(some, max_remembered=4) == [Key("r0", "c1")]
    assert movements.movements_to_forget(some, max_remembered=2) == [
        Key("r0", "c1"),
        Key("r0", "c3"),
    ]


def test_a_copy_is_known_by_its_rabbit_and_its_name() -> None:
    one = movement(1)
    assert movements.name_of(one) == "r0--c1"
    assert movements.key_by_name("r0--c1") == Key("r0", "c1")
    assert movements.key_by_name("a--b--c1") == Key("a--b", "c1")
    for bad in ("r0", "r0--", "--c1", "r0--c1/x", "../r0--c1", "r0--c1\n", "R0--c1"):
        assert movements.key_by_name(bad) is None


def test_what_is_another_jobs_or_a_directives_copy_is_none_that_was_asked_for() -> None:
    one = become()
    assert movements.belongs_to(one, running())
    # By its labels alone, which a rabbit's agent may change.
    assert not movements.belongs_to(movement(1), running())
    assert not movements.belongs_to(one, running(metadata={"uid": "uid-later"}))
    by_directive = merge_patch(one, {"metadata": {"labels": {labels.TEARDOWN_STATE: "DataOut"}}})
    assert not movements.belongs_to(by_directive, running())


# How far they are

STARTED = {"startTime": "2026-01-31T12:00:00.250000Z"}
PENDING = {"state": "pending", "status": "unknown status"}


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ({}, PENDING),
        ({"state": "Starting"}, PENDING),
        (
            {"state": "Running", **STARTED},
            {"state": "running", "status": "unknown status", "commandStatus": {},
             "startTime": "2026-01-31 12:00:00.250000 +0000 UTC"},
        ),
        (
            {"state": "Starting", "message": "try 1 has failed: x", **STARTED},
            {"state": "starting", "status": "unknown status", "message": "try 1 has failed: x",
             "commandStatus": {}, "startTime": "2026-01-31 12:00:00.250000 +0000 UTC"},
        ),
        (
            {"state": "Finished", "status": "Cancelled", "endTime": "2026-01-31T12:00:01Z"},
            {"state": "completed", "status": "cancelled", "commandStatus": {},
             "endTime": "2026-01-31 12:00:01.000000 +0000 UTC"},
        ),
        (
            {"state": "Finished", "status": "Failed", "message": "no such file"},
            {"state": "completed", "status": "failed", "message": "no such file",
             "commandStatus": {}},
        ),
        (
            {"state": "Running", **STARTED,
             "commandStatus": {"progress": 40, "elapsedTime": "1.5s", "lastMessage": "copied",
                               "lastMessageTime": "2026-01-31T12:00:02Z", "files": 7}},
            {"state": "running", "status": "unknown status",
             "startTime": "2026-01-31 12:00:00.250000 +0000 UTC",
             "commandStatus": {"progress": 40, "elapsedTime": "1.5s", "lastMessage": "copied",
                               "lastMessageTime": "2026-01-31 12:00:02.000000 +0000 UTC"}},
        ),
    ],
)  # fmt: skip
def test_how_far_a_copy_is_stands_in_the_words_of_nnfs_library(
    status: Object, told: Object
) -> None:
    asked = {**become(), "status": status}
    assert progress.progress_report(asked) == told
    text = progress.body(asked)
    assert json.loads(text) == told
    assert text.endswith(b"\n")  # the library reads a line


def test_a_copy_that_is_to_be_cancelled_says_so_until_it_has_ended() -> None:
    asked = merge_patch(become(), {"spec": {"cancel": True}})
    going_on = {**asked, "status": {"state": "Running", **STARTED}}
    assert progress.progress_report(going_on)["state"] == "cancelling"
    ended = {**asked, "status": {"state": "Finished", "status": "Success"}}
    assert progress.progress_report(ended)["state"] == "completed"
