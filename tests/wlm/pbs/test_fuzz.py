"""Whatever ATOM answers and whatever is configured, the hook comes to a verdict in time."""

import json
import re
import string
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.harness.extent import extent
from tests.wlm.pbs import moms
from tests.wlm.pbs.atoms import answers, behaving, says
from tests.wlm.pbs.moms import scenario
from warren.wlm.pbs import simulatedmom

CODE = simulatedmom.compile_hook(str(moms.played_hook()))


def played(told: simulatedmom.Scenario) -> tuple[str, str, str]:
    """Return the outcome, the message and the log of a run in this process."""
    reports: list[dict[str, Any]] = []
    simulatedmom.HookRun(told, reports.append).run(CODE)
    log = [each["log"][1] for each in reports if "log" in each]
    assert all(line.isprintable() and line.isascii() and len(line) < 2100 for line in log)
    last = reports[-1]
    return last["outcome"], last["message"], "\n".join(log)


_names = st.text(string.ascii_letters + string.digits + "-", min_size=1, max_size=8)
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3),
    max_leaves=5,
)
_good: dict[str, st.SearchStrategy[Any]] = {
    "post_timeout": st.integers(1, 86400) | st.floats(1.0, 86400),
    "delete_timeout": st.integers(1, 86400) | st.floats(1.0, 86400),
    "unix_socket_file": st.none() | _names.map(lambda name: f"/nonexistent/{name}"),
    "sharing": st.none() | st.sampled_from([name[3:].lower() for name in simulatedmom.SHARING]),
}
_tunables = st.fixed_dictionaries({}, optional=_good)
_valid = st.builds(
    lambda top, nodes, kinds: {**top, **nodes, **kinds},
    _tunables,
    st.fixed_dictionaries({}, optional={"nodes": st.dictionaries(_names, _tunables, max_size=3)}),
    st.fixed_dictionaries({}, optional={"vn_type": st.dictionaries(_names, _tunables, max_size=3)}),
)


def _configured(text: str, event: str) -> tuple[str, str, str]:
    with tempfile.NamedTemporaryFile("w", suffix=".CF", errors="surrogatepass") as opened:
        opened.write(text)
        opened.flush()
        return played(scenario(event, Path(opened.name)))


@settings(max_examples=300, deadline=None)
@given(_valid)
def test_a_valid_configuration_is_used(config: dict[str, Any]) -> None:
    outcome, message, log = _configured(json.dumps(config), "execjob_begin")
    own = config.get("nodes", {}).get(moms.NODE, {})
    place = {"unix_socket_file": moms.NOWHERE, **config, **own}["unix_socket_file"]
    if place is None:
        assert (outcome, "no ATOM is configured" in log) == ("accept", True)
    else:
        assert (outcome, f"there is no socket {place}:" in message) == ("error", True)


def _is_fine(key: str, value: Any) -> bool:
    """Judge a tunable in another way than the hook does."""
    if key.endswith("timeout"):
        return type(value) in (int, float) and 0 < value <= 86400
    if key == "unix_socket_file":
        return value is None or (
            type(value) is str
            and value[:1] == "/"
            and "\0" not in value
            and len(value.encode(errors="surrogatepass")) <= 107
        )
    if key == "sharing":
        return value is None or f"ND_{value}".upper() in simulatedmom.SHARING
    if key in ("nodes", "vn_type"):
        return type(value) is dict and all(
            type(table) is dict
            and all(name not in _good or _is_fine(name, each) for name, each in table.items())
            for table in value.values()
        )
    return True  # an unknown key is ignored


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


_nearly = st.one_of(
    _values,
    st.integers(-1, 86401),
    st.text("/x\0", max_size=4).map(lambda text: text * 40),
    st.dictionaries(_names, st.dictionaries(st.sampled_from([*_good, "x"]), _values, max_size=2)),
)


@settings(max_examples=500, deadline=None)
@given(_valid, st.sampled_from([*_good, "version_uri", "more", "nodes", "vn_type"]), _nearly)
def test_any_value_is_valid_or_refused_by_its_key(
    config: dict[str, Any], key: str, value: Any
) -> None:
    text = json.dumps({**config, key: value})
    outcome, message, _ = _configured(text, "execjob_end")
    refused = "cannot be used" in message
    assert refused != (_is_fine(key, value) and _is_json(value)), message
    if refused:
        assert outcome == "reject"
        assert key in message or "is not a number" in message


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60))
@example('{"a":' * 5000)
@example("\0")
@example('"\ud800"')
def test_any_text_is_a_configuration_or_refused(text: str) -> None:
    outcome, message, _ = _configured(text, "execjob_begin")
    assert outcome == "error"
    assert "cannot be used" in message or "there is no socket" in message


_lines = st.sampled_from(
    [
        b"HTTP/1.1 200 OK", b"HTTP/1.0 200 OK", b"HTTP/1.1 100 Go on", b"HTTP/1.1 400 No",
        b"HTTP/1.1 204 Done", b"HTTP/2 200", b"HTTP/1.1 -1 x", b"HTTP/1.1 20", b"ICY 200 OK",
        b"Content-Length: 2", b"Content-Length: -1", b"Content-Length: x", b"Content-Length: 9",
        b"Transfer-Encoding: chunked", b"Connection: keep-alive", b": x", b"\xff: \xfe", b"",
        b"2", b"{}", b"0", b"fffffffff", b"-2", b"\0", b"X" * 70_000,
    ]
)  # fmt: skip
_replies = st.one_of(
    st.binary(max_size=200),
    st.lists(_lines, max_size=8).map(b"\r\n".join),
    st.lists(_lines, max_size=6).map(lambda lines: b"HTTP/1.1 200 OK\r\n" + b"\r\n".join(lines)),
)


@settings(max_examples=extent("WARREN_EXAMPLES", usual=100, everything=300), deadline=None)
@given(_replies, st.sampled_from(["close", "hang"]), st.sampled_from([200, 204, 404, 500]))
def test_any_answer_comes_to_a_verdict_and_a_registration_is_never_left_unasked(
    reply: bytes, then: str, cleared: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "sock"
        config = Path(directory) / "CF"
        limits = {"post_timeout": 0.1, "delete_timeout": 5}
        config.write_text(json.dumps({**limits, "unix_socket_file": str(path)}))
        with behaving(path, [says(reply, then=then), answers(cleared)]) as atom:
            outcome, message, log = played(scenario("execjob_begin", config))
        codes = re.findall(r"POST status code = (\d+)", log)
        if outcome == "accept":
            assert codes[-1] == "200"
            assert atom.methods[-1] == "POST"
        else:
            assert (outcome, bool(message)) == ("error", True)
            # Where ATOM may have the job, and its end will not be told, it is deleted.
            unclear = len(codes) < atom.methods.count("POST") or not "300" <= codes[-1] < "500"
            assert not unclear or atom.methods[-1] == "DELETE"
