"""A command of a profile at work, in place of the copier: as its user, and without a shell.

It is given paths that say what a plan says: a directory ends in a slash as the destination, and as
the source where its contents are meant. Its lines become progress, as far as they say something
of that; they end in a carriage return, too.
"""

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import IO, Final

from msgspec.structs import asdict

from warren.base import memoryfiles
from warren.dws.copies import commands, staging
from warren.dws.node import Copy, Progress
from warren.node import identity, nofollow
from warren.node.copying.tally import error_text

_REPORT_INTERVAL: Final = 0.5
_PIECE_BYTES: Final = 2**16
_LINE_LENGTH: Final = 1000
"""Characters of a line that are looked at, and told."""
_KEPT_LINES: Final = 20
"""Lines that are told of a command that fails."""
_REMARK_LENGTH: Final = 2000
"""Characters that are told of one that does not: each may take twelve of the line that tells it,
and an agent reads 64 KiB of a line."""
_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


class Command:
    """Runs the command of a Copy."""

    def __init__(self, copy: Copy, plan: staging.Plan, *, is_tree: bool) -> None:
        self._copy = copy
        self._plan = plan
        self._is_tree = is_tree
        self._started_at = time.monotonic()
        self._reported_at = 0.0
        self._parsed: dict[str, str] = {}

    def run(self) -> bool:
        """Copy everything; return whether the command says that all went well."""
        try:
            if self._copy.makes_directories:
                self._make_directories()
            # In memory, and inherited: nothing is left of it, however the copier ends.
            with open(memoryfiles.create("hosts"), "w") as hosts:
                hosts.write(self._copy.hosts)
                hosts.flush()
                hosts_path = f"/proc/self/fd/{hosts.fileno()}"
                argv = commands.argument_vector(self._copy, self._plan, self._is_tree, hosts_path)
                return self._run(argv, hosts.fileno())
        except OSError as error:
            print(
                f"{error.filename or self._copy.command[0]}: {error_text(error)}", file=sys.stderr
            )
            return False

    def _make_directories(self) -> None:
        plan = self._plan
        storage = self._copy.destination_storage
        nofollow.make_directories(plan.top, storage)
        flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        parent_fd, path = nofollow.open_directory(plan.top, os.O_PATH, storage), plan.top
        try:
            for name in plan.parts if plan.contents_only else plan.parts[:-1]:
                path = os.path.join(path, name)
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=parent_fd)
                inner_fd = os.open(name, flags, dir_fd=parent_fd)
                os.close(parent_fd)
                parent_fd = inner_fd
                if storage and os.fstat(parent_fd).st_uid != identity.file_user():
                    raise PermissionError(errno.EPERM, "is another user's directory")
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from None
        finally:
            os.close(parent_fd)

    def _run(self, argv: list[str], inherited_fd: int) -> bool:
        environment = {"PATH": _PATH, "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            pass_fds=(inherited_fd,),
        )
        assert process.stdout is not None
        last_lines: list[str] = []
        self._report()
        for line in _lines(process.stdout):
            last_lines = [*last_lines[1 - _KEPT_LINES :], line]
            self._parsed |= commands.parse_output(line)
            if time.monotonic() >= self._reported_at + _REPORT_INTERVAL:
                self._report()
        code = process.wait()
        if code == 0:
            remark = "; ".join(last_lines)[-_REMARK_LENGTH:] if self._copy.tells_output else ""
            self._report(remark)
            return True
        reason = f"killed by signal {-code}" if code < 0 else f"exit status {code}"
        print(
            ": ".join([argv[0], reason, *(["; ".join(last_lines)] if last_lines else [])]),
            file=sys.stderr,
        )
        return False

    def _report(self, remark: str = "") -> None:
        self._reported_at = time.monotonic()
        progress = Progress(
            bytes=0,
            total_bytes=0,
            files=0,
            total_files=0,
            seconds=self._reported_at - self._started_at,
            remark=remark,
            command_status=dict(self._parsed),
        )
        print(json.dumps(asdict(progress)), flush=True)


def _lines(output: IO[bytes]) -> Iterator[str]:
    """Return lines as they come, of which each may be as long as it likes."""
    unfinished = b""
    while piece := os.read(output.fileno(), _PIECE_BYTES):
        *lines, unfinished = (unfinished + piece).replace(b"\r", b"\n").split(b"\n")
        unfinished = unfinished[:_LINE_LENGTH]
        for each in lines:
            if each.strip():
                yield each[:_LINE_LENGTH].decode(errors="replace").strip()
    if unfinished.strip():
        yield unfinished.decode(errors="replace").strip()
