"""What users and admins of Flux have of rabbits: the options, and the frobnicator of ingest.

Both run in Flux's Python. What they decide is tried with modules in the place of Flux's; that
Flux loads them and takes what they make, with a real one.
"""

import argparse
import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.flux.conftest import SOURCES
from tests.flux.site import Site, graph, opened
from tests.journeys.conftest import SECONDS
from warren.rfc import hostlist

FILES = {name: SOURCES / "python" / f"{name}.py" for name in ("chassis", "rabbit")}

SLOT = {"type": "slot", "count": 1, "label": "task", "with": [{"type": "core", "count": 1}]}


# In the place of Flux


class CLIPlugin:
    """Flux's base class, as far as ours uses it: options have a prefix, and their values none."""

    def __init__(self, prog: str, prefix: str = "ex", version: str | None = None) -> None:
        self.prog = prog.removeprefix("flux ")
        self.prefix = prefix
        self.options: list[tuple[str, dict[str, Any]]] = []

    def add_option(self, name: str, **kwargs: Any) -> None:
        assert name.startswith("--")
        dest = name[2:].replace("-", "_")
        self.options.append((f"--{self.prefix}-{name[2:]}", {"dest": dest, **kwargs}))


class Instances:
    """Instances of Flux, one in another, the innermost first, by their configurations."""

    def __init__(self) -> None:
        self.configurations: list[Mapping[str, Any]] = []

    def connect(self, uri: str = "0") -> SimpleNamespace:
        number = int(uri)
        if number >= len(self.configurations):
            raise FileNotFoundError("broker socket was not found")
        attributes = {
            "instance-level": str(len(self.configurations) - number - 1),
            "parent-uri": str(number + 1),
        }
        return SimpleNamespace(
            attr_get=attributes.__getitem__, conf_get=self.configurations[number].get
        )


class Jobspec:
    """A jobspec of Flux's, as far as ours looks at it."""

    def __init__(self, jobspec: dict[str, Any]) -> None:
        self.jobspec = jobspec

    @property
    def resources(self) -> Any:
        return self.jobspec["resources"]

    @property
    def attributes(self) -> Any:
        return self.jobspec["attributes"]

    def setattr(self, key: str, value: Any) -> None:
        table, name = key.split(".")
        self.attributes.setdefault(table, {})[name] = value


@pytest.fixture
def instances(monkeypatch: pytest.MonkeyPatch) -> Instances:
    found = Instances()
    modules: dict[str, dict[str, Any]] = {
        "flux": {},
        "flux.cli": {},
        "flux.cli.plugin": {"CLIPlugin": CLIPlugin},
        "flux.core": {},
        "flux.core.handle": {"Flux": found.connect},
        "flux.job": {},
        "flux.job.frobnicator": {"FrobnicatorPlugin": object},
    }
    for name, offered in modules.items():
        module = ModuleType(name)
        vars(module).update(offered)
        monkeypatch.setitem(sys.modules, name, module)
    return found


def loaded(name: str) -> Any:
    """Return a file of ours as a module, of which nothing is written down."""
    module = ModuleType(name)
    exec(compile(FILES[name].read_text(), str(FILES[name]), "exec"), vars(module))
    return module


@pytest.mark.parametrize("name", FILES)
def test_they_need_nothing_but_flux_and_an_old_python(name: str) -> None:
    tree = ast.parse(FILES[name].read_text(), feature_version=(3, 6))
    for node in ast.walk(tree):
        assert not isinstance(node, ast.Import)
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None
            assert node.module.startswith("flux.")


# The frobnicator

QUEUE = {"properties": ["batch"]}
RABBIT = {"properties": ["rabbit"]}
NESTED = {"and": [{"or": [QUEUE, {"hostlist": ["a[1-2]"]}]}, {"not": [RABBIT]}]}


def frobbed(system: dict[str, Any]) -> Any:
    """Return what becomes of `attributes.system`."""
    jobspec = Jobspec({"attributes": {"system": system}})
    loaded("rabbit").Frobnicator().frob(jobspec, 1000, 16, 0)
    return jobspec.attributes["system"]


@pytest.mark.usefixtures("instances")
@pytest.mark.parametrize("constraints", [QUEUE, {"or": [QUEUE, QUEUE]}, NESTED])
def test_a_job_that_may_have_rabbits_has_them_or_what_its_queue_asks_for(constraints: Any) -> None:
    system = {"dw": "#DW ...", "allow_rabbits": True, "constraints": constraints}
    assert frobbed(system)["constraints"] == {"or": [constraints, RABBIT]}


@pytest.mark.usefixtures("instances")
@pytest.mark.parametrize(
    "system",
    [
        {},
        {"dw": "#DW ..."},
        {"dw": "#DW ...", "allow_rabbits": False},
        {"dw": "#DW ...", "allow_rabbits": 0, "constraints": QUEUE},
        {"dw": "#DW ...", "constraints": QUEUE},
        {"allow_rabbits": True, "constraints": QUEUE},
    ],
)
def test_other_jobs_stay_as_they_are(system: dict[str, Any]) -> None:
    assert frobbed(dict(system)) == system


@pytest.mark.usefixtures("instances")
@pytest.mark.parametrize("constraints", [{}, {"constraints": {}}])
def test_without_constraints_the_configuration_is_wrong(constraints: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Misconfiguration: job must have constraints set"):
        frobbed({"dw": "#DW ...", "allow_rabbits": True, **constraints})


@pytest.mark.usefixtures("instances")
def test_a_job_without_system_attributes_stays_as_it_is() -> None:
    jobspec = Jobspec({"attributes": {}})
    loaded("rabbit").Frobnicator().frob(jobspec, 1000, 16, 0)
    assert jobspec.attributes == {}


# The options


def submitted(*options: str, nodes: Any = None, prog: str = "flux submit") -> Jobspec:
    """Return the jobspec that a command makes. Raises ValueError, and SystemExit as argparse."""
    plugin = loaded("chassis").ChassisPlugin(prog)
    parser = argparse.ArgumentParser(prog=prog)
    for name, kwargs in plugin.options:
        parser.add_argument(name, **kwargs)
    args = parser.parse_args(options, argparse.Namespace(nodes=nodes))
    plugin.preinit(args)
    top = SLOT if nodes is None else {"type": "node", "count": int(nodes), "with": [SLOT]}
    jobspec = Jobspec({"resources": [top], "attributes": {}})
    plugin.modify_jobspec(args, jobspec)
    return jobspec


WITH_CHASSIS = {"resource.scheduling": "/etc/flux/system/jgf.json"}


@pytest.mark.parametrize("prog", ["flux run", "flux submit", "flux alloc", "flux batch"])
@pytest.mark.parametrize("nodes", [4, "4"])
def test_nodes_are_spread_over_chassis(instances: Instances, prog: str, nodes: Any) -> None:
    instances.configurations = [WITH_CHASSIS]
    jobspec = submitted("--coral2-chassis=2", nodes=nodes, prog=prog)
    node = {"type": "node", "count": 2, "with": [SLOT]}
    assert jobspec.resources == [{"type": "chassis", "count": 2, "with": [node]}]
    assert jobspec.attributes == {}


def test_each_chassis_gives_cores_of_its_rabbit_and_the_job_may_have_rabbits(
    instances: Instances,
) -> None:
    instances.configurations = [WITH_CHASSIS]
    jobspec = submitted("--coral2-chassis=2", "--coral2-rabbit-cores=3", nodes=2)
    cores = [{"type": "core", "count": 3, "exclusive": True}]
    assert jobspec.resources[0]["with"] == [
        {"type": "node", "count": 1, "with": [SLOT]},
        {"type": "storage_node", "count": 1, "with": cores},
    ]
    assert jobspec.attributes == {"system": {"allow_rabbits": True}}


@pytest.mark.parametrize("nodes", [None, 4])
@pytest.mark.usefixtures("instances")
def test_a_job_without_the_options_stays_as_it_is_without_a_question(nodes: Any) -> None:
    jobspec = submitted(nodes=nodes)
    assert jobspec.resources[0]["type"] == ("slot" if nodes is None else "node")
    assert jobspec.attributes == {}


@pytest.mark.parametrize(
    ("options", "nodes", "words"),
    [
        (["--coral2-chassis=2"], None, "--coral2-chassis option requires -N,--nodes"),
        (["--coral2-chassis=2"], "2-4", "requires -N,--nodes to be one number, not 2-4"),
        (
            ["--coral2-chassis=2"],
            5,
            r"Nodecount \(5\) must be evenly divisible by chassis count \(2\)",
        ),
        (["--coral2-chassis=4"], 2, "evenly divisible"),
        (["--coral2-rabbit-cores=2"], 4, "--coral2-rabbit-cores requires --coral2-chassis=N"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(
    instances: Instances, options: list[str], nodes: Any, words: str
) -> None:
    instances.configurations = [WITH_CHASSIS]
    with pytest.raises(ValueError, match=words):
        submitted(*options, nodes=nodes)


@pytest.mark.usefixtures("instances")
@pytest.mark.parametrize("option", ["--coral2-chassis", "--coral2-rabbit-cores"])
@pytest.mark.parametrize("value", ["0", "-1", "nan", "1.5", ""])
def test_the_numbers_are_positive_integers(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        submitted(f"{option}={value}", nodes=4)
    said = f"argument {option}: invalid positive_integer value: {value!r}"
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("instances")
def test_other_commands_have_no_such_options() -> None:
    plugin = loaded("chassis").ChassisPlugin("flux bulksubmit")
    assert plugin.options == []
    plugin.preinit(argparse.Namespace(nodes=4))


@pytest.mark.usefixtures("instances")
@pytest.mark.parametrize("resources", [[SLOT], []])
def test_what_are_not_nodes_is_not_spread(resources: list[Any]) -> None:
    with pytest.raises(ValueError, match="requires a job of nodes alone"):
        loaded("chassis").spread(resources, 1, None)


def test_the_system_instance_is_asked_whether_there_are_chassis(instances: Instances) -> None:
    instances.configurations = [WITH_CHASSIS, {}]
    with pytest.raises(ValueError, match="Flux scheduler not configured to support chassis count"):
        submitted("--coral2-chassis=2", nodes=4)
    instances.configurations = [{}, {}, WITH_CHASSIS]
    assert submitted("--coral2-chassis=2", nodes=4).resources[0]["type"] == "chassis"


def test_chassis_may_be_a_part_of_r(instances: Instances) -> None:
    instances.configurations = [{"resource.path": "/etc/flux/system/R"}]
    assert submitted("--coral2-chassis=2", nodes=4).resources[0]["type"] == "chassis"


def test_without_a_broker_nothing_is_known_of_chassis(instances: Instances) -> None:
    """As with --dry-run. What is submitted needs a broker, and fails for that."""
    instances.configurations = []
    assert submitted("--coral2-chassis=2", nodes=4).resources[0]["type"] == "chassis"


# A real Flux

needs_flux = pytest.mark.skipif(shutil.which("flux") is None, reason="flux is not installed")

CHASSIS = {"rabbit-1": ["compute-01", "compute-02"], "rabbit-2": ["compute-03", "compute-04"]}

_SYSTEM = """
[resource]
noverify = true
path = "{home}/R"
[sched-fluxion-resource]
match-policy = "first"
match-format = "rv1"
[queues.batch]
requires = ["batch"]
[policy.jobspec.defaults.system]
queue = "batch"
[ingest.frobnicator]
plugins = ["defaults", "constraints", "{home}/rabbit.py"]
"""


def with_rabbits(r: dict[str, Any], cores: int) -> dict[str, Any]:
    """Return an R whose rabbits have cores for jobs, and whose computes are of queue `batch`."""
    nodes, edges = r["scheduling"]["graph"]["nodes"], r["scheduling"]["graph"]["edges"]
    hosts = r["execution"]["nodelist"]
    for chassis in [each for each in nodes if each["metadata"]["type"] == "chassis"]:
        rank, host = len(hosts), chassis["metadata"]["properties"]["rabbit"]
        hosts.append(host)
        path = f"{chassis['metadata']['paths']['containment']}/{host}"
        made = [("storage_node", path, chassis["id"], {"name": host, "properties": {"rabbit": ""}})]
        top = str(len(nodes))
        made += [("core", f"{path}/core{core}", top, {"id": core}) for core in range(cores)]
        for kind, where, parent, more in made:
            metadata = {"type": kind, "paths": {"containment": where}, "rank": rank, **more}
            edges.append({"source": parent, "target": str(len(nodes))})
            nodes.append({"id": str(len(nodes)), "metadata": metadata})
    for node in nodes:
        if node["metadata"]["type"] == "node":
            node["metadata"]["properties"] = {"batch": ""}
    last = len(hosts) - 1
    r["execution"]["R_lite"] = [{"rank": f"0-{last}", "children": {"core": f"0-{cores - 1}"}}]
    r["execution"]["properties"] = {"batch": f"0-{last - 2}", "rabbit": f"{last - 1}-{last}"}
    return r


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory with the plugins, and the configuration of a system with two chassis."""
    # Not where pytest keeps files: the names of sockets may not be long.
    found = Path(tempfile.mkdtemp(prefix="flux-", dir="/tmp"))
    (found / "cli").mkdir()
    shutil.copy(FILES["chassis"], found / "cli")
    shutil.copy(FILES["rabbit"], found)
    (found / "R").write_text(json.dumps(with_rabbits(graph(CHASSIS, ssds=1, gib=4), cores=4)))
    (found / "flux.toml").write_text(_SYSTEM.format(home=found))
    yield found
    shutil.rmtree(found)


def played(home: Path, command: list[str], **more: str) -> "subprocess.CompletedProcess[str]":
    """Run a command with the options of our plugin."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FLUX_")}
    environment |= {"TMPDIR": str(home), "LC_ALL": "C.UTF-8", **more}
    environment |= {"FLUX_CLI_PLUGINPATH": str(home / "cli")}
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=home,
        start_new_session=True,
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its brokers, too
            raise
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def within(home: Path, script: str) -> "subprocess.CompletedProcess[str]":
    """Run a script in the system, and end it."""
    hosts = [*(host for computes in CHASSIS.values() for host in computes), *CHASSIS]
    options = [f"--test-size={len(hosts)}", f"--test-hosts={','.join(hosts)}"]
    options += [f"--config-path={home}/flux.toml"]
    script = f"flux queue start --all --quiet && {script}"
    return played(home, ["flux", "start", *options, "sh", "-c", script])


@needs_flux
@pytest.mark.parametrize(
    "command",
    [["run"], ["submit"], ["alloc"], ["batch", "--wrap"]],
    ids=["run", "submit", "alloc", "batch"],
)
def test_flux_has_the_options(home: Path, command: list[str]) -> None:
    options = ["--dry-run", "-N4", "--coral2-chassis=2", "--coral2-rabbit-cores=3"]
    done = played(home, ["flux", *command, *options, "true"], FLUX_URI=f"local://{home}/none")
    assert done.returncode == 0, done.stderr
    jobspec = json.loads(done.stdout)
    (chassis,) = jobspec["resources"]
    assert (chassis["type"], chassis["count"]) == ("chassis", 2)
    assert [each["type"] for each in chassis["with"]] == ["node", "storage_node"]
    assert jobspec["attributes"]["system"]["allow_rabbits"] is True


@needs_flux
def test_flux_tells_users_why_it_refuses(home: Path) -> None:
    done = played(home, ["flux", "submit", "-N3", "--coral2-chassis=2", "true"])
    assert done.returncode == 1
    said = "ERROR: Nodecount (3) must be evenly divisible by chassis count (2)\n"
    assert done.stderr.endswith(said)


@needs_flux
def test_an_instance_without_chassis_refuses_them(home: Path) -> None:
    command = ["flux", "submit", "-N2", "--coral2-chassis=2", "true"]
    done = played(home, ["flux", "start", *command])
    assert "ERROR: Flux scheduler not configured to support chassis count\n" in done.stderr


@pytest.mark.usefixtures("fluxion")
def test_fluxion_gives_nodes_of_so_many_chassis(home: Path) -> None:
    done = within(
        home,
        "id=$(flux submit -N2 --coral2-chassis=2 true) && "
        "flux job wait-event $id alloc >/dev/null && flux job info $id R",
    )
    assert done.returncode == 0, done.stderr
    (nodes,) = json.loads(done.stdout)["execution"]["nodelist"]
    assert nodes in ("compute-[01,03]", "compute-[01,04]", "compute-[02-03]", "compute-[02,04]")


@needs_flux
def test_an_instance_in_a_job_has_chassis_as_the_system_has(home: Path) -> None:
    chassis = "-N2 --coral2-chassis=2"
    done = within(home, f"flux alloc {chassis} flux run {chassis} -o cpu-affinity=off echo ran")
    assert done.stdout.count("ran\n") == 2, done.stderr


@needs_flux
def test_ingest_changes_the_constraints_of_the_jobs_queue(home: Path) -> None:
    done = within(
        home,
        "id=$(flux submit --urgency=hold -S dw=any -S allow_rabbits=true true) && "
        "flux job info $id jobspec && "
        "id=$(flux submit --urgency=hold -S dw=any true) && flux job info $id jobspec; "
        "flux cancel --all --quiet",
    )
    changed, left = (
        json.loads(line)["attributes"]["system"]["constraints"]
        for line in done.stdout.splitlines()
        if line.startswith("{")
    )
    assert changed == {"or": [QUEUE, RABBIT]}
    assert left == QUEUE


@pytest.mark.usefixtures("fluxion")
def test_a_job_has_cores_of_rabbits_beside_its_nodes(home: Path) -> None:
    done = within(
        home,
        "id=$(flux submit -N2 --coral2-chassis=2 --coral2-rabbit-cores=3 -S dw=any true) && "
        "flux job wait-event $id alloc >/dev/null && flux job info $id R",
    )
    assert done.returncode == 0, done.stderr
    execution = json.loads(done.stdout)["execution"]
    (nodes,) = execution["nodelist"]
    assert nodes.endswith(",rabbit-[1-2]")
    given = [each for each in execution["R_lite"] if each["rank"] == "4-5"]
    assert [each["children"] for each in given] == [{"core": "1-3"}]


@needs_flux
def test_ingest_tells_users_that_a_site_is_configured_wrongly(home: Path) -> None:
    conf = home / "flux.toml"
    conf.write_text(conf.read_text().replace('requires = ["batch"]', ""))
    done = within(home, "flux submit -S dw=any -S allow_rabbits=true true")
    assert "Misconfiguration: job must have constraints set" in done.stderr


def test_they_are_installed_where_flux_looks_for_them(plugins: Path, tmp_path: Path) -> None:
    make = ["make", "-s", "-C", str(shutil.copytree(SOURCES, tmp_path / "sources"))]
    subprocess.run([*make, "install", f"DESTDIR={tmp_path}"], check=True)
    where = "import flux.job.frobnicator; print(flux.job.frobnicator.__path__[0])"
    for asked, file in (
        (["config", "builtin", "confdir"], "cli/plugins/chassis.py"),
        (["python", "-c", where], "plugins/rabbit.py"),
    ):
        found = subprocess.run(["flux", *asked], check=True, capture_output=True, text=True)
        assert tmp_path.joinpath(found.stdout.strip()[1:], file).is_file()


# With storage

TABLES = f"""
[ingest.frobnicator]
plugins = ["defaults", "constraints", "{FILES["rabbit"]}"]
"""

JOBDW = "#DW jobdw type=xfs capacity=4GiB name=fast"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, plugins: Path, fluxion: None) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("site")
    with opened(root, plugins, fluxion=True, tables=TABLES) as found:
        yield found


def test_nodes_that_are_spread_over_chassis_have_their_storage(site: Site, home: Path) -> None:
    chassis = {each.rabbit: set(each.hosts) for each in site.cluster.shape().chassis()}
    hosts = sorted(host for computes in chassis.values() for host in computes)
    options = ["-N2", "--coral2-chassis=2", f"--requires=hosts:{','.join(hosts)}"]
    options += ["-S", f"dw={JOBDW}", "-S", "allow_rabbits=true"]
    uri = f"local://{site.socket}"
    done = played(home, ["flux", "submit", *options, "true"], FLUX_URI=uri)
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    events = site.over(job)

    assert [event for event in events if event.name == "exception"] == []
    memos = [event.context["rabbits"] for event in events if "rabbits" in event.context]
    assert hostlist.decode(memos[0]) == sorted(chassis)
    constraints = json.loads(site.info(job, "jobspec"))["attributes"]["system"]["constraints"]
    assert {"properties": ["rabbit"]} in constraints["or"]
