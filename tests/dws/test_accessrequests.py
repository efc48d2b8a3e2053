"""NnfAccesses are made for directives."""

from tests.dws.builders import workflow
from warren.dws import labels
from warren.dws.access.accessobjects import new


def test_the_access_of_computes_and_of_rabbits_differ_as_nnf_has_it() -> None:
    wf = workflow("#DW jobdw type=xfs capacity=1GiB name=ab")
    on_computes = new(wf, 0, "computes", "/mnt/nnf/uid-wf-0")
    on_rabbits = new(wf, 0, "servers", "/mnt/nnf/uid-wf-0", mounted_for=(1, "copy_in"))

    assert on_computes["metadata"]["name"] == "wf-0-computes"
    assert on_rabbits["metadata"]["name"] == "wf-0-servers"
    assert on_computes["metadata"]["finalizers"] == [labels.ACCESS_FINALIZER]
    assert {
        key: on_computes["spec"].get(key)
        for key in ("target", "teardownState", "mountPathPrefix", "clientReference")
    } == {
        "target": "single",
        "teardownState": "PostRun",
        "mountPathPrefix": None,
        "clientReference": {"kind": "Computes", "name": "wf", "namespace": "default"},
    }
    assert (on_rabbits["spec"]["target"], on_rabbits["spec"]["teardownState"]) == ("all", "PreRun")
    assert "clientReference" not in on_rabbits["spec"]
    last = new(wf, 0, "servers", "/mnt/nnf/uid-wf-0", mounted_for=(2, "copy_out"))
    assert last["spec"]["teardownState"] == "Teardown"
    lasting = new(
        wf, 0, "servers", "/mnt/nnf/uid-wf-0", mounted_for=(1, "copy_in"), instance_name="pers"
    )
    assert lasting["spec"]["storageReference"]["name"] == "pers"
    assert lasting["spec"]["clientReference"] == on_computes["spec"]["clientReference"]
    assert lasting["spec"]["mountPathPrefix"] == on_rabbits["spec"]["mountPathPrefix"]
    carried = [each["metadata"]["labels"] for each in (on_computes, on_rabbits, last)]
    assert [each[labels.DIRECTIVE_INDEX] for each in carried] == ["0", "1", "2"]
    told = [each.get(labels.TEARDOWN_STATE) for each in carried]
    assert told == [None, "PreRun", "Teardown"]
    assert {each[labels.PINNED_PROFILE_NAME] for each in carried} == {"wf-0"}
