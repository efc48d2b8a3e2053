"""Bodies: what is read, what is refused, and that no other waits while a long one is read."""

import asyncio
import io
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.kube.test_api import WORKFLOWS, Caller, told_to_server
from tests.kube.test_protobuf import enveloped, field
from warren.dws.kinds import WORKFLOW
from warren.kube.server.rest import yamltext
from warren.kube.server.rest.bodies import BodyReader, is_nested_deeper
from warren.kube.server.rest.requests import RequestError

PROTOBUF = "application/vnd.kubernetes.protobuf"
YAML = {"Content-Type": "application/yaml"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}

PLAIN = st.none() | st.booleans() | st.text() | st.integers(-(2**63), 2**64 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
VALUES: st.SearchStrategy[Any] = st.recursive(
    PLAIN | FLOATS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)


def read(text: str | bytes, max_depth: int = 20) -> Any:
    return yamltext.load(text.encode() if isinstance(text, str) else text, max_depth=max_depth)


def refused(text: str | bytes, max_depth: int = 20) -> str:
    with pytest.raises(yamltext.Malformed) as caught:
        read(text, max_depth)
    return str(caught.value)


# YAML


@given(VALUES, st.sampled_from([None, False, True]))
def test_what_yaml_says_of_a_json_value_is_that_value(value: Any, flow: bool | None) -> None:
    assert read(yaml.safe_dump(value, default_flow_style=flow)) == value


@given(
    st.binary(max_size=60)
    | st.text("[]{}:,-?&*!<>|'\"#%@ab01.~\n\t eE_x", max_size=60)
    | st.lists(
        st.sampled_from(["? ", "- ", "a: ", "[", "]", "{", "}", "&a ", "*a", "!!int ", "!!bool ",
                         "!!float ", "!!null ", ".inf", "1:30", "0x_", "0b", "-0b_", "1e999",
                         "--- ", "...\n", "\n", "2001-99-99", "=", "<<: ", "! "])
    ).map("".join)
)  # fmt: skip
def test_any_text_is_refused_or_says_what_json_can_say(text: str | bytes) -> None:
    try:
        value = read(text)
    except yamltext.Malformed:
        return
    assert orjson.loads(orjson.dumps(value)) == value


def test_a_short_text_that_stands_for_a_long_one_is_refused() -> None:
    bomb = "a: &a [x]\n" + "".join(
        f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n"
        for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert refused(bomb) == ("line 2 repeats *a: aliases are not read here, write the value out")
    assert refused("a: &a {x: y}\nb: {<<: *a}").startswith("line 2 repeats *a")
    assert refused("&a [*a]").startswith("line 1 repeats *a")


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_values_that_are_nested_too_deeply_are_refused(opening: str) -> None:
    assert refused(opening * 100_000) == "in line 1 values are nested deeper than 20 levels"


def test_as_deep_as_may_be_is_read() -> None:
    assert not is_nested_deeper(read("[" * 20 + "]" * 20), 20)
    assert is_nested_deeper(read("[" * 20 + "]" * 20), 19)
    refused("[" * 21 + "]" * 21)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("a: 2001-01-01", {"a": "2001-01-01"}),
        ("a: 2026-01-01T00:00:00Z", {"a": "2026-01-01T00:00:00Z"}),
        ("1: 2\nyes: no", {"1": 2, "yes": False}),
        ("a: ! 5", {"a": "5"}),
        ("a: !!str 5", {"a": "5"}),
        ("a: 0x1F", {"a": 31}),
        ("a: 36893488147419103232", {"a": 2.0**65}),
        ("<<: {a: 1}", {"<<": {"a": 1}}),
        ("!!map {a: !!seq [1]}", {"a": [1]}),
    ],
)
def test_what_json_cannot_say_becomes_what_it_can(text: str, value: Any) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "a: .nan", "a: -.inf", "a: 1.0e+999", "a: 0x" + "f" * 900, "a: 1" + ":1" * 100_000,
        "a: " + "1" * 100_000, "a: !!int x", "a: !!bool maybe", "a: !!binary YQ==", "!!set {a}",
        "!!python/object:os.system {}", "[1]: 2", "{a: 1}: 2", "--- 1\n--- 2", "a: [", "\tx: 1",
    ],
)  # fmt: skip
def test_what_json_cannot_say_at_all_is_refused(text: str) -> None:
    assert len(refused(text)) < 300


# Levels


@given(VALUES)
def test_the_levels_of_a_value_are_counted(value: Any) -> None:
    def levels(it: Any) -> int:
        inner = it.values() if isinstance(it, dict) else it if isinstance(it, list) else None
        return 0 if inner is None else 1 + max(map(levels, inner), default=0)

    assert not is_nested_deeper(value, levels(value))
    assert levels(value) == 0 or is_nested_deeper(value, levels(value) - 1)


# Requests


@dataclass
class Sent:
    """A request, as far as its body goes."""

    data: bytes
    content_type: str = "application/yaml"

    async def read(self) -> bytes:
        return self.data


def test_the_event_loop_goes_on_while_a_long_body_is_read() -> None:
    async def turns(bodies: BodyReader, sent: Sent) -> int:
        """Count how often others have their turn before a body is read."""
        count = 0

        async def others() -> None:
            nonlocal count
            while True:
                await asyncio.sleep(0)
                count += 1

        beside = asyncio.ensure_future(others())
        await bodies.read_value(sent)  # type: ignore[arg-type]
        beside.cancel()
        return count

    long = Sent(b"a: b\nc: " + b"x" * 1000)
    for sent in (long, Sent(enveloped("v1", "ConfigMap", b""), PROTOBUF)):
        assert asyncio.run(turns(BodyReader(small_bytes=10), sent)) > 0
    assert asyncio.run(turns(BodyReader(small_bytes=2000), long)) == 0


def test_yaml_has_a_bound_of_its_own_and_what_is_json_has_not() -> None:
    bodies = BodyReader(max_yaml_bytes=100)

    async def main() -> None:
        with pytest.raises(RequestError) as caught:
            await bodies.read_value(Sent(b"a: " + b"x" * 100))  # type: ignore[arg-type]
        assert (caught.value.code, caught.value.reason) == (413, "RequestEntityTooLarge")
        assert str(caught.value) == (
            "the body is 103 bytes of YAML, of which 100 are read: send it as JSON, of which "
            f"{3 * 2**20} are"
        )
        assert await bodies.read_value(Sent(b'{"a": "' + b"x" * 100 + b'"}')) == {"a": "x" * 100}  # type: ignore[arg-type]

    asyncio.run(main())


OWNED = field(17, field(7, field(1, b'{"f:a":' * 101 + b"{}" + b"}" * 101)))

DEEP = {
    "JSON": (b'{"spec":' * 101 + b"1" + b"}" * 101, "application/json"),
    "JSON in a list": (b'{"a":' + b"[" * 101 + b"]" * 101 + b"}", "application/json"),
    "JSON as YAML": (b'{"spec":' * 101 + b"1" + b"}" * 101, "application/yaml"),
    "YAML": (b"{spec: " * 101 + b"1" + b"}" * 101, "application/yaml"),
    "protobuf": (enveloped("v1", "ConfigMap", field(1, OWNED)), PROTOBUF),
}


@pytest.mark.parametrize("sort", DEEP)
@told_to_server
async def test_what_is_nested_too_deeply_is_a_bad_request(caller: Caller, sort: str) -> None:
    data, content = DEEP[sort]
    headers = {"Content-Type": content}
    code, status = await caller.ask("POST", WORKFLOWS, data=data, headers=headers)
    assert (code, status["reason"]) == (400, "BadRequest")
    assert "nested deeper than 100 levels" in status["message"]


@told_to_server
async def test_yaml_is_created_and_applied(caller: Caller) -> None:
    text = yaml.safe_dump({"metadata": {"name": "one"}, "spec": {"jobID": 1}}).encode()
    code, made = await caller.ask("POST", WORKFLOWS, data=text, headers=YAML)
    assert (code, made["spec"]) == (201, {"jobID": 1})
    applied = f"apiVersion: {WORKFLOW.api_version}\nkind: Workflow\nspec: {{jobID: 2}}".encode()
    where = f"{WORKFLOWS}/two?fieldManager=me"
    code, made = await caller.ask("PATCH", where, data=applied, headers=APPLY)
    assert (code, made["spec"]) == (201, {"jobID": 2})


@told_to_server
async def test_yaml_that_is_too_long_is_refused_before_it_is_read(caller: Caller) -> None:
    text = b"data:\n" + b"".join(b"  k%d: v\n" % number for number in range(200_000))
    code, status = await caller.ask("POST", WORKFLOWS, data=io.BytesIO(text), headers=YAML)
    assert (code, status["reason"]) == (413, "RequestEntityTooLarge")
    assert "send it as JSON" in status["message"]
