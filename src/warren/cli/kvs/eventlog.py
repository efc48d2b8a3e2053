"""`warren kvs eventlog`: keys whose values are eventlogs (RFC 18)."""

from contextlib import aclosing
from typing import TYPE_CHECKING

import click
import orjson

from warren.base.clock import SystemClock
from warren.base.errors import UserMistake
from warren.cli.commandgroups import Group
from warren.cli.common import ask_instance, json_option, statedir_option
from warren.cli.kvs.common import commit, namespace_option, operation, values
from warren.daemons.statedir import StateDir
from warren.rfc import eventlog as eventlogs
from warren.rfc import treeobj
from warren.rfc.errors import BadFormat
from warren.rfc.eventlog import Event
from warren.rfc.kvsflags import STREAM, TXN_APPEND, WAITCREATE, WATCH, WATCH_APPEND

if TYPE_CHECKING:
    from warren.rpc.message import Handle


@click.group("eventlog", cls=Group)
def eventlog() -> None:
    """Read and append to eventlogs."""


@eventlog.command("get")
@statedir_option
@namespace_option
@json_option
@click.option("-w", "--watch", is_flag=True, help="Print new events as they come, too.")
@click.option("-W", "--waitcreate", is_flag=True, help="Wait for a log that does not exist yet.")
@click.option("-u", "--unformatted", is_flag=True, help="Print events as they are stored.")
@click.option("-c", "--count", type=click.IntRange(1), metavar="N", help="End after N events.")
@click.argument("key")
def eventlog_get(
    statedir: StateDir,
    namespace: str,
    as_json: bool,
    watch: bool,
    waitcreate: bool,
    unformatted: bool,
    count: int | None,
    key: str,
) -> None:
    """Print the events of a log."""
    flags = STREAM | (WATCH | WATCH_APPEND if watch else 0) | (WAITCREATE if waitcreate else 0)

    async def print_events(handle: "Handle") -> None:
        event_count, unfinished = 0, b""
        async with aclosing(values(handle, namespace, key, flags, None)) as parts:
            async for value in parts:
                *lines, unfinished = (unfinished + treeobj.read_val(value)).split(b"\n")
                for line in lines:
                    click.echo(_line(key, line, as_stored=unformatted or as_json))
                    event_count += 1
                    if event_count == count:
                        return
        if unfinished and not watch:
            raise UserMistake(f"{key} is no eventlog: its last line does not end.")

    ask_instance(statedir, print_events)


def _line(key: str, line: bytes, *, as_stored: bool) -> str:
    try:
        text = line.decode()
        event = eventlogs.decode_line(text)
    except UnicodeDecodeError as error:
        raise UserMistake(f"{key} is no eventlog: a line is not UTF-8: {error}.") from error
    except BadFormat as error:
        raise UserMistake(f"{error}.") from error
    if as_stored:
        return text
    context = "".join(
        f" {name}={orjson.dumps(value).decode()}" for name, value in event.context.items()
    )
    return f"{event.timestamp:.6f} {event.name}{context}"


@eventlog.command("append")
@statedir_option
@namespace_option
@click.option("-t", "--timestamp", type=click.FloatRange(0, min_open=True), metavar="SECONDS",
              help="The time of the event (default: now).")  # fmt: skip
@click.argument("key")
@click.argument("name")
@click.argument("context", nargs=-1)
def eventlog_append(
    statedir: StateDir,
    namespace: str,
    timestamp: float | None,
    key: str,
    name: str,
    context: tuple[str, ...],
) -> None:
    """Append an event to a log. CONTEXT is a JSON object."""
    try:
        decoded_context = orjson.loads(" ".join(context)) if context else {}
        if not isinstance(decoded_context, dict):
            raise UserMistake("The context of an event is a JSON object.")
        moment = SystemClock().now() if timestamp is None else timestamp
        text = eventlogs.encode(Event(moment, name, decoded_context))
        eventlogs.decode(text)
    except orjson.JSONDecodeError as error:
        raise UserMistake(f"The context is not JSON: {error}.") from error
    except BadFormat as error:
        raise UserMistake(f"{error}.") from error
    commit(statedir, namespace, [operation(key, treeobj.val(text.encode()), TXN_APPEND)])
