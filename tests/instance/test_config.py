"""The configuration of the instance."""

from pathlib import Path

import pytest

from warren.base.errors import UserMistake
from warren.instance import config
from warren.instance.config import Config


def test_an_empty_file_is_a_configuration_with_every_default() -> None:
    assert config.parse("") == Config()


def test_no_file_is_as_good_as_an_empty_one(tmp_path: Path) -> None:
    assert config.load(tmp_path / "config.toml") == Config()


def test_tables_are_spelled_as_flux_spells_them() -> None:
    found = config.parse(
        """
        [access]
        allow-guest-user = true
        [policy.jobspec.defaults.system]
        queue = "batch"
        [queues.batch]
        requires = ["batch"]
        policy.limits.job-size.max.nnodes = 4
        [queues.debug]
        parent = "batch"
        policy.limits.duration = "30m"
        [job-manager.prolog]
        command = ["/bin/true"]
        per-rank = true
        """
    )

    assert found.access.allow_guest_user
    assert found.queues["batch"].policy.limits.job_size.max.nnodes == 4
    assert found.queues["debug"].policy.limits.duration == "30m"
    assert found.job_manager.prolog.per_rank


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x =", "site.toml is not TOML: "),
        ("[queue.batch]", "site.toml: Object contains unknown field `queue`."),
        ("[job-manager]\nepilogue = 1", "job-manager: Object contains unknown field `epilogue`."),
        ("[exec]\nmax-kill-count = 0", "exec.max-kill-count: Expected `int` >= 1."),
        (
            "[queues.a]\nhosts = 'n1'\nrequires = ['a']",
            "queues.a has both hosts and requires: leave one of them out.",
        ),
        ("[queues.a]\nparent = 'b'", "queues.a.parent names 'b', which is no queue."),
        (
            "[queues.a]\n[queues.b]\nparent = 'a'\n[queues.c]\nparent = 'b'",
            "queues.c.parent names 'b', which has a parent itself.",
        ),
        (
            "[queues.a]\n[policy.jobspec.defaults.system]\nqueue = 'b'",
            "policy.jobspec.defaults.system.queue names 'b', which is no queue: name one of a.",
        ),
        ("[queues.'a b']", "queues.a b: a queue's name has no blanks"),
    ],
)
def test_what_cannot_be_is_refused_with_its_path(text: str, words: str) -> None:
    with pytest.raises(UserMistake) as refused:
        config.parse(text, "site.toml")

    assert words in str(refused.value)


def test_a_bad_file_is_not_kept(tmp_path: Path) -> None:
    kept, given = tmp_path / "config.toml", tmp_path / "given.toml"
    kept.write_text("[exec]\nkill-timeout = '1s'\n")
    given.write_text("[exec]\nkill = 1\n")

    with pytest.raises(UserMistake):
        config.keep(given, kept)

    assert config.load(kept).exec.kill_timeout == "1s"
