"""Jobs that share rabbits: those that fit run side by side, and one that does not waits."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.extent import extent
from tests.journeys.conftest import Cluster, running, wait_for

ROUNDS = extent("WARREN_SHARING_ROUNDS", usual=1, everything=10)
STAY = 'echo > "$DW_JOB_scratch/here"; while [ ! -e {go} ]; do sleep 0.1; done'
"""What a job does that stays until it is told to go."""


def scratch(capacity: str) -> str:
    return f"#DW jobdw type=xfs capacity={capacity} name=scratch"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of two rabbits of 5 GiB, with five compute nodes each."""
    root = tmp_path_factory.mktemp("small")
    options = ("--rabbit-capacity", "5GiB", "--computes-per-rabbit", "5")
    yield from running(Cluster(root, *options))


def told(cluster: Cluster, job: str) -> str:
    """Return the line of a job in the listing; nothing if it is not active."""
    lines = cluster("jobs").stdout.splitlines()
    return next((line for line in lines if job in line.split()), "")


@pytest.mark.parametrize(
    ("capacity", "nodes", "reason"),
    [
        ("1GiB", 4, "waits for 2 GiB of flash beside each of 4 nodes"),
        ("32MiB", 7, "waits for 4 more of 7 nodes"),
    ],
)
def test_a_job_that_does_not_fit_waits_and_says_for_what_and_runs_when_there_is_room(
    small: Cluster, tmp_path: Path, capacity: str, nodes: int, reason: str
) -> None:
    go = tmp_path / "go"
    script = small.script("stay.sh", STAY.format(go=go), scratch(capacity))
    first = small.submit(f"-N{nodes}", script)
    second = small.submit(f"-N{nodes}", script)
    wait_for(lambda: len(small.written("here")) == nodes)
    wait_for(lambda: reason in told(small, second))

    assert "alloc" not in small.events(second)
    go.touch()
    assert small("job", "attach", second).returncode == 0
    assert small("job", "attach", first).returncode == 0
    small.wait_clean()


def test_ten_jobs_at_once_complete_and_their_flash_is_accounted_for_as_it_is_on_disk(
    small: Cluster, tmp_path: Path
) -> None:
    for number in range(ROUNDS):
        place = tmp_path / str(number)
        place.mkdir()
        ten_jobs(small, place)


def ten_jobs(small: Cluster, directory: Path) -> None:
    """Run ten jobs at once; compare what is told of their flash with what is on disk."""
    go = directory / "go"
    script = small.script(
        "one.sh",
        STAY.format(go=go),
        scratch("64MiB"),
        "#DW copy_out source=$DW_JOB_scratch/here destination=$GLOBAL/results/",
    )
    places = [small.shared / f"{directory.name}-{number}" for number in range(10)]
    for place in places:
        place.mkdir()
    jobs = [small.submit("-N1", script, GLOBAL=str(place)) for place in places]
    wait_for(lambda: len(small.written("here")) == 10)
    rabbits = json.loads(small("rabbits", "--json").stdout)["rabbits"]
    said = {each["name"]: each["allocated"] for each in rabbits}

    assert said == {"rabbit-0": 5 * 364 * 2**20, "rabbit-1": 5 * 364 * 2**20}
    assert said == small.taken()

    go.touch()
    for job in jobs:
        assert small("job", "attach", job).returncode == 0
    small.wait_clean()
    assert all(len(list(place.glob("results/*/here"))) == 1 for place in places)
    assert small.taken() == {"rabbit-0": 0, "rabbit-1": 0}
