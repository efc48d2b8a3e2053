"""What a job's owner is told of its storage."""

from typing import Any

import orjson

from tests.dws.builders import JOBDW, computes, workflow
from tests.dws.test_conduct import copied
from warren.dws import labels
from warren.dws.jobs.summary import summary
from warren.dws.objects.assignments import Servers
from warren.dws.objects.decoding import read

SERVERS = read(
    {
        "metadata": {"name": "wf-0", "namespace": "default"},
        "spec": {
            "allocationSets": [
                {
                    "label": "xfs",
                    "allocationSize": 5,
                    "storage": [
                        {"name": "r1", "allocationCount": 2},
                        {"name": "r0", "allocationCount": 1},
                    ],
                }
            ]
        },
    },
    Servers,
)


def told(*movements: Any, **metadata: Any) -> dict[str, Any]:
    wf = workflow(JOBDW, state="DataOut", ready=False, metadata=metadata)
    found = summary(wf, [SERVERS, SERVERS], computes("n0", "n1"), {"n1"}, movements)
    plain: dict[str, Any] = orjson.loads(orjson.dumps(found))
    return plain


def test_it_says_where_storage_is_how_large_and_who_has_it_mounted() -> None:
    found = told()

    assert found["rabbits"] == {"r0": 10, "r1": 20}
    assert found["bytes"] == 30
    assert (found["nodes"], found["mounted"], found["lost"]) == ("n[0-1]", "n1", "")
    assert (found["desired"], found["state"], found["ready"]) == ("DataOut", "DataOut", False)
    assert found["directives"] == [JOBDW]


def test_it_names_the_nodes_that_the_job_has_lost() -> None:
    assert told(annotations={labels.LOST_NODES: "n[0-1]"})["lost"] == "n[0-1]"


def test_copies_that_failed_are_named_first_and_those_that_are_done_last() -> None:
    done, failed, runs = (
        copied("a", "Success"),
        copied("b", "Failed"),
        copied("c", "", "Running"),
    )
    runs["status"]["commandStatus"] = {
        "progress": 40, "data": "4 MiB", "files": 7, "lastMessage": "about 3s left",
    }  # fmt: skip
    failed["status"]["error"] = {"debugMessage": "d", "userMessage": "no space"}
    found = told(done, runs, failed)

    assert [each["status"] for each in found["copies"]] == ["Failed", "Running", "Success"]
    assert [each["progress"] for each in found["copies"]] == [0, 40, 100]
    assert [each["message"] for each in found["copies"]] == ["no space", "about 3s left", ""]
    assert [each["files"] for each in found["copies"]] == [None, 7, None]
    assert found["copies"][1]["data"] == "4 MiB"
    assert found["copied"] == {"Failed": 1, "Running": 1, "Success": 1}


def test_of_many_copies_it_names_a_hundred() -> None:
    found = told(*(copied(str(number), "Success") for number in range(300)))

    assert len(found["copies"]) == 100
    assert found["copied"] == {"Success": 300}
