"""`warren getrabbit`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli import living
from tests.cli.living import Cluster
from tests.dws.test_rabbitmapping import FILE
from warren.instance.config import Config
from warren.instance.rabbittable import RabbitTable
from warren.rfc import fluid


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    path = tmp_path / "mapping.json"
    path.write_bytes(FILE)
    mapping = getattr(request, "param", str(path))
    with living.cluster(tmp_path, config=Config(rabbit=RabbitTable(mapping=mapping))) as found:
        yield found


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        ([], "r[1-2]"),
        (["r1"], "n[1-2]"),
        (["r[1-2]"], "n[1-2,10]"),
        (["-c", "n1"], "r1"),
        (["-c", "n1", "-c", "n[2,10]"], "r[1-2]"),
        (["--json", "-c", "n10"], '["r2"]'),
    ],
)
def test_rabbits_and_their_nodes_are_looked_up(
    cluster: Cluster, arguments: list[str], printed: str
) -> None:
    """Statement 000.48: rabbit.mapping names the file."""
    done = cluster("getrabbit", *arguments)

    assert (done.code, done.refusal) == (0, "")
    assert json.loads(done.out) == ["r2"] if "--json" in arguments else done.out == f"{printed}\n"


def test_the_rabbits_of_jobs_are_those_that_its_memo_names(cluster: Cluster) -> None:
    with_rabbits, without = cluster.submit(1), cluster.submit(2)
    memo = {"id": fluid.parse(with_rabbits), "memo": {"rabbits": "r[2-3]"}}
    cluster.do(cluster.life.bus.handle().rpc("job-manager.memo", memo))

    assert cluster("getrabbit", "-j", with_rabbits, "-c", "n1").out == "r[1-3]\n"
    refused = cluster("getrabbit", "-j", without)
    assert refused.refusal.startswith(f"No rabbits found for job {without}")
    noted = {"id": fluid.parse(without), "memo": {"rabbits": {"r": 2}}}
    cluster.do(cluster.life.bus.handle().rpc("job-manager.memo", noted))
    assert cluster("getrabbit", "-j", without).refusal == refused.refusal
    assert cluster("getrabbit", "-j", "f123").refusal.startswith("Could not find job f123")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["r1", "-c", "n1"], "Both rabbits and computes or jobids cannot be looked up"),
        (["r9"], "Could not find rabbit r9"),
        (["-c", "n9"], "Could not find compute n9"),
        (["r["], "r["),
    ],
)
def test_what_cannot_be_looked_up_is_refused(
    cluster: Cluster, arguments: list[str], words: str
) -> None:
    done = cluster("getrabbit", *arguments)

    assert (done.code, done.out) == (1, "")
    assert words in done.refusal


@pytest.mark.parametrize(
    ("cluster", "words"),
    [(None, "rabbit.mapping is not configured"), ("/nowhere/it", "/nowhere/it cannot be read")],
    indirect=["cluster"],
)
def test_without_a_mapping_it_says_what_to_configure(cluster: Cluster, words: str) -> None:
    assert cluster("getrabbit").refusal.startswith(words)
