"""What the options of submit, run and batch ask for."""

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from warren.base.errors import UserMistake
from warren.cli.job import environment
from warren.cli.job.specs import make_jobspec
from warren.cli.main import cli
from warren.rfc import canonical, jobspec, version1

SCRIPT = """\
#!/bin/sh
#FLUX: -N2 --queue=batch
#FLUX: --job-name=app   # words
#FLUX: --setattr=user.note="hello"
#DW jobdw type=xfs capacity=1GiB name=s
warren run -N2 hostname
"""


def system(*words: str) -> dict[str, Any]:
    """Return the system attributes that options ask for."""
    return dry_run("submit", *words, "true")["attributes"]["system"]  # type: ignore[no-any-return]


def dry_run(*words: str) -> dict[str, Any]:
    done = CliRunner().invoke(cli, [words[0], "--dry-run", *words[1:]], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.output)
    return found


def refusal(*words: str) -> str:
    with pytest.raises(UserMistake) as refused:
        CliRunner().invoke(
            cli,
            [words[0], "--dry-run", *words[1:]],
            catch_exceptions=False,
            standalone_mode=False,
        )
    return str(refused.value)


@pytest.mark.parametrize(
    "words",
    [
        ["-n4"],
        ["-N2"],
        ["-N2", "-n4", "-c2", "-g1"],
        ["-N2", "-x", "-n4"],
        ["--cores=4"],
        ["-N2", "--cores=4", "--tasks-per-core=2"],
        ["-N2", "--gpus-per-node=1", "--signal=@30s", "--taskmap=cyclic"],
        ["-N2", "-n3"],
        ["-N2", "--tasks-per-node=3"],
        ["-qbatch", "-Bbank", "-t1h", "--requires=a or b", "--dependency=afterok:f1"],
        ["-opmi=none", "--output=out", "--env=-*", "--begin-time=+1m", "-l", "-u"],
    ],
)
def test_what_options_ask_for_is_a_version_1_jobspec(words: list[str]) -> None:
    spec = dry_run("submit", *words, "true")

    canonical.check(spec)
    version1.check(spec)
    jobspec.check(spec)


def test_gpus_stand_beside_the_cores_of_each_task() -> None:
    (slot,) = make_jobspec(command=("true",), ntasks=2, gpus_per_task=3)["resources"]

    assert slot["with"] == [{"type": "core", "count": 1}, {"type": "gpu", "count": 3}]


def test_requirements_become_constraints() -> None:
    assert system("--requires=a -host:n1")["constraints"] == {
        "and": [{"properties": ["a"]}, {"not": [{"hostlist": ["n1"]}]}]
    }


def test_a_query_with_a_mistake_is_refused_with_a_caret() -> None:
    assert "a and (\n       ^" in refusal("submit", "--requires=a and (", "true")


def test_dependencies_keep_their_order_and_a_time_is_one_of_them() -> None:
    found = system("--dependency=afterok:f1", "--begin-time=100", "--dependency=singleton")

    assert found["dependencies"] == [
        {"scheme": "afterok", "value": "f1"},
        {"scheme": "singleton", "value": ""},
        {"scheme": "begin-time", "value": "100.000"},
    ]


def test_a_begin_time_may_be_a_while_from_now() -> None:
    (found,) = system("--begin-time=+1h")["dependencies"]

    assert float(found["value"]) == pytest.approx(time.time() + 3600, abs=60)


def test_a_begin_time_may_be_in_words() -> None:
    (found,) = system("--begin-time=now")["dependencies"]

    assert float(found["value"]) == pytest.approx(time.time(), abs=60)
    assert system("--begin-time=tomorrow 8am")["dependencies"][0]["scheme"] == "begin-time"


def test_a_begin_time_that_is_none_is_refused() -> None:
    assert "--begin-time soon: say +10m" in refusal("submit", "--begin-time=soon", "true")


def test_files_for_output_and_input_are_options_of_the_shell(tmp_path: Path) -> None:
    found = system("--output={{id}}.out", "--error=err", f"--input={tmp_path}/in", "-overbose")

    found["shell"]["options"].pop("rlimit")
    assert found["shell"]["options"] == {
        "verbose": 1,
        "output": {
            "stdout": {"type": "file", "path": "{{id}}.out"},
            "stderr": {"type": "file", "path": "err"},
        },
        "input": {"stdin": {"type": "file", "path": f"{tmp_path}/in"}},
    }


def test_attributes_are_of_the_system_unless_they_say_user(tmp_path: Path) -> None:
    spec = dry_run("submit", "-Sa.b=1", "-Suser.c=x", "-S.d=[2]", "-Ssystem.e", "true")

    assert spec["attributes"]["user"] == {"c": "x"}
    assert spec["attributes"]["d"] == [2]
    assert spec["attributes"]["system"]["a"] == {"b": 1}
    assert spec["attributes"]["system"]["e"] == 1


@pytest.mark.parametrize("setting", ["a..b=1", "duration.x=1", "=1"])
def test_an_attribute_that_cannot_be_set_is_refused(setting: str) -> None:
    assert f"--setattr {setting}: " in refusal("submit", f"-S{setting}", "true")


def test_a_program_that_is_here_and_not_on_the_path_is_refused_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job.sh").write_text("#!/bin/sh\n")
    (tmp_path / "job.sh").chmod(0o755)
    monkeypatch.chdir(tmp_path)

    assert refusal("run", "job.sh") == (
        "job.sh: no directory of your PATH has a program of this name, and this directory has "
        "one: try ./job.sh."
    )
    assert refusal("run", "/etc") == "/etc is a directory: name a program in it."
    for there in (["./job.sh"], [f"--env=PATH={tmp_path}", "job.sh"], ["nowhere.sh"]):
        dry_run("run", *there)


def test_files_go_along_with_their_mode_and_bytes(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\xff\0")
    program.chmod(0o750)
    files = system(f"--add-file={program}", f"--add-file=other={program}", "--add-file=t=a\nb")

    assert files["files"]["program"] == files["files"]["other"]
    assert base64.b64decode(files["files"]["program"]["data"]) == b"\xff\0"
    assert files["files"]["program"]["mode"] & 0o777 == 0o750
    assert files["files"]["t"]["data"] == "a\nb"


@pytest.mark.parametrize("option", ["--cc=", "--cc=[]", "--bcc="])
def test_a_set_of_no_copies_is_refused(option: str) -> None:
    done = CliRunner().invoke(cli, ["submit", "--dry-run", option, "true"])
    assert isinstance(done.exception, UserMistake)
    assert "names no copy: write 0-3, for example" in str(done.exception)


def test_copies_have_their_number_in_command_files_and_environment() -> None:
    done = CliRunner().invoke(
        cli, ["submit", "--dry-run", "--cc=3-4", "--output=o.{cc}", "echo", "{cc}"]
    )
    specs = [json.loads(line) for line in done.output.splitlines()]

    assert [spec["tasks"][0]["command"] for spec in specs] == [["echo", "3"], ["echo", "4"]]
    assert specs[1]["attributes"]["system"]["environment"]["FLUX_JOB_CC"] == "4"
    assert specs[1]["attributes"]["system"]["shell"]["options"]["output"]["stdout"]["path"] == "o.4"


@pytest.mark.parametrize("words", [["--urgency=32"], ["--urgency=high"], ["--flags=fast"]])
def test_an_urgency_or_a_flag_that_is_none_is_a_wrong_command_line(words: list[str]) -> None:
    assert CliRunner().invoke(cli, ["submit", "--dry-run", *words, "true"]).exit_code == 2


# Batch jobs


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    written = tmp_path / "job.sh"
    written.write_text(SCRIPT)
    return written


def test_a_script_says_what_its_job_needs(script: Path) -> None:
    spec = dry_run("batch", "job.sh", "argument")
    found = spec["attributes"]["system"]

    assert (spec["resources"][0]["type"], spec["resources"][0]["count"]) == ("node", 2)
    assert spec["tasks"][0]["command"][-2:] == ["{{tmpdir}}/script", "argument"]
    assert (found["queue"], found["job"]["name"]) == ("batch", "app")
    assert spec["attributes"]["user"] == {"note": "hello"}
    assert found["dw"] == "#DW jobdw type=xfs capacity=1GiB name=s"
    assert found["files"]["script"]["data"] == SCRIPT
    assert found["shell"]["options"]["per-resource"] == {"type": "node"}
    assert found["shell"]["options"]["output"]["stdout"]["path"] == "flux-{{id}}.out"


def test_the_command_line_goes_before_what_the_script_says(script: Path) -> None:
    found = dry_run("batch", "--queue=debug", "-Sdw=#DW other", "job.sh")["attributes"]["system"]

    assert found["queue"] == "debug"
    assert found["dw"] == "#DW other"


def test_a_batch_job_is_a_version_1_jobspec(script: Path) -> None:
    version1.check(dry_run("batch", "-n8", "job.sh"))


def test_a_command_may_be_wrapped_into_a_script() -> None:
    found = dry_run("batch", "-n1", "--wrap", "echo", "hello")["attributes"]["system"]

    assert found["files"]["script"]["data"] == "#!/bin/sh\necho hello\n"
    assert found["job"]["name"] == "echo"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("-N2", "-N0", "job.sh, line 2: Invalid value for '-N' / '--nodes'"),
        ("-N2", "--nods=2", "job.sh, line 2: No such option"),
        ("#FLUX: --job", "#flux: --job", "line 3, column 2: this directive starts with"),
        ("#!/bin/sh", "", "a batch script starts with #!"),
        ("-N2 ", "", "Say how much the batch job is to have"),
    ],
)
def test_a_mistake_in_a_script_is_refused_with_its_line(
    script: Path, old: str, new: str, words: str
) -> None:
    script.write_text(SCRIPT.replace(old, new))

    assert words in refusal("batch", "job.sh")


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (["-n2", "-x"], "--exclusive is for whole nodes"),
        (["-n2", "--cores=2"], "use either"),
        (["-N2", "--cores=5"], "cannot be spread evenly over 2 nodes"),
        (["--tasks-per-node=2"], "Say how many nodes"),
        (["-N1", "--tasks-per-node=2", "--tasks-per-core=2"], "use either"),
        (["--signal=FOO@30s"], "'FOO' is not a signal"),
        (["-overbose", "-overbose.x=1"], "-o verbose.x=1: "),
    ],
)
def test_options_that_do_not_go_together_are_refused(words: list[str], refused: str) -> None:
    assert refused in refusal("submit", *words, "true")


def test_tasks_may_be_counted_by_node_or_core() -> None:
    by_node = dry_run("submit", "-N2", "--tasks-per-node=3", "true")
    by_core = dry_run("submit", "--cores=4", "--tasks-per-core=2", "true")

    assert by_node["attributes"]["system"]["shell"]["options"]["per-resource"] == {
        "type": "node", "count": 3,
    }  # fmt: skip
    assert by_core["resources"][0]["count"] == 4
    assert by_core["attributes"]["system"]["shell"]["options"]["per-resource"] == {
        "type": "core", "count": 2,
    }  # fmt: skip


def test_labels_are_for_the_streams_that_go_to_files() -> None:
    assert "output" not in system("-l")["shell"]["options"]
    assert system("-l", "--error=e")["shell"]["options"]["output"] == {
        "stderr": {"type": "file", "path": "e", "label": True}
    }


# Limits


def test_the_limits_of_the_author_go_with_the_job() -> None:
    everything = environment.limits([])

    assert set(everything) >= {"core", "nofile", "stack"}
    assert environment.limits(["-*", "core=16,nofile=unlimited"]) == {"core": 16, "nofile": -1}
    assert environment.limits(["-*,stack"]) == {"stack": everything["stack"]}


@pytest.mark.parametrize("rule", ["foo", "core=much", "-x"])
def test_a_limit_that_is_none_is_refused(rule: str) -> None:
    with pytest.raises(UserMistake, match=f"--rlimit {rule}: "):
        environment.limits([rule])


# The environment


@pytest.mark.parametrize(
    ("rules", "found"),
    [
        ([], {"A": "1", "AB": "2", "C": "3"}),
        (["-A*"], {"C": "3"}),
        (["-*", "C"], {"C": "3"}),
        (["A*"], {"A": "1", "AB": "2"}),
        (["A=x$C-${AB}$$"], {"A": "x3-2$", "AB": "2", "C": "3"}),
        (["/^A.$/"], {"AB": "2"}),
        (["-*", "N=1", "M=$N"], {"N": "1", "M": "1"}),
    ],
)
def test_rules_change_the_environment(rules: list[str], found: dict[str, str]) -> None:
    assert environment.apply_rules({"A": "1", "AB": "2", "C": "3"}, rules) == (found, {})


def test_rules_may_come_from_a_file(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("# words\n-*\n\nX=1\n")

    assert environment.apply_rules({"A": "1"}, [f"^{rules}"]) == ({"X": "1"}, {})


def test_values_that_a_rule_sets_to_templates_are_for_the_shell() -> None:
    rules = ["T={{taskid}}", "U=$T-$A", "V={{id}}", "V=plain", "W={{id}}", "-W"]
    own = {"A": "1", "PROMPT": "{{mine}}"}

    assert environment.apply_rules(own, rules) == (
        {"A": "1", "PROMPT": "{{mine}}", "V": "plain"},
        {"T": "{{taskid}}", "U": "{{taskid}}-1"},
    )
    system = make_jobspec(command=("true",), env_rules=("T={{taskid}}",))["attributes"]["system"]
    assert system["shell"]["options"]["env-expand"] == {"T": "{{taskid}}"}
    assert "T" not in system["environment"]


def test_files_that_name_themselves_are_refused(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text(f"^{rules}\n")

    with pytest.raises(UserMistake, match="more than 10 deep"):
        environment.apply_rules({}, [f"^{rules}"])


@pytest.mark.parametrize(
    ("rule", "words"),
    [("A=$B", "has no variable B"), ("=1", "names no variable"), ("^/nowhere", "cannot be read"),
     ("-/(/", "is not a regular expression")],
)  # fmt: skip
def test_a_rule_that_cannot_be_followed_is_refused(rule: str, words: str) -> None:
    with pytest.raises(UserMistake, match=words.replace("(", "\\(")):
        environment.apply_rules({"A": "1"}, [rule])


def test_nodes_may_be_asked_for_on_so_many_chassis() -> None:
    """coral2-spec section 15."""
    (found,) = make_jobspec(command=("true",), nodes=6, chassis=2)["resources"]
    (plain,) = make_jobspec(command=("true",), nodes=6)["resources"]
    assert found == {"type": "chassis", "count": 2, "with": [{**plain, "count": 3}]}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"ntasks": 2}, "--coral2-chassis is about nodes: say how many with -N."),
        (
            {"nodes": 5},
            "-N 5 cannot be spread evenly over 2 chassis: take a multiple of 2.",
        ),
    ],
)
def test_chassis_without_as_many_nodes_on_each_are_refused(
    options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UserMistake) as caught:
        make_jobspec(command=("true",), chassis=2, **options)
    assert str(caught.value) == problem
