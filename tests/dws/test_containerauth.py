"""The token by which a job and its containers know each other: who has one, and what it is."""

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest

from tests.dws import nnf_objects
from tests.dws.builders import JOBDW, changes, made, meta, workflow
from tests.dws.test_containers import BARE, BARE_PROFILE, application, bare, pod
from tests.dws.test_driver import driver, told
from tests.rfc.vectors import vector
from warren.base.objects import Object
from warren.directives.parse import parse
from warren.dws import containerauth, kinds
from warren.dws.containerauth import TokenSecrets
from warren.dws.objects.decoding import read
from warren.dws.objects.workflows import Workflow

WITH = f"{JOBDW} requires=user-container-auth"
KEY = b"a key of some bytes" * 9
AUTH: dict[str, Any] = {"status": {"requires": ["container-auth"]}}


def secret(name: str, owner: str = "uid-wf", **data: bytes) -> Object:
    content = {
        entry.replace("_", "."): base64.b64encode(each).decode() for entry, each in data.items()
    }
    return {"metadata": meta(name, ownerReferences=[{"uid": owner}]), "data": content}


def key_secret(owner: str = "uid-wf") -> Object:
    (create,) = made(set_up(TokenSecrets(new_key=KEY)), kinds.SECRET)
    return {**create, "metadata": meta("wf-token-server", ownerReferences=[{"uid": owner}])}


def set_up(found: TokenSecrets | None, **more: Any) -> Any:
    """Decide on a Workflow in Setup whose containers need no ports."""
    return bare("Setup", token_secrets=found, **AUTH, **more)


def unsigned(part: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


@pytest.mark.parametrize(
    ("directive", "words"),
    [
        (WITH, ["container-auth"]),
        (f"{JOBDW} requires=copy-offload", ["copy-offload", "container-auth"]),
        (f"{JOBDW} requires=copy-offload,user-container-auth", ["copy-offload", "container-auth"]),
        (f"{JOBDW} requires=other", []),
        (JOBDW, []),
    ],
)
def test_what_directives_require_beyond_storage_is_said_in_proposal(
    directive: str, words: list[str]
) -> None:
    assert containerauth.requirements([parse(directive)]) == words
    wf = workflow(directive)
    status = containerauth.token_status(wf, [parse(directive)], None)
    assert status == ({"requires": words} if words else {})


@pytest.mark.parametrize("case", ["09a-requires-auth-only", "09b-requires-auth-container",
                                  "09c-copy-offload-jobdw-only"])  # fmt: skip
def test_a_workflow_requires_what_the_real_driver_says(case: str) -> None:
    vector(f"nnf-objects/{case}")
    (obj,) = nnf_objects.dump(nnf_objects.PLACE / case / "01-Proposal.json")["Workflow"]
    directives = [parse(each) for each in obj["spec"]["dwDirectives"]]
    assert containerauth.requirements(directives) == obj["status"]["requires"]


def test_a_job_has_a_token_for_its_containers_or_for_copies_alone() -> None:
    assert containerauth.has_token([WITH, BARE])
    assert not containerauth.has_token([WITH])
    assert not containerauth.has_token([JOBDW, BARE])
    assert containerauth.has_token([f"{JOBDW} requires=copy-offload"])  # for the service
    for state, ready, due in (("Setup", False, True), ("Setup", True, False), ("PreRun", 0, False)):
        wf = workflow(WITH, BARE, state=state, ready=bool(ready), **AUTH)
        assert containerauth.needs_secrets(wf) is due
    entering = workflow(WITH, BARE, state="Proposal", desired="Setup", ready=True, **AUTH)
    assert containerauth.needs_secrets(entering)
    leaving = workflow(WITH, BARE, state="Setup", desired="Teardown", **AUTH)
    assert not containerauth.needs_secrets(leaving)
    assert not containerauth.needs_secrets(workflow(WITH, state="Setup", **AUTH))
    assert not containerauth.needs_secrets(workflow(WITH, BARE, state="Setup"))


def test_in_setup_the_key_is_made_first_and_then_a_token_that_is_signed_with_it() -> None:
    writes = set_up(TokenSecrets(new_key=KEY))
    (first,) = made(writes, kinds.SECRET)
    assert first["metadata"]["name"] == "wf-token-server"
    assert driver(writes, 1)["message"] == "waits for the key of its token"

    writes = set_up(TokenSecrets(key=key_secret()))
    (second,) = made(writes, kinds.SECRET)
    assert second["metadata"]["name"] == "wf-token"
    assert driver(writes, 1)["message"] == "waits for its token"
    assert "workflowToken" not in changes(writes, kinds.WORKFLOW)[0]["status"]
    token = containerauth.token_of(second) or ""
    header, claims, signature = token.split(".")
    assert unsigned(header) == {"alg": "HS256", "typ": "JWT"}
    assert unsigned(claims) == {"sub": "user-container", "iat": 1769860800}
    expected = hmac.digest(KEY, f"{header}.{claims}".encode(), hashlib.sha256)
    assert base64.urlsafe_b64decode(signature + "=") == expected

    writes = set_up(TokenSecrets(key=key_secret(), token=secret("wf-token", token=b"a.b.c")))
    assert not made(writes, kinds.SECRET)
    assert driver(writes, 1)["completed"]
    (patch,) = changes(writes, kinds.WORKFLOW)
    where = {"secretName": "wf-token", "secretNamespace": "default"}
    assert patch["status"]["workflowToken"] == where


def test_the_secrets_are_those_of_the_real_driver() -> None:
    case = "09b-requires-auth-container"
    vector(f"nnf-objects/{case}")
    found = nnf_objects.dump(nnf_objects.PLACE / case / "02-Setup.json")
    (obj,) = found["Workflow"]
    wf = read({**obj, "metadata": {**obj["metadata"], "uid": "uid"}}, Workflow)
    first = containerauth.next_secret(wf, TokenSecrets(new_key=KEY), 0)
    assert first is not None
    second = containerauth.next_secret(wf, TokenSecrets(key=first.object), 0)
    assert second is not None
    for ours, name in ((first.object, f"w{case}-token-server"), (second.object, f"w{case}-token")):
        (real,) = [each for each in found["Secret"] if each["metadata"]["name"] == name]
        assert ours["metadata"] == real["metadata"]
        assert list(ours["data"]) == real["dataKeys"]
        assert (ours["type"], ours["immutable"]) == (real["type"], real["immutable"])
    both = TokenSecrets(key=first.object, token=second.object)
    where = containerauth.token_status(wf, [], both)["workflowToken"]
    assert where == obj["status"]["workflowToken"]


def test_the_key_is_what_its_author_writes_down() -> None:
    lines = base64.b64decode(key_secret()["data"]["token.key"]).decode().splitlines()
    assert lines[0] == "-----BEGIN EC PRIVATE KEY-----"
    assert lines[-1] == "-----END EC PRIVATE KEY-----"
    assert all(len(each) <= 64 for each in lines)
    assert base64.b64decode("".join(lines[1:-1])) == KEY


def test_a_secret_of_that_name_that_is_another_ones_is_not_used() -> None:
    for found in (
        TokenSecrets(key=key_secret(owner="other")),
        TokenSecrets(key=key_secret(), token=secret("wf-token", owner="other", token=b"x")),
    ):
        writes = set_up(found)
        assert not made(writes, kinds.SECRET)
        status, message = told(writes)
        assert status == "TransientCondition"
        assert "is not this Workflow's: delete it" in message


def test_a_secret_may_have_other_owners_besides() -> None:
    found = key_secret()
    owners = [{"uid": "other"}, {"uid": "uid-wf"}]
    shared = {**found, "metadata": meta("wf-token-server", ownerReferences=owners)}
    assert made(set_up(TokenSecrets(key=shared)), kinds.SECRET)


def test_without_requires_nothing_of_it_is_made_and_ports_are_not_waited_with() -> None:
    writes = bare("Setup")
    assert not made(writes, kinds.SECRET)
    assert "workflowToken" not in changes(writes, kinds.WORKFLOW)[0]["status"]
    assert driver(writes, 1)["completed"]


def test_no_key_is_made_where_none_was_drawn() -> None:
    writes = set_up(None)
    assert not made(writes, kinds.SECRET)
    assert driver(writes, 1)["message"] == "waits for its Secrets to be looked at"


def test_no_key_and_no_token_is_in_what_is_shown_of_a_snapshot() -> None:
    found = TokenSecrets(key=key_secret(), token=secret("wf-token", token=b"x"), new_key=KEY)
    assert repr(found) == "TokenSecrets()"


def test_containers_find_key_and_certificate_where_variables_say() -> None:
    wf = workflow(WITH, BARE, **AUTH)
    found = pod(application(BARE_PROFILE, workflow=wf))
    (container,) = found["containers"]
    mounted = {each["mountPath"]: each for each in container["volumeMounts"]}
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables["TLS_CERT_PATH"] == "/etc/usercontainer-tls/tls.crt"
    assert variables["TLS_KEY_PATH"] == "/etc/usercontainer-tls/tls.key"
    assert variables["TOKEN_KEY_PATH"] == "/etc/usercontainer-token/token.key"
    assert mounted["/etc/usercontainer-tls"]["readOnly"]
    assert mounted["/etc/usercontainer-token"]["readOnly"]
    volumes = {each["name"]: each.get("secret") for each in found["volumes"]}
    tls = {"secretName": "nnf-dm-usercontainer-server-tls", "optional": True}
    assert volumes["usercontainer-tls"] == tls
    assert volumes["usercontainer-token"] == {"secretName": "wf-token-server"}
    plain = str(pod(application(BARE_PROFILE, workflow=workflow(BARE))))
    assert "usercontainer" not in plain


def test_no_job_is_told_its_token_by_its_workflow() -> None:
    wf = workflow(WITH, BARE, **AUTH)
    assert not [each for each in application(BARE_PROFILE, workflow=wf).variables()
                if "TOKEN" in each]  # fmt: skip
