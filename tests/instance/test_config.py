"""The configuration of the instance."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from tests.instance.parts import GUEST, OWNER, unkept
from warren.base.errors import UserMistake
from warren.instance import config
from warren.instance.config import Config
from warren.instance.configservice import LiveConfig
from warren.instance.servicetables import SchedTable
from warren.instance.storagetables import StorageTable
from warren.rpc.bus import Bus


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
        [job-list]
        private = true
        [sched]
        policy = "fcfs"
        queue-depth = 8
        """
    )

    assert found.access.allow_guest_user
    assert found.queues["batch"].policy.limits.job_size.max.nnodes == 4
    assert found.queues["debug"].policy.limits.duration == "30m"
    assert found.job_manager.prolog.per_rank
    assert found.job_list.private
    assert found.sched == SchedTable(policy="fcfs", queue_depth=8)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x =", "site.toml is not TOML: "),
        (f"x = {'{a=' * 5000}", "site.toml is not TOML: "),
        ("[rabbit]\nsetup_timeot = 3", "rabbit: there is no key 'setup_timeot' here, but there is"),
        ("[rabbit]\nsetup_timeout = 'soon'", "rabbit: setup_timeout: "),
        ("[rabbit]\npolicy.maximum.xfs = 3", "rabbit.policy: there is no key 'maximum' here, but"),
        ("[rabbit]\npolicy.maximums.xfs = -1", "rabbit.policy.maximums"),
        ("[rabbit]\npolicy.maximums.zfs = 1", "rabbit.policy.maximums"),
        ("[rabbit]\npresets.a = 'jobdw'", "rabbit: presets.a: is no #DW directive"),
        ("[rabbit]\npresets.a = []", "rabbit: presets.a: is no #DW directive"),
        ("[rabbit]\npresets.'#DW' = '#DW x'", "rabbit: presets: '#DW' is no name"),
        ("[rabbit]\ntc_timeout = -1", "rabbit: tc_timeout: -1.0 is not a duration"),
        ("[queus]", "site.toml: there is no key 'queus' here, but there is 'queues'."),
        ("[queue.batch]", "site.toml: there is no key 'queue' here, but there is 'queues'."),
        ("[job-manager]\nepilogue = 1", "no key 'epilogue' here, but there is 'epilog'."),
        ("[job-manager.prolog]\nx = 1", "job-manager.prolog: there is no key 'x' here: it is one"),
        ("zzz = 1", "no key 'zzz' here: it is one of access, content, kvs, policy, queues, "),
        ("job-manager.archive = 'a'", "job-manager: archive: 'a' is not an absolute path"),
        ("containers.memory = 'much'", "containers: memory: 'much' is not a capacity: write 64GiB"),
        ("containers.user-memory = '0GiB'", "containers: user-memory: '0GiB' is not a capacity"),
        ("exec.rundir = 'jobs'", "exec: rundir: 'jobs' is not an absolute path"),
        ("exec.tmpdir-limit = 4096", "exec: tmpdir-limit is 4096: it is at least 1048576 bytes"),
        ("exec.tmpdir-limit = -1", "exec.tmpdir-limit: Expected `int` >= 0."),
        ("[exec]\nkill-timeout = 0", "exec: kill-timeout is 0: processes need a moment to end"),
        ("[job-manager.prolog]\ntimeout = -1", "job-manager.prolog: timeout: -1.0 is not a"),
        (
            "[job-manager.housekeeping]\ncommand = ['x']",
            "job-manager.housekeeping: command is not offered: make it an epilog's command",
        ),
        ("[exec]\nmax-kill-count = 0", "exec.max-kill-count: Expected `int` >= 1."),
        ("[sched]\npolicy = 'lifo'", "sched.policy: Invalid enum value 'lifo'."),
        ("[sched]\nqueue-depth = 0", "sched.queue-depth: Expected `int` >= 1."),
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
        ("[sign]\nmax-ttl = 0", "sign.max-ttl: Expected `int` >= 1."),
        ("[queues.'a b']", "queues.a b: a queue's name has no blanks"),
        ("[queues.a]\n[queues.b]", "site.toml: policy.jobspec.defaults.system.queue is missing"),
        ("[queues.a]\n[queues.b]\nx = 1", "queues.b: there is no key 'x' here: it is one of "),
        ("[queues.b]\npolicy.limits.x = 1", "queues.b.policy.limits: there is no key 'x' here"),
        ("[queues.b]\nhosts = 'n[1'", "queues.b: hosts: hostlist 'n[1': the bracket at 1"),
        ("[queues.b]\nrequires = ['a&b']", "queues.b: requires: is no property 'a&b'"),
        ("[queues.b]\nrequires = ['^b']", "queues.b: requires: '^b' says what a node must not"),
        ("policy.limits.duration = '5x'", "policy.limits: duration: '5x' is not a duration"),
        ("policy.limits.duration = -1", "policy.limits: duration: -1.0 is not a duration"),
        ("policy.limits.job-size.max.nnodes = -2", "max.nnodes: Expected `int` >= -1."),
        (
            "policy.limits.job-size.min.nnodes = 2\n"
            "[queues.a.policy.limits]\njob-size.max.nnodes = 1",
            "queues.a.policy.limits.job-size: no job has at least 2 and at most 1 nnodes.",
        ),
        ("exec.kill-timeout = 'soon'", "exec: kill-timeout: 'soon' is not a duration"),
        ("job-manager.prolog.timeout = nan", "job-manager.prolog: timeout: nan is not a duration"),
        ("job-manager.housekeeping.release-after = ''", "release-after: '' is not a duration"),
        ("job-manager.inactive-age-limit = '1y'", "inactive-age-limit: '1y' is not a duration"),
        ("resource.exclude = 'n[1'", "resource: exclude: hostlist 'n[1'"),
        ("resource.properties.fast = 'n[1'", "resource: properties.fast: hostlist 'n[1'"),
        ("resource.properties.'a|b' = 'n1'", "resource: properties: is no property 'a|b'"),
        ("resource.properties.'+a' = 'n1'", "resource: properties: '+a' is for the nodes of a"),
        ("[daemons.a]", "daemons.a: has neither prolog nor epilog: name the command that"),
        ("[daemons.a]\nprolog = ['x']", "daemons.a: prolog: 'x' is not an absolute path"),
        ("[daemons.a]\nepilog = ['x']", "daemons.a: epilog: 'x' is not an absolute path"),
        (
            "[daemons.a]\nprolog = ['/x']\n[daemons.b]\nprologue = ['/x']",
            "daemons.b: there is no key 'prologue' here, but there is 'prolog'",
        ),
        ("[daemons.a]\nprolog = ['/x']\ntimeout = 'soon'", "daemons.a: timeout: 'soon' is not"),
        ("[daemons.a]\nprolog = ['/x']\nkill-timeout = 0", "daemons.a: kill-timeout is 0"),
        ("[daemons.'a,b']\nprolog = ['/x']", "daemons.a,b: the key: "),
        ("[daemons.Ab]\nx = 1", "site.toml: daemons.Ab: the key: Expected `str` matching regex"),
        ("resource.properties.x = 3", "site.toml: resource.properties.x: Expected `str`, got"),
        ("rabbit.presets.x = 3", "site.toml: rabbit.presets.x: Expected `str | array`, got"),
        ("storage.most-allocations.xfs = 'x'", "site.toml: storage.most-allocations.xfs: "),
        ("rabbit.presets = {a = '#DW x', b = ['#DW x', 3]}", "rabbit.presets.b[1]: Expected"),
        ("rabbit.policy.maximums.xfs = 'x'", "site.toml: rabbit.policy.maximums.xfs: Expected"),
        ("rabbit.policy.maximums = {xfs = 1, raw = -1}", "maximums.raw: Expected `int` >= 0."),
        (
            "rabbit.policy.maximums.foo = 1",
            "site.toml: rabbit.policy.maximums.foo: the key: Invalid enum value 'foo'.",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_its_path(text: str, words: str) -> None:
    with pytest.raises(UserMistake) as refused:
        config.parse(text, "site.toml")

    assert words in str(refused.value)


def test_limits_of_storage_are_spelled_as_flux_coral2_spells_them() -> None:
    """coral2-spec section 1: seconds, and 0 is no limit."""
    found = config.parse(
        """
        [rabbit]
        tc_timeout = 30
        setup_timeout = "10m"
        prerun_timeout = 0
        """
    ).rabbit
    assert found.seconds("tc_timeout") == 30
    assert found.seconds("setup_timeout") == 600
    assert found.seconds("prerun_timeout") is None
    assert found.seconds("postrun_timeout") is None
    assert config.parse("").rabbit.seconds("tc_timeout") == 10


def test_both_names_of_flux_coral2_restrict_persistent_storage() -> None:
    """It documents one and reads the other (coral2-spec section 1)."""
    for name in ("restrict_persistent", "restrict_persistent_creation"):
        assert config.parse(f"[rabbit]\n{name} = true").rabbit.restricts_persistent
    assert not Config().rabbit.restricts_persistent


def test_the_conductor_has_the_configuration_of_its_instance() -> None:
    given = config.parse('[rabbit]\nsetup_timeout = "10m"\n[storage]\nscale = 3')
    assert config.from_builtins(config.to_builtins(given)) == given


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("", (512, 256)),
        ("containers.memory = '100'", (100, 50)),
        ("containers.user-memory = '300'", (512, 300)),
        ("containers = {memory = '1KiB', user-memory = '1kB'}", (1024, 1000)),
    ],
)
def test_containers_have_half_of_a_machines_memory_and_a_users_half_of_that(
    text: str, limits: tuple[int, int]
) -> None:
    assert config.parse(text).containers.memory_limits(1024) == limits


def test_nodes_are_left_out_by_rank_or_by_name() -> None:
    assert config.parse("resource.exclude = '0-3'").resource.exclude == "0-3"
    assert config.parse("resource.exclude = 'n[0-3]'").resource.exclude == "n[0-3]"


def test_who_is_not_there_yet_is_named_and_not_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        "policy.access.allow-user = ['no-such-user', 'root']\n"
        "queues.a.policy.access.allow-group = ['no-such-group']\n"
    )

    assert list(config.unknown_names(config.load(path))) == [
        ("policy.access", "no-such-user"),
        ("queues.a.policy.access", "no-such-group"),
    ]


def test_what_is_not_as_it_would_be_anyway_can_be_read_back() -> None:
    text = {"queues": {"a": {"hosts": "n1", "policy": {"limits": {"duration": "1h"}}}}}

    assert config.to_builtins(msgspec.convert(text, Config)) == text
    assert config.to_builtins(Config()) == {}


def test_all_users_may_read_the_configuration() -> None:
    site = config.parse("access.allow-guest-user = true")
    bus = Bus(OWNER)
    bus.register("config", LiveConfig(site, unkept).methods())

    told = asyncio.run(bus.handle(GUEST).rpc("config.get"))

    assert told == {"access": {"allow-guest-user": True}}


def test_a_bad_file_is_not_kept(tmp_path: Path) -> None:
    kept, given = tmp_path / "config.toml", tmp_path / "given.toml"
    kept.write_text("[exec]\nkill-timeout = '1s'\n")
    given.write_text("[exec]\nkill = 1\n")

    with pytest.raises(UserMistake):
        config.install(given, kept)

    assert config.load(kept).exec.kill_timeout == "1s"


def test_queues_whose_nodes_may_be_drained_are_there() -> None:
    text = "[queues.a]\nhosts = 'n1'\n[rabbit]\ndrain_queues = ['a', 'b']\n"
    with pytest.raises(UserMistake, match=r"rabbit\.drain_queues\[1\]: there is no queue 'b'"):
        config.parse(text)
    assert config.parse(text.replace(", 'b'", "")).rabbit.drain_queues == ("a",)
    with pytest.raises(UserMistake, match="soft-drain"):
        config.parse("[rabbit]\nsoft-drain = true\n")


@pytest.mark.parametrize(
    ("text", "seconds"), [("90d", 90 * 86400.0), ("infinity", None), ("1000000d", None)]
)
def test_a_lifetime_that_no_calendar_has_is_without_end(text: str, seconds: float | None) -> None:
    assert StorageTable(persistent_max=text).max_lifetime == seconds
