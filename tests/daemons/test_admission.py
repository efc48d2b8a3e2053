"""Workflows are admitted by the rules that are installed."""

import asyncio
import json

import pytest
import yaml

from tests.rfc.vectors import vector
from warren.base.objects import Kind, Object, key_of
from warren.daemons.clusterobjects import manifests
from warren.daemons.profileadmission import ProfileAdmission
from warren.daemons.workflowadmission import WorkflowAdmission
from warren.directives.rules import Rule, check_directives, rules_of
from warren.dws import kinds
from warren.kube.admission import Denied, Operation, Review


def admission() -> WorkflowAdmission:
    made = WorkflowAdmission()
    rules = [obj for obj in manifests("rules.yaml") if obj["kind"] == "DWDirectiveRule"]
    made.read_rules_from(lambda kind: rules)
    return made


def created(kind: Kind, obj: Object) -> Object:
    """Return what admission makes of a new object."""
    review = Review(operation=Operation.CREATE, kind=kind, key=key_of(obj), new=obj)
    made = asyncio.run(admission().admit(review))
    assert made is not None
    return made


def workflow(*directives: str, state: str = "Proposal") -> Object:
    return {
        "metadata": {"name": "w", "namespace": "default"},
        "spec": {"desiredState": state, "dwDirectives": list(directives)},
    }


def test_a_new_workflow_gets_its_drivers_work_and_its_first_variables() -> None:
    made = created(kinds.WORKFLOW, workflow("#DW jobdw type=xfs capacity=1GiB name=scratch"))

    states = [driver["watchState"] for driver in made["status"]["drivers"]]
    assert states == ["Proposal", "Setup", "PreRun", "PostRun", "Teardown"]
    assert {driver["driverID"] for driver in made["status"]["drivers"]} == {"nnf"}
    assert made["status"]["env"]["DW_WORKFLOW_NAME"] == "w"


def test_a_wrong_directive_is_denied_with_its_reason() -> None:
    with pytest.raises(Denied, match="Unknown command 'nosuch'"):
        created(kinds.WORKFLOW, workflow("#DW nosuch name=foo"))


def test_all_mistakes_are_told_in_a_line_each_with_the_directive() -> None:
    with pytest.raises(Denied) as denied:
        created(kinds.WORKFLOW, workflow("#DW jobdw type=zfs name=ab capacity=1", "#DW x"))

    assert [line.rpartition("(")[2] for line in str(denied.value).splitlines()] == [
        "DW Directive 0: '#DW jobdw type=zfs name=ab capacity=1')",
        "DW Directive 0: '#DW jobdw type=zfs name=ab capacity=1')",
        "DW Directive 1: '#DW x')",
    ]


def test_more_mistakes_than_an_answer_should_have_are_counted() -> None:
    with pytest.raises(Denied) as denied:
        created(kinds.WORKFLOW, workflow(*[f"#DW x a={'b' * 500}"] * 30))

    assert str(denied.value).splitlines()[20:] == ["And 10 more."]
    assert len(str(denied.value)) < 20 * 500


def refusals() -> list[tuple[str, list[str]]]:
    """Return the directives that the real webhook has refused, by case."""
    found = []
    for path in sorted(vector("nnf-objects").glob("12-*/00-refused.json")):
        (refused,) = json.loads(path.read_text()).values()
        if refused["answer"]["kind"] == "Status" and "Spec." not in refused["answer"]["message"]:
            found.append((path.parent.name, refused["directives"]))
    return found


def test_what_the_real_webhook_refuses_is_denied_with_its_place() -> None:
    cases = refusals()
    assert len(cases) >= 14
    for name, directives in cases:
        if name == "12-unknown-type":
            continue  # it is ext4, which rabbits make here
        with pytest.raises(Denied, match=r"\(DW Directive \d: ") as denied:
            created(kinds.WORKFLOW, workflow(*directives))
        assert len(str(denied.value).splitlines()) == 1, name


def test_the_rules_that_are_shipped_say_what_those_of_nnf_say_and_ext4() -> None:
    theirs = rules_of([yaml.safe_load(vector("dws/nnf-ruleset.yaml").read_text())])
    ours = shipped()
    values = ["", "a", "ab", "Ab", "a_b", "a-1", "xfs", "raw", "gfs2", "lustre", "zfs", "1", "1GiB",
              "1.5TiB", "1tb", "20TB", "3PiB", "copy-offload", "copy-offload,user-container-auth",
              "/lus/a", "$DW_JOB_ab/"]  # fmt: skip
    keys = ["type", "capacity", "name", "profile", "requires", "source", "destination",
            "DW_JOB_ab", "DW_PERSISTENT_a", "DW_GLOBAL_x1", "DW_X_ab", "typ"]  # fmt: skip
    for rule in theirs:
        good = GOOD[rule.command]
        for key in keys:
            bare = " ".join(word for word in good.split() if word.partition("=")[0] != key)
            for text in (bare, f"{bare} {key}", *(f"{bare} {key}={value}" for value in values)):
                twice = [text, text]
                assert bool(check_directives(twice, ours).findings) is bool(
                    check_directives(twice, theirs).findings
                ), twice
                assert bool(check_directives([text], ours).findings) is bool(
                    check_directives([text], theirs).findings
                ), text
        assert not check_directives([good], ours).findings
    assert [(rule.command, rule.states) for rule in ours] == [
        (rule.command, rule.states) for rule in theirs
    ]
    ext4 = GOOD["jobdw"].replace("xfs", "ext4")
    assert check_directives([ext4], theirs).findings
    assert not check_directives([ext4], ours).findings


GOOD = {
    "jobdw": "#DW jobdw type=xfs capacity=1GiB name=ab",
    "create_persistent": "#DW create_persistent type=xfs capacity=1GiB name=ab",
    "destroy_persistent": "#DW destroy_persistent name=ab",
    "persistentdw": "#DW persistentdw name=ab",
    "copy_in": "#DW copy_in source=/lus/a destination=$DW_JOB_ab/",
    "copy_out": "#DW copy_out source=$DW_JOB_ab/ destination=/lus/a",
    "container": "#DW container name=ab profile=cd",
}


def shipped() -> list[Rule]:
    return rules_of(obj for obj in manifests("rules.yaml") if obj["kind"] == "DWDirectiveRule")


def test_a_directive_without_a_command_is_denied_and_breaks_nothing() -> None:
    with pytest.raises(Denied, match="A command is missing"):
        created(kinds.WORKFLOW, workflow("#DW"))


def test_a_workflow_starts_in_proposal() -> None:
    with pytest.raises(Denied, match="starts in Proposal"):
        created(kinds.WORKFLOW, workflow(state="Setup"))


def test_other_kinds_are_none_of_its_business() -> None:
    obj: Object = {"metadata": {"name": "x"}, "spec": {}}

    assert created(kinds.SERVERS, obj) is obj


# Profiles (dws-spec section 10)


def profile(pinned: bool, **data: object) -> Object:
    metadata = {"name": "p", "namespace": "default" if pinned else kinds.PROFILES_NAMESPACE}
    return {"metadata": metadata, "data": {"pinned": pinned, **data}}


def test_a_container_may_name_its_storage_with_dashes() -> None:
    """Statement 001.36: the container RFC's example."""
    fast = "#DW jobdw type=gfs2 capacity=1TB name=my-gfs2"
    foo = "#DW container name=my-foo profile=foo DW_JOB_foo-local-storage=my-gfs2"
    made = created(kinds.WORKFLOW, workflow(fast, foo))
    states = [each["watchState"] for each in made["status"]["drivers"] if each["dwdIndex"] == 1]
    assert states == ["Proposal", "Setup", "PreRun", "PostRun", "Teardown"]


def reviewed(operation: Operation, new: Object | None, old: Object | None = None) -> Object | None:
    shown = new or old
    assert shown is not None
    review = Review(
        operation=operation, kind=kinds.NNF_STORAGE_PROFILE, key=key_of(shown), new=new, old=old
    )
    return asyncio.run(ProfileAdmission().admit(review))


def test_a_profile_is_denied_with_all_its_mistakes() -> None:
    both = {"count": 1, "scale": 1}
    with pytest.raises(Denied) as denied:
        reviewed(Operation.CREATE, profile(True, default=True, lustreStorage={"ostOptions": both}))
    assert denied.value.webhook == "vnnfstorageprofile.kb.io"
    assert str(denied.value) == (
        "data.default: a pinned profile cannot be the default; "
        "data.lustreStorage.ostOptions.scale: cannot be beside "
        "data.lustreStorage.ostOptions.count: leave one out"
    )


def test_a_profile_that_is_good_is_stored_as_it_is_and_any_may_be_deleted() -> None:
    good, bad = profile(False), profile(True, default=True)
    assert reviewed(Operation.CREATE, good) is good
    assert reviewed(Operation.DELETE, None, bad) is None
    with pytest.raises(Denied, match=r"data\.pinned: cannot be changed"):
        reviewed(Operation.UPDATE, profile(True), good)


def warned(new: Object) -> list[str]:
    told: list[str] = []
    review = Review(
        operation=Operation.CREATE,
        kind=kinds.NNF_STORAGE_PROFILE,
        key=key_of(new),
        new=new,
        warn=told.append,
    )
    assert asyncio.run(ProfileAdmission().admit(review)) is new
    return told


def test_a_profile_with_lines_that_have_no_effect_is_admitted_with_a_warning() -> None:
    lines = {"blockDeviceCommands": {"rabbitCommands": {"vgCreate": "$VG_NAME $DEVICE_LIST"}}}
    assert warned(profile(False, xfsStorage=lines)) == [
        "data.xfsStorage.blockDeviceCommands.rabbitCommands: vgCreate has no effect: the volume "
        "group is the site's"
    ]
    assert warned(profile(False)) == []


def test_of_a_pinned_copy_nothing_is_warned_once_more() -> None:
    lines = {"blockDeviceCommands": {"rabbitCommands": {"vgCreate": "$VG_NAME $DEVICE_LIST"}}}
    assert warned(profile(True, xfsStorage=lines)) == []


def test_what_is_no_profile_is_none_of_its_rules_business() -> None:
    new = workflow()
    review = Review(operation=Operation.CREATE, kind=kinds.WORKFLOW, key=key_of(new), new=new)
    assert asyncio.run(ProfileAdmission().admit(review)) is new


def test_profiles_of_containers_have_rules_of_their_own() -> None:
    kind = kinds.CONTAINER_PROFILE
    new = {"metadata": {"name": "p", "namespace": "nnf-system"}, "data": {"numPorts": -1}}
    review = Review(operation=Operation.CREATE, kind=kind, key=key_of(new), new=new)
    with pytest.raises(Denied) as denied:
        asyncio.run(ProfileAdmission().admit(review))
    assert denied.value.webhook == "vnnfcontainerprofile.kb.io"
    assert str(denied.value) == (
        "data.numPorts: cannot be negative: -1; "
        "data: one of spec and mpiSpec has to be there, and not both"
    )


def test_profiles_of_copies_have_rules_of_their_own() -> None:
    kind = kinds.COPY_PROFILE
    new = {"metadata": {"name": "p", "namespace": "nnf-system"}, "data": {"command": "a | b"}}
    review = Review(operation=Operation.CREATE, kind=kind, key=key_of(new), new=new)
    with pytest.raises(Denied) as denied:
        asyncio.run(ProfileAdmission().admit(review))
    assert denied.value.webhook == "vnnfdatamovementprofile.kb.io"
    assert str(denied.value).startswith("data.command: '|' is a shell's")


def test_the_webhooks_of_profiles_are_installed_under_the_names_of_their_refusals() -> None:
    found = {
        hook["name"]: hook["rules"][0]["resources"]
        for obj in manifests("webhooks")
        for hook in obj["webhooks"]
    }
    assert found["vnnfstorageprofile.kb.io"] == [kinds.NNF_STORAGE_PROFILE.plural]
    assert found["vnnfcontainerprofile.kb.io"] == [kinds.CONTAINER_PROFILE.plural]
    assert found["vnnfdatamovementprofile.kb.io"] == [kinds.COPY_PROFILE.plural]
