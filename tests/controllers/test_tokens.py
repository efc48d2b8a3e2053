"""The Secrets of a Workflow's token: made once in Setup, and never replaced."""

import base64
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.controllers.alone import Api, alone, running
from tests.dws.builders import JOBDW, meta, raw_workflow
from tests.dws.test_containers import BARE, BARE_PROFILE
from warren.base.objects import Key
from warren.controllers.newkeys import new_token_key
from warren.controllers.tokens import Tokens
from warren.controllers.workflow import WorkflowController
from warren.dws import kinds, labels
from warren.dws.objects.decoding import read
from warren.dws.objects.workflows import Workflow

KEY, SERVER, TOKEN = (Key("default", name) for name in ("wf", "wf-token-server", "wf-token"))
WITH = f"{JOBDW} requires=user-container-auth"


def in_setup(*directives: str) -> dict[str, Any]:
    status = {"requires": ["container-auth"]}
    return raw_workflow(*directives, state="Setup", status=status)


async def set_up(api: Api, *directives: str) -> None:
    """Live as a Workflow in Setup whose directives have a profile of their own already."""
    controller = WorkflowController(api, api.informers, api.clock, "/mnt/nnf")
    copy = {**BARE_PROFILE, "metadata": meta("wf-1")}
    async with running(api, controller.reconciler.run()):
        found = await api.add(kinds.WORKFLOW, in_setup(*directives))
        own = {"dataworkflowservices.github.io/workflow.name": "wf",
               "dataworkflowservices.github.io/workflow.namespace": "default",
               "dataworkflowservices.github.io/workflow.uid": found["metadata"]["uid"]}  # fmt: skip
        await api.add(kinds.CONTAINER_PROFILE, {**copy, "metadata": meta("wf-1", labels=own)})


def secrets_asked(api: Api) -> int:
    return sum(kind == kinds.SECRET for _, kind in api.asked)


def test_key_and_token_are_made_and_the_workflow_says_where() -> None:
    async def story(api: Api) -> None:
        await set_up(api, WITH, BARE)
        owner = api.find(kinds.WORKFLOW, KEY)
        for key in (SERVER, TOKEN):
            made = api.find(kinds.SECRET, key)
            assert made["immutable"]
            assert made["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]
        where = {"secretName": "wf-token", "secretNamespace": "default"}
        assert owner["status"]["workflowToken"] == where

    alone(story)


def test_a_workflow_that_enters_setup_gets_a_key_that_was_drawn_for_it() -> None:
    async def story(api: Api) -> None:
        controller = WorkflowController(api, api.informers, api.clock, "/mnt/nnf")
        status = {"requires": ["container-auth"]}
        ready = raw_workflow(WITH, BARE, state="Proposal", ready=True, status=status)
        async with running(api, controller.reconciler.run()):
            found = await api.add(kinds.WORKFLOW, ready)
            own = labels.of_workflow(read(found, Workflow))
            copy = {**BARE_PROFILE, "metadata": meta("wf-1", labels=own)}
            await api.add(kinds.CONTAINER_PROFILE, copy)
            await api.change(kinds.WORKFLOW, KEY, {"spec": {"desiredState": "Setup"}})
        made = api.find(kinds.SECRET, SERVER)
        lines = base64.b64decode(made["data"]["token.key"]).splitlines()
        drawn = serialization.load_der_private_key(base64.b64decode(b"".join(lines[1:-1])), None)
        assert isinstance(drawn, ec.EllipticCurvePrivateKey)
        assert api.find(kinds.SECRET, TOKEN) is not None

    alone(story)


def test_a_pass_that_is_repeated_replaces_neither() -> None:
    async def story(api: Api) -> None:
        await set_up(api, WITH, BARE)
        before = [api.find(kinds.SECRET, key) for key in (SERVER, TOKEN)]
        controller = WorkflowController(api, api.informers, api.clock, "/mnt/nnf")
        drivers = api.find(kinds.WORKFLOW, KEY)["status"]["drivers"]
        again = [{**each, "completed": False} if each["watchState"] == "Setup" else each
                 for each in drivers]  # fmt: skip
        async with running(api, controller.reconciler.run()):
            patch = {"status": {"ready": False, "drivers": again}}
            await api.change(kinds.WORKFLOW, KEY, patch)
        assert [api.find(kinds.SECRET, key) for key in (SERVER, TOKEN)] == before

    alone(story)


def test_a_token_is_signed_with_the_key_that_a_pass_before_has_left() -> None:
    async def story(api: Api) -> None:
        tokens = Tokens(api)
        wf = read({**in_setup(WITH, BARE)}, Workflow)
        first = await tokens.find(wf)
        assert first is not None
        assert first.key is None
        await api.add(kinds.SECRET, {"metadata": meta("wf-token-server"), "data": {}})
        second = await tokens.find(wf)
        assert second is not None
        assert second.key is not None
        assert second.new_key == b""

    alone(story)


def test_secrets_of_workflows_without_a_token_are_not_asked_for() -> None:
    async def story(api: Api) -> None:
        await set_up(api, WITH)
        assert secrets_asked(api) == 0
        assert api.keys(kinds.SECRET) == []

    alone(story)


def test_what_keys_hold_is_no_workflows_to_tell() -> None:
    async def story(api: Api) -> None:
        await set_up(api, WITH, BARE)
        token = base64.b64decode(api.find(kinds.SECRET, TOKEN)["data"]["token"]).decode()
        assert token not in str(api.find(kinds.WORKFLOW, KEY))

    alone(story)


def test_a_key_is_new_each_time_and_on_the_curve_that_containers_know() -> None:
    one, other = new_token_key(), new_token_key()
    assert one != other
    found = serialization.load_der_private_key(one, None)
    assert isinstance(found, ec.EllipticCurvePrivateKey)
    assert found.curve.name == "secp521r1"
