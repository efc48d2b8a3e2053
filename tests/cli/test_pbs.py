"""`warren pbs` where there is no PBS, and with one that a script plays."""

import json
import os
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.wlm.pbs.atoms import answers, behaving
from warren.base.errors import UserMistake
from warren.cli.pbs import pbs
from warren.wlm.pbs import checks, hookfile


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose PBS is whatever a test puts into the directory."""
    conf = tmp_path / "pbs.conf"
    conf.write_text(f"PBS_EXEC={tmp_path}\nPBS_HOME={tmp_path / 'home'}\nPBS_SERVER=nobody\n")
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PBS_CONF_FILE", str(conf))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return tmp_path


def invoked(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(pbs, list(words))
    if isinstance(result.exception, UserMistake):
        return 1, str(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def script(place: Path, name: str, words: str) -> None:
    path = place / "bin" / name
    path.write_text(f"#!/bin/sh\n{words}\n")
    path.chmod(0o755)


def test_what_pbs_says_is_passed_on_in_a_sentence(nowhere: Path) -> None:
    script(
        nowhere,
        "qmgr",
        'echo "qmgr obj=cray_atom svr=default: Unauthorized Request" >&2\n'
        'echo "qmgr: hook error returned from server" >&2\nexit 32',
    )
    assert invoked("install") == (1, "Unauthorized Request")
    assert invoked("status") == (1, "NO  server: Unauthorized Request\n")


def test_a_refusal_that_pbs_exits_well_with_is_one(nowhere: Path) -> None:
    script(nowhere, "qmgr", 'echo "me is unauthorized to access hooks data from server x"')
    code, said = invoked("uninstall")
    assert (code, "PBS lets only root" in said) == (1, True)


def test_bad_input_is_refused_before_pbs_is_asked(nowhere: Path) -> None:
    script(nowhere, "qmgr", f"touch {nowhere}/asked")
    config = nowhere / "config.json"
    for content, words in ((b'{"post_timeout": -1}', "post_timeout: -1"), (b"\xff", "decode")):
        config.write_bytes(content)
        code, said = invoked("install", "--config", str(config))
        assert (code, words in said) == (1, True), said
    assert invoked("install", "--name", "PBS_mine")[0] == 1
    assert invoked("install", "--config", str(nowhere / "none"))[0] == 2
    assert not (nowhere / "asked").exists()


def test_the_hook_is_tried_with_the_configuration_of_this_nodes_mom(nowhere: Path) -> None:
    hooks = nowhere / "home/mom_priv/hooks"
    hooks.mkdir(parents=True)
    place = nowhere / "atom.sock"
    (hooks / "cray_atom.PY").write_bytes(hookfile.source())
    (hooks / "cray_atom.CF").write_text(json.dumps({"unix_socket_file": str(place)}))
    script(nowhere, "qmgr", 'echo "me is unauthorized to access hooks data from server x"')
    with behaving(place, [answers(200), answers(204)]) as atom:
        code, said = invoked("test", "--place", "excl", "--user", "root")
        assert (code, said.count("  accepted\n")) == (0, 2), said
        assert atom.asked[0].body == {
            "jobid": f"0.warren-test-{socket.gethostname()}",
            "uid": 0,
            "exclusive": True,
        }
        code, said = invoked("status")
        assert code == 0
        assert f"ok  ATOM: {place} is listened at" in said
    code, said = invoked("test", "--user", "root", "--json")
    (happened,) = [json.loads(line) for line in said.splitlines()]
    assert (code, happened["happenings"][-1]["outcome"]) == (1, "error")
    assert "no process listens there. Start ATOM" in invoked("status")[1]
    code, said = invoked("test", "--user", "nobody-here")
    assert (code, "rejected; the vnodes would stay online" in said) == (1, True)


def test_what_cannot_be_told_is_not_called_well(nowhere: Path) -> None:
    script(nowhere, "qmgr", 'echo "me is unauthorized to access hooks data from server x"')
    code, said = invoked("status", "--json")
    assert code == 1
    assert [check["met"] for check in json.loads(said)] == [None]


def test_who_may_not_look_is_told_who_may(nowhere: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may look everywhere")
    hooks = nowhere / "home/mom_priv"
    hooks.mkdir(parents=True)
    hooks.chmod(0)
    assert invoked("test") == (1, f"{hooks / 'hooks'} cannot be read: root can.")
    hooks.chmod(0o700)


def test_who_may_not_read_the_hook_is_told_who_may(nowhere: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    hooks = nowhere / "home/mom_priv/hooks"
    hooks.mkdir(parents=True)
    (hooks / "cray_atom.PY").touch(mode=0)
    code, said = invoked("status")
    assert code == 1
    assert f"{hooks.parent} cannot be read: root can" in said


def test_another_hook_of_the_name_is_not_run(nowhere: Path) -> None:
    hooks = nowhere / "home/mom_priv/hooks"
    hooks.mkdir(parents=True)
    (hooks / "other.PY").write_text(f"open({str(nowhere / 'run')!r}, 'w')\n")
    code, said = invoked("test", "--name", "other", "--user", "root")
    assert (code, "is another one" in said) == (1, True)
    assert not (nowhere / "run").exists()


@pytest.mark.parametrize(
    ("comment", "met", "told"),
    [
        (5, True, "none is offline"),
        ("mended", True, "none is offline"),
        ("offlined by hook 'cray_atom' due to x", False, "offline because of the hook: a."),
        ("offlined by hook 'other' due to x", True, "none is offline"),
    ],
)
def test_vnodes_are_judged_by_their_comments(
    nowhere: Path, comment: object, met: bool, told: str
) -> None:
    (nowhere / "nodes").write_text(json.dumps({"nodes": {"a": {"comment": comment}, "b": {}}}))
    script(nowhere, "pbsnodes", f"cat {nowhere / 'nodes'}")
    (check,) = checks._check_vnodes("cray_atom")
    assert (check.met, told in check.message) == (met, True), check


@pytest.mark.parametrize("words", ["exit 1", "echo []", "echo {}"])
def test_vnodes_that_are_not_told_are_not_called_well(nowhere: Path, words: str) -> None:
    script(nowhere, "pbsnodes", words)
    (check,) = checks._check_vnodes("cray_atom")
    assert (check.met, "does not tell" in check.message) == (None, True)


def test_what_cannot_be_read_or_run_is_said_in_a_sentence(nowhere: Path) -> None:
    (nowhere / "bin" / "qmgr").write_bytes(b"\0\0")
    (nowhere / "bin" / "qmgr").chmod(0o755)
    code, said = invoked("install")
    assert (code, "qmgr cannot be run: Exec format error" in said) == (1, True)
    assert "Is a directory" in invoked("install", "--config", str(nowhere))[1]
    (nowhere / "pbs.conf").write_bytes(b"PBS_EXEC=\xff\n")
    assert invoked("uninstall")[0] == 1
