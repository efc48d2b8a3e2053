"""What the service may be told, and how mistakes in that are named."""

import os
from pathlib import Path

import pytest

from warren.atom import config
from warren.base.errors import UserMistake


def loaded(tmp_path: Path, text: str) -> config.Config:
    path = tmp_path / "atomd.toml"
    path.write_text(text)
    return config.load(path)


def test_an_empty_file_is_a_configuration(tmp_path: Path) -> None:
    assert loaded(tmp_path, "") == config.Config()
    assert config.Config().allowed_userids == {0, os.geteuid()}
    assert config.Config().socket_gid is None


def test_commands_users_and_limits_are_what_the_file_says(tmp_path: Path) -> None:
    found = loaded(
        tmp_path,
        """
        socket = "/run/atomd/atomd.sock"
        socket-mode = 0o660
        socket-group = "root"
        allow-users = ["daemon"]
        max-jobs = 7
        stop-timeout = "1m"

        [[start]]
        command = ["/bin/sh", "-c", "true"]
        timeout = "2.5s"

        [[end]]
        command = ["/bin/true"]
        """,
    )
    assert (found.socket_mode, found.socket_gid, found.max_jobs) == (0o660, 0, 7)
    assert 1 in found.allowed_userids
    assert [each.timeout_seconds for each in (*found.start, *found.end)] == [2.5, 20.0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("socket = 1", "socket: Expected"),
        ('socket = "run"', "socket: 'run' is not an absolute path"),
        ("socket-mode = 0o1777", "socket-mode: Expected `int` <= 511"),
        ('socket-group = "nobodys"', "socket-group: no group is named 'nobodys'"),
        ('allow-users = ["who"]', "allow-users: no user is named 'who'"),
        ('stop-timeout = "inf"', "stop-timeout: a service that is told to stop needs a limit"),
        ("stop-timeout = inf", "stop-timeout: a service that is told to stop needs a limit"),
        ("max-jobs = 0", "max-jobs: Expected `int` >= 1"),
        ("parallel = 0", "parallel: Expected `int` >= 1"),
        ("more = 1", "there is no key 'more' here: it is one of socket, socket-mode,"),
        ("[[start]]", "start[0]: Object missing required field `command`"),
        ("[[start]]\ncommand = []", "start[0].command: Expected `array` of length >= 1"),
        ('[[end]]\ncommand = ["true"]', "end[0]: command: true is not the absolute path"),
        (
            '[[end]]\ncommand = ["/bin/true", "\\u0000"]',
            "end[0]: command: no program can be given a",
        ),
        ('[[end]]\ncommand = ["/"]', "end[0]: command: / is not the absolute path of a program"),
        (
            '[[end]]\ncommand = ["/no/such"]',
            "end[0]: command: /no/such is not the absolute path of a",
        ),
        ('[[end]]\ncommand = ["/bin/true"]\ntimeout = 0', "end[0]: timeout: every command needs"),
        ('[[end]]\ncommand = ["/bin/true"]\ntimeout = "1y"', "end[0]: timeout: '1y' is not"),
        ("= 1", "is not TOML"),
    ],
)
def test_a_mistake_is_named_with_its_file_its_key_and_the_reason(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(UserMistake) as told:
        loaded(tmp_path, text)
    assert str(told.value).startswith(str(tmp_path / "atomd.toml"))
    assert words in str(told.value)


def test_a_file_that_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match="cannot be read"):
        config.load(tmp_path / "none")
