"""Registering the hook: what is said to qmgr, from whatever is there, and what is judged of it."""

import shlex
from collections.abc import Mapping

import pytest

from warren.base.errors import UserMistake
from warren.wlm.pbs import hookfile, hooksetup
from warren.wlm.pbs.checks import check_hook
from warren.wlm.pbs.hooksetup import QmgrDirective, RegisteredHook

DEFAULTS = {
    "type": "site",
    "enabled": "true",
    "event": "",
    "user": "pbsadmin",
    "alarm": "30",
    "order": "1",
    "debug": "false",
    "fail_action": "none",
}


class FakeServer:
    """A server's hooks, which refuses what PBS's server refuses (measured: 23.06)."""

    def __init__(self) -> None:
        self.hooks: dict[str, dict[str, str]] = {}
        self.contents: dict[tuple[str, str], bytes] = {}

    def perform(self, said: list[QmgrDirective], most: int = 1000) -> None:
        for directive in said[:most]:
            verb, _, name, *rest = shlex.split(directive.command)
            if verb == "create":
                assert name not in self.hooks
                self.hooks[name] = dict(DEFAULTS)
            elif verb == "set":
                key, value = rest[0].split("=", 1)
                if key == "fail_action" and "execjob_begin" not in self.hooks[name]["event"]:
                    raise AssertionError("hook event must contain at least one of execjob_begin")
                self.hooks[name][key] = value
            elif verb == "import":
                assert rest[1:] == ["default", "-"]
                self.contents[name, rest[0]] = directive.content
            else:
                assert verb == "delete"
                del self.hooks[name]

    def registered(self, name: str) -> RegisteredHook | None:
        if name not in self.hooks:
            return None
        return RegisteredHook(
            attributes=self.hooks[name],
            source=self.contents.get((name, "application/x-python"), b""),
            config=self.contents.get((name, "application/x-config"), b""),
        )


def installed(
    server: FakeServer,
    *,
    config: bytes | None = None,
    enable: bool | None = None,
    most: int = 1000,
) -> list[QmgrDirective]:
    said = hooksetup.install_directives("cray_atom", server.registered("cray_atom"), config, enable)
    server.perform(said, most)
    return said


def complaints(server: FakeServer) -> list[str]:
    found = server.registered("cray_atom")
    assert found is not None
    return [check.name for check in check_hook("cray_atom", found) if not check.met]


def test_a_new_hook_has_the_attributes_of_the_design_and_is_off() -> None:
    server = FakeServer()
    installed(server)
    wanted = {**DEFAULTS, **hookfile.attributes()}
    assert server.hooks["cray_atom"] == wanted
    assert server.contents["cray_atom", "application/x-python"] == hookfile.source()
    assert server.contents["cray_atom", "application/x-config"] == hookfile.default_config()
    assert complaints(server) == ["hook"]
    assert installed(server) == []


def test_it_is_never_enabled_before_it_is_whole() -> None:
    server = FakeServer()
    said = hooksetup.install_directives("cray_atom", None, None, enable=True)
    for count in range(len(said) + 1):
        server.perform(said[count - 1 : count] if count else [])
        hook = server.hooks.get("cray_atom", {"enabled": "false"})
        whole = ("cray_atom", "application/x-python") in server.contents
        assert hook["enabled"] == "false" or whole or hook["event"] == ""
    assert complaints(server) == []


@pytest.mark.parametrize("most", range(10))
def test_a_client_that_is_stopped_in_the_middle_runs_it_again(most: int) -> None:
    server, whole = FakeServer(), FakeServer()
    installed(server, enable=True, most=most)
    installed(server, enable=True)
    installed(whole, enable=True)
    assert (server.hooks, server.contents) == (whole.hooks, whole.contents)


def test_what_is_there_keeps_what_its_administrator_gave_it() -> None:
    server = FakeServer()
    own = b'{"post_timeout": 5}'
    installed(server, config=own, enable=True)
    server.hooks["cray_atom"].update(alarm="60", order="7")
    server.contents["cray_atom", "application/x-python"] = hookfile.source()[:100]
    assert complaints(server) == ["source", "alarm"]
    assert [each.command for each in installed(server)] == [
        "import hook cray_atom application/x-python default -"
    ]
    assert server.hooks["cray_atom"]["alarm"] == "60"
    assert server.contents["cray_atom", "application/x-config"] == own
    assert [each.command for each in installed(server, config=b"{}", enable=False)] == [
        "import hook cray_atom application/x-config default -",
        "set hook cray_atom enabled=false",
    ]


def test_another_hook_of_the_name_is_left_alone() -> None:
    other = RegisteredHook(attributes=DEFAULTS, source=b"import pbs\n", config=b"")
    with pytest.raises(UserMistake, match="is another one: choose a name with --name"):
        hooksetup.install_directives("cray_atom", other, None, None)
    with pytest.raises(UserMistake, match="is left alone"):
        hooksetup.uninstall_directives("cray_atom", other)
    assert [check.met for check in check_hook("cray_atom", other)] == [False]


def test_it_is_off_before_it_is_gone() -> None:
    server = FakeServer()
    installed(server, enable=True)
    said = hooksetup.uninstall_directives("cray_atom", server.registered("cray_atom"))
    assert [each.command for each in said] == [
        "set hook cray_atom enabled=false",
        "delete hook cray_atom",
    ]
    server.perform(said)
    assert hooksetup.uninstall_directives("cray_atom", server.registered("cray_atom")) == []


@pytest.mark.parametrize("name", ["PBS_cray_atom", "", "a b", "a\nb", "-x", "a;b", "x" * 65])
def test_names_that_pbs_does_not_take_or_that_say_more_are_refused(name: str) -> None:
    with pytest.raises(UserMistake, match="--name"):
        hooksetup.check_name(name)


@pytest.mark.parametrize(
    ("attributes", "config", "expected"),
    [
        ({}, b"", []),
        ({"enabled": "false"}, b"", ["hook"]),
        ({"event": "execjob_begin"}, b"", ["events"]),
        ({"fail_action": "none"}, b"", ["fail_action"]),
        ({"fail_action": "offline_vnodes,scheduler_restart_cycle"}, b"", []),
        ({"alarm": "100"}, b"", ["alarm"]),
        ({"alarm": "100"}, b'{"post_timeout": 10, "delete_timeout": 10}', []),
        ({}, b'{"post_timeout": 0}', ["configuration"]),
        ({}, b"\xff", ["configuration"]),
    ],
)
def test_what_is_wrong_with_a_registered_hook_is_named(
    attributes: Mapping[str, str], config: bytes, expected: list[str]
) -> None:
    server = FakeServer()
    installed(server, enable=True)
    server.hooks["cray_atom"].update(attributes)
    server.contents["cray_atom", "application/x-config"] = config
    assert complaints(server) == expected
