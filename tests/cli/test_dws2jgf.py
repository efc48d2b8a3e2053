"""`warren dws2jgf`, outside of a broker: one in `tests/flux`."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.dws.test_rabbitmapping import FILE
from warren.base.errors import UserMistake
from warren.cli.main import cli
from warren.rfc import jgf, resource_set
from warren.rfc.resource_set import NodeResources

NOTE = "Unable to fetch `resource.exclude` from config\n"
R = resource_set.encode_nodes([NodeResources(rank, f"n{rank}", (0,)) for rank in (1, 2, 10)])
TABLES = """
[resource]
exclude = "n2"
[[resource.config]]
hosts = "n[1-2,10]"
cores = "0"
"""


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be in a directory with a mapping, and near no cluster."""
    (tmp_path / "map").write_bytes(FILE)
    (tmp_path / "site.toml").write_text(TABLES)
    (tmp_path / "deep.toml").write_text(f"x = {'[' * 5000}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLUX_URI", raising=False)
    monkeypatch.setenv("WARREN_STATEDIR", str(tmp_path))


def dws2jgf(*words: str, r: object = R) -> Result:
    given = r if isinstance(r, str) else json.dumps(r)
    return CliRunner().invoke(cli, ["dws2jgf", *words], input=given, catch_exceptions=False)


def nodes(scheduling: Any) -> list[str]:
    return [each.path for each in jgf.decode(scheduling) if each.type == "node"]


def test_r_is_printed_with_the_graph() -> None:
    """Statement 000.49: R is read from standard input."""
    done = dws2jgf("--cluster-name=c", "--chunks=2", "map", r={**R, "scheduling": {"old": 1}})
    made = json.loads(done.stdout)

    assert (done.exit_code, done.stderr) == (0, NOTE)
    assert resource_set.without_scheduling(made) == R
    assert nodes(made["scheduling"]) == ["/c/chassis0/n1", "/c/chassis0/n2", "/c/chassis1/n10"]
    alone = dws2jgf("--cluster-name=c", "--chunks=2", "--only-sched", "map")
    assert json.loads(alone.stdout) == made["scheduling"]


def test_r_and_what_it_excludes_are_taken_from_a_configuration() -> None:
    done = dws2jgf("--cluster-name=c", "--from-config", "site.toml", "map")
    made = json.loads(done.stdout)

    assert (done.exit_code, done.stderr) == (0, "")
    assert resource_set.nodelist(made) == ["n1", "n2", "n10"]
    assert nodes(made["scheduling"]) == ["/c/chassis0/n1", "/c/chassis1/n10"]


def test_the_mapping_may_be_that_of_the_configuration() -> None:
    Path("with.toml").write_text(f'[rabbit]\nmapping = "{Path.cwd()}/map"\n{TABLES}')

    assert dws2jgf("--from-config", "with.toml", "--only-sched").exit_code == 0


def test_the_cluster_is_named_after_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "elcap-12")
    assert nodes(json.loads(dws2jgf("--only-sched", "map").stdout))[0] == "/elcap/chassis0/n1"

    monkeypatch.setattr("socket.gethostname", lambda: "12")
    with pytest.raises(UserMistake, match=r"^'' names no cluster: give one with --cluster-name"):
        dws2jgf("map")


@pytest.mark.parametrize(
    ("words", "r", "refusal"),
    [
        (
            ["map"],
            resource_set.encode_nodes([NodeResources(0, "n1", (0,))]),
            r"n\[2,10\]: in map and not in R: ",
        ),
        (["map"], "no", "Standard input is not an R: "),
        (["map"], [], "R is not an object"),
        (["map"], {"version": 1}, "R: execution is missing"),
        (["site.toml"], R, "site.toml is no rabbit mapping: "),
        (["none"], R, "none cannot be read: No such file"),
        ([], R, "rabbit.mapping is not configured: "),
        (["--from-config", "none", "map"], "", "none cannot be read: "),
        (["--from-config", "map", "map"], "", "map is not TOML: "),
        (["--from-config", "deep.toml", "map"], "", "deep.toml is not TOML: "),
        (["--cluster-name=a/b", "map"], R, "'a/b' names no cluster"),
    ],
)
def test_what_cannot_be_made_a_graph_is_refused(words: list[str], r: object, refusal: str) -> None:
    with pytest.raises(UserMistake, match=f"^{refusal}"):
        dws2jgf(*words, r=r)


def test_mapped_nodes_that_are_not_in_r_may_be_left_out() -> None:
    r = resource_set.encode_nodes([NodeResources(0, "n1", (0,))])
    done = dws2jgf("--no-validate", "--only-sched", "--cluster-name=c", "map", r=r)

    assert nodes(json.loads(done.stdout)) == ["/c/chassis0/n1"]
