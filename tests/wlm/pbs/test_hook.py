"""What the hook says to ATOM, when it asks whom, and how long it takes at most."""

import ast
import json
import pwd
import socket as sockets
import subprocess
import sys
import textwrap
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.wlm.pbs import moms
from tests.wlm.pbs.atoms import answers, behaving, says
from tests.wlm.pbs.conftest import Configure
from tests.wlm.pbs.moms import Played, scenario
from warren.base.errors import UserMistake
from warren.wlm.pbs import hookfile, simulatedmom
from warren.wlm.pbs.simulatedmom import LEVELS, SHARING

HOOKS = moms.HOOK.parent


def begin(config: Path | None, **told: Any) -> Played:
    return moms.play(scenario("execjob_begin", config, **told))


def end(config: Path | None, **told: Any) -> Played:
    return moms.play(scenario("execjob_end", config, **told))


def test_the_attributes_are_those_of_the_design() -> None:
    """The attributes to the letter.

    Seed: The PBS_cray_atom hook will use the default hook attribute settings, except for alarm
    Seed: These are the default attributes for the PBS_cray_atom hook:
    Seed: type=pbs enabled=false user=pbsadmin event=execjob_begin,execjob_end order=100 alarm=300
    """
    assert HOOKS.joinpath("PBS_cray_atom.HK").read_text() == textwrap.dedent(
        """\
        type=pbs
        enabled=false
        user=pbsadmin
        event=execjob_begin,execjob_end
        order=100
        alarm=300
        fail_action=offline_vnodes
        """
    )


def test_the_configuration_is_that_of_the_design_and_the_same_without_a_file() -> None:
    """The tunables and their defaults to the letter.

    Seed: Configuration will be formatted as a json object.
    Seed: { "post_timeout": 30, "delete_timeout": 30, "unix_socket_file": "/var/run/atomd/
    Seed: It will be the path to the unix socket file to use for authentication.
    Seed: The value is a string
    Seed: The default path will be
    """
    text = HOOKS.joinpath("PBS_cray_atom.CF").read_text()
    assert json.loads(text) == {
        "post_timeout": 30,
        "delete_timeout": 30,
        "unix_socket_file": "/var/run/atomd/atomd.sock",
    }
    config = hookfile.read_config(text.encode(), "CF")
    assert hookfile.settings_for({}, moms.NODE) == hookfile.settings_for(config, moms.NODE)
    assert hookfile.settings_for({}, moms.NODE)["unix_socket_file"] == moms.SOCKET
    for event in (begin, end):
        assert f"there is no socket {moms.NOWHERE}:" in event(None).message


def test_it_is_one_file_of_an_old_python_and_of_its_standard_library(tmp_path: Path) -> None:
    """No package is mandatory (ADR 025), and PBS's oldest Python will do.

    Seed: it is mandatory that the system have the Python requests module
    """
    source = moms.HOOK.read_text()
    tree = ast.parse(source, feature_version=(3, 6))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported - {"pbs"} <= sys.stdlib_module_names
    assert "__file__" not in source
    assert not any(isinstance(node, ast.Assert) for node in ast.walk(tree))


def test_a_job_is_told_by_its_id_its_user_and_whether_it_is_exclusive(
    socket: Path, configure: Configure
) -> None:
    """What a POST says, and where to.

    Seed: for PBS to notify the Cray services when a job is starting and when a job has ended
    Seed: provide the job ID and the Linux user ID
    Seed: a percent encoded path to the unix domain socket file
    """
    user = pwd.getpwnam("daemon")
    with behaving(socket, [answers(200)]) as atom:
        played = begin(configure(), job="21[1].pbshost", user="daemon", place="excl")
    (asked,) = atom.asked
    assert (asked.method, asked.path) == ("POST", "/rm/v1/jobs")
    assert asked.body == {"jobid": "21[1].pbshost", "uid": user.pw_uid, "exclusive": True}
    assert type(asked.body["uid"]) is int
    assert asked.headers["content-type"] == "application/json"
    assert asked.headers["host"] == "localhost"
    quoted = str(socket).replace("/", "%2F")
    assert f"Sending POST to http+unix://{quoted}/rm/v1/jobs" in played.text


def test_the_end_of_a_job_is_a_delete_of_its_id(socket: Path, configure: Configure) -> None:
    """What a DELETE says.

    Seed: PBS will send a DELETE to the Shasta REST API endpoint /jobs/<jobid>
    """
    with behaving(socket, [answers(204)]) as atom:
        end(configure(), job="21[1].pbshost")
    (asked,) = atom.asked
    assert (asked.method, asked.path) == ("DELETE", "/rm/v1/jobs/21%5B1%5D.pbshost")
    assert asked.body is None
    assert asked.headers["content-length"] == "0"


def test_everything_that_is_answered_is_in_the_log_at_its_default_level(
    socket: Path, configure: Configure
) -> None:
    """A reader of the log has all that ATOM said.

    Seed: The response code and all of the fields of the response will be printed in the mom logs
    """
    body = json.dumps({"message": "x" * 5000, "last": "word"}).encode()
    with behaving(socket, [answers(500, body, "X-One: 1", "X-Two: 2"), answers(404)]):
        played = begin(configure())
    lines = [line for _, line in played.log]
    assert all(line.startswith("PBS_cray_atom:2.pbshost:begin: ") for line in lines)
    for words in ("status code = 500 Said", "field X-One: 1", "field X-Two: 2", '"last": "word"}'):
        assert words in played.text
    # The mom's default mask has these.
    default = 0x1FF | 0x200
    assert all(level & default for level, _ in played.log)


@pytest.mark.parametrize(
    ("sharing", "expected"),
    [
        # pack, excl, scatter:exclhost, pack:shared, free, none
        ("ND_DEFAULT_SHARED", "FTTFFF"),
        ("ND_IGNORE_EXCL", "FFFFFF"),
        ("ND_DEFAULT_EXCL", "TTTFTT"),
        ("ND_FORCE_EXCL", "TTTTTT"),
        ("ND_DEFAULT_EXCLHOST", "TTTFTT"),
        ("ND_FORCE_EXCLHOST", "TTTTTT"),
        (None, "FTTFFF"),
    ],
)
def test_exclusive_is_what_the_scheduler_would_say(
    sharing: str | None, expected: str, socket: Path, configure: Configure
) -> None:
    """From the job's place and the vnode's sharing.

    Seed: it will be set to true or false depending on the combination of the job's placement and
    Seed: The hook will follow the same logic as what is used in the scheduler
    """
    places = ["pack", "excl", "scatter:exclhost", "pack:shared", "free", None]
    value = None if sharing is None else SHARING[sharing]
    with behaving(socket, [answers(200)]) as atom:
        for place in places:
            assert begin(configure(), place=place, sharing=value).outcome == "accept"
    assert "".join("FT"[asked.body["exclusive"]] for asked in atom.asked) == expected


def test_the_server_is_asked_once_and_only_where_it_matters(
    socket: Path, configure: Configure
) -> None:
    """All moms of a job would ask.

    Seed: each MoM will have to query the server for each attribute/resource it will use
    Seed: the hook config file will get sent to the MoMs initially
    """
    with behaving(socket, [answers(400), answers(204), answers(200)]):
        assert begin(configure()).asked == [moms.NODE]
    with behaving(socket, [answers(200)]) as atom:
        assert begin(configure(sharing="force_excl"), place="shared").asked == []
        assert begin(configure(sharing="ignore_excl"), place="excl").asked == []
        assert [asked.body["exclusive"] for asked in atom.asked] == [True, False]
        assert begin(configure(unix_socket_file=None)).asked == []
        assert begin(configure(), user="nobody-here").asked == []
        by_kind = {"vn_type": {"arm": {"post_timeout": 1}}}
        assert begin(configure(**by_kind)).asked == [moms.NODE]
        assert end(configure()).asked == []


def test_a_node_that_the_server_does_not_tell_of_cannot_have_the_job(
    socket: Path, configure: Configure
) -> None:
    with behaving(socket, [answers(200)]) as atom:
        unknown = begin(configure(), knows=False)
        unreached = begin(configure(), answers=False)
    assert (unknown.outcome, unreached.outcome, atom.asked) == ("error", "error", [])
    assert unknown.message == f"the server knows no vnode {moms.NODE}"
    assert unreached.message == f"the server cannot be asked about vnode {moms.NODE}"


def test_an_unknown_user_is_rejected_and_the_node_is_not_to_blame(
    socket: Path, configure: Configure
) -> None:
    with behaving(socket, [answers(200)]) as atom:
        played = begin(configure(), user="nobody-here")
    assert (played.outcome, atom.asked) == ("reject", [])
    assert played.message == "user nobody-here is unknown on this node, which stays online"
    # The configuration is not even looked at: what is wrong with it is another matter.
    assert begin(configure(post_timeout=-1), user="nobody-here").outcome == "reject"


def test_a_socket_that_is_not_there_or_refuses_takes_the_node_offline_and_says_which(
    socket: Path, configure: Configure
) -> None:
    missing = begin(configure())
    assert missing.outcome == "error"
    assert f"there is no socket {socket}: ATOM does not run here" in missing.message
    with sockets.socket(sockets.AF_UNIX) as dead:
        dead.bind(str(socket))
    refused = begin(configure())
    assert refused.outcome == "error"
    assert f"the socket {socket} refuses: Connection refused" in refused.message
    for played in (end(configure()), end(configure(unix_socket_file="/proc/none"))):
        assert played.outcome == "reject"


def test_a_service_whose_queue_is_full_is_waited_for_and_not_for_ever(
    socket: Path, configure: Configure
) -> None:
    with ExitStack() as stack:
        busy = stack.enter_context(sockets.socket(sockets.AF_UNIX))
        busy.bind(str(socket))
        busy.listen(0)
        stack.enter_context(sockets.socket(sockets.AF_UNIX)).connect(str(socket))
        played = begin(configure(post_timeout=0.5, delete_timeout=0.5))
    assert played.outcome == "error"
    assert "POST timed out" in played.message


def test_a_node_without_atom_begins_and_ends_jobs_without(configure: Configure) -> None:
    for event in (begin, end):
        played = event(configure(unix_socket_file=None))
        assert played.outcome == "accept"
        assert f"no ATOM is configured for {moms.NODE}" in played.text


@pytest.mark.parametrize("alarm", [3.0])
@pytest.mark.parametrize("timeout", [0.5, 30, 86400])
def test_it_has_ended_before_the_alarm_whatever_is_configured(
    alarm: float, timeout: float, socket: Path, configure: Configure
) -> None:
    """It does not alarm, and has time to clean up.

    Seed: If the hook alarms while running in the execjob_begin event, the vnodes reported by the
    Seed: If the hook alarms while running in the execjob_end event, the hook will reject.
    """
    config = configure(post_timeout=timeout, delete_timeout=timeout)
    with behaving(socket, [says(b"", then="hang")]) as atom:
        played = begin(config, alarm=alarm)
        assert played.outcome == "error"
        assert "timed out" in played.message
        assert "may be left behind" in played.text
        ended = end(config, alarm=alarm)
        assert ended.outcome == "reject"
    assert atom.methods == ["POST", "DELETE", "DELETE"]


def test_with_the_defaults_there_is_time_for_all_that_may_be_needed() -> None:
    """All requests that a begin may take.

    Seed: by default will be set to 300 seconds
    Seed: we have introduced new timeout hook configuration tunables
    Seed: The value is a float in seconds.
    Seed: The default timeout value will be 30.
    """
    settings = json.loads(HOOKS.joinpath("PBS_cray_atom.CF").read_text())
    post, delete = settings["post_timeout"], settings["delete_timeout"]
    assert post + delete + post + delete < 300 * 0.9


def test_a_node_has_its_own_tunables_before_those_of_its_type_before_those_of_all(
    tmp_path: Path, configure: Configure
) -> None:
    """The design's future is here.

    Seed: if it is necessary to have specific hook configurations per node
    """
    names = ("all", "arm", "cmp17")
    paths = {name: tmp_path / name for name in names}
    told = {name: {"unix_socket_file": str(path)} for name, path in paths.items()}
    layers: list[tuple[dict[str, Any], str, str | None, str]] = [
        ({}, "cmp17.site", None, "all"),
        ({"vn_type": {"arm": told["arm"]}}, "cmp17.site", "arm", "arm"),
        ({"vn_type": {"arm": told["arm"]}}, "cmp17.site", "x86,arm", "arm"),
        ({"vn_type": {"arm": told["arm"]}}, "cmp17.site", "x86", "all"),
        ({"vn_type": {"arm": told["arm"]}}, "cmp17.site", None, "all"),
        ({"nodes": {"cmp17": told["cmp17"]}}, "cmp17.site", None, "cmp17"),
        ({"nodes": {"cmp17.site": told["cmp17"]}}, "cmp17.site", None, "cmp17"),
        ({"nodes": {"cmp18": told["cmp17"]}}, "cmp17.site", None, "all"),
        (
            {"vn_type": {"arm": told["arm"]}, "nodes": {"cmp17": told["cmp17"]}},
            "cmp17",
            "arm",
            "cmp17",
        ),
        (
            {"vn_type": {"arm": told["arm"]}, "nodes": {"cmp17": {"post_timeout": 59}}},
            "cmp17",
            "arm",
            "arm",
        ),
    ]
    for overrides, node, kind, expected in layers:
        config = configure(**told["all"], **overrides)
        with ExitStack() as stack:
            atoms = {
                name: stack.enter_context(behaving(path, [answers(200)]))
                for name, path in paths.items()
            }
            assert begin(config, node=node, vntype=kind).outcome == "accept"
        assert [name for name, atom in atoms.items() if atom.asked] == [expected], overrides


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Expecting value"),
        ("{", "Expecting property name"),
        ("[]", "it is not a JSON object"),
        ('{"post_timeout": NaN}', "NaN is not a number"),
        ('{"post_timeout": Infinity}', "Infinity is not a number"),
        ('{"post_timeout": 1, "post_timeout": 2}', '"post_timeout" is given twice'),
        ('{"post_timeout": "30"}', 'post_timeout: "30" is not a number of seconds'),
        ('{"post_timeout": true}', "post_timeout: true is not a number of seconds"),
        ('{"post_timeout": null}', "post_timeout: null is not a number of seconds"),
        ('{"post_timeout": 0}', "post_timeout: 0 is not more than 0 and at most 86400 seconds"),
        ('{"delete_timeout": -1.5}', "delete_timeout: -1.5 is not more than 0"),
        ('{"delete_timeout": 1e400}', "delete_timeout: Infinity is not more than 0"),
        ('{"delete_timeout": ' + "9" * 400 + "}", "is not more than 0 and at most 86400"),
        ('{"unix_socket_file": 1}', "unix_socket_file: 1 is neither a path nor null"),
        ('{"unix_socket_file": ""}', 'unix_socket_file: "" is not an absolute path'),
        ('{"unix_socket_file": "run/sock"}', "is not an absolute path"),
        ('{"unix_socket_file": "/\\u0000"}', "is not a path of a socket"),
        ('{"unix_socket_file": "/\\ud800"}', "is not a path that can be written"),
        ('{"unix_socket_file": "/' + "x" * 107 + '"}', "more than 107 bytes"),
        ('{"sharing": "excl"}', 'sharing: "excl" is none of null, default_shared'),
        ('{"sharing": []}', "sharing: [] is none of"),
        ('{"nodes": []}', "nodes is not a JSON object"),
        ('{"nodes": {"cmp17": 1}}', "nodes.cmp17 is not a JSON object"),
        ('{"nodes": {"x": {"post_timeout": 0}}}', "nodes.x.post_timeout: 0 is not more than 0"),
        ('{"post_timeout": 0, "more": 1}', "post_timeout: 0 is not more than 0"),
        ('\ufeff{"post_timeout": 0}', "post_timeout: 0 is not more than 0"),
        ("[" * 100_000, "it is nested too deeply"),
    ],
)
def test_a_configuration_that_is_wrong_is_refused_with_its_key_and_the_reason(
    text: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "CF"
    path.write_text(text)
    played = begin(path)
    assert played.outcome == "error"
    assert played.message.startswith(f"the configuration {path} cannot be used: ")
    assert words in played.message
    ended = end(path)
    assert (ended.outcome, words in ended.message) == ("reject", True)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"comment": "ours"}, "comment is no tunable: there are delete_timeout, post_timeout"),
        ({"version_uri": "/rm/v2"}, "version_uri is internal and cannot be configured"),
        ({"resources": {}}, "resources is no tunable"),
        ({"nodes": {"x": {"nodes": {}}}}, "nodes.x.nodes is no tunable"),
        ({"vn_type": {"arm": {"version_uri": 1}}}, "vn_type.arm.version_uri is internal"),
        ({}, "it begins with a byte order mark"),
    ],
)
def test_what_of_a_configuration_means_nothing_is_told_and_takes_no_node_offline(
    more: dict[str, Any], words: str, socket: Path, configure: Configure
) -> None:
    config = configure(**more)
    if not more:
        config.write_text("\ufeff" + config.read_text())
    for event, code in ((begin, 200), (end, 204)):
        with behaving(socket, [answers(code)]) as atom:
            played = event(config)
        assert played.outcome == "accept"
        assert [asked.path.partition("/jobs")[0] for asked in atom.asked] == ["/rm/v1"]
        (told,) = [line for level, line in played.log if level == LEVELS["EVENT_ERROR"]]
        assert f"of the configuration {config} is ignored: {words}" in told
    with pytest.raises(UserMistake, match="says what the hook ignores") as refused:
        hookfile.read_config(config.read_bytes(), "CF")
    assert words in str(refused.value)


def test_a_registration_that_was_lost_is_told_where_operators_look(
    socket: Path, configure: Configure
) -> None:
    with behaving(socket, [answers(404)]):
        played = end(configure())

    assert played.outcome == "accept"
    (told,) = [line for level, line in played.log if level == LEVELS["EVENT_ERROR"]]
    assert "Job ID was not registered: ATOM has lost it" in told


def test_a_configuration_that_is_too_long_is_not_half_read(tmp_path: Path) -> None:
    path = tmp_path / "CF"
    path.write_text(json.dumps({"nodes": {str(number): {} for number in range(100_000)}}))
    played = begin(path)
    assert (played.outcome, "more than 1048576 characters" in played.message) == ("error", True)


def test_a_configuration_that_cannot_be_read_is_said_to_be_so(tmp_path: Path) -> None:
    assert "No such file" in begin(tmp_path / "none").message
    path = tmp_path / "latin"
    path.write_bytes(b'{"unix_socket_file": "/\xff"}')
    assert "can't decode byte 0xff" in begin(path).message


def test_the_version_of_the_interface_is_internal(socket: Path, configure: Configure) -> None:
    """It is set, and no tunable.

    Seed: ["version_uri"] - an internal variable
    Seed: It will be set to "/rm/v1"
    Seed: but will NOT be over-writable by a config file
    """
    with behaving(socket, [answers(200)]) as atom:
        assert begin(configure(version_uri="/rm/v2")).outcome == "accept"
    assert [asked.path for asked in atom.asked] == ["/rm/v1/jobs"]


def test_nothing_but_the_standard_library_is_loaded(
    socket: Path, configure: Configure, tmp_path: Path
) -> None:
    watched = textwrap.dedent(
        """
        import io, json, sys, runpy
        sys.stdin = io.StringIO(sys.argv[1])
        runpy.run_path(sys.argv[2], run_name="__main__")
        print(json.dumps(sorted({name.split(".")[0] for name in sys.modules})))
        """
    )

    def loaded(hook: Path) -> set[str]:
        told = {**scenario("execjob_begin", configure()), "hook": str(hook)}
        ran = subprocess.run(
            # With the site's packages in reach: what is loaded of them is to be seen.
            [sys.executable, "-I", "-OO", "-c", watched, json.dumps(told), simulatedmom.__file__],
            capture_output=True,
            text=True,
            check=True,
        )
        *_, outcome, modules = ran.stdout.splitlines()
        assert json.loads(outcome)["outcome"] == "accept"
        return set(json.loads(modules))

    empty = tmp_path / "empty.PY"
    empty.write_text("import pbs\n")
    with behaving(socket, [answers(200)]):
        own = loaded(moms.HOOK) - loaded(empty)
    assert {name for name in own if not name.startswith("_")} <= sys.stdlib_module_names
