"""A real Flux of one broker, and an agent in it that does what tests say."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

AGENT = Path(__file__).with_name("agent.py")

_SECONDS = 60
"""How long a broker may take to end, before it is made to."""

_CONFIG = """
[access]
allow-guest-user = true
[exec.testexec]
allow-guests = true
[resource]
noverify = true
[[resource.config]]
hosts = "{host}"
cores = "0-15"
"""
"""More cores than a machine may have: most jobs only take time."""


class Refused(Exception):
    """What was asked of Flux is refused."""


class Broker:
    """A Flux, as long as its process lives."""

    def __init__(self, process: "subprocess.Popen[str]", plugins: Path, home: Path) -> None:
        self.plugins = plugins
        self.home = home
        self._process = process

    @classmethod
    @contextmanager
    def started(cls, plugins: Path, *, sanitized: bool = False) -> Iterator["Broker"]:
        """Start a Flux for the length of a block."""
        # Not where pytest keeps files: the names of sockets may not be long.
        home = Path(tempfile.mkdtemp(prefix="flux-", dir="/tmp"))
        (home / "flux.toml").write_text(_CONFIG.format(host=socket.gethostname()))
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith("FLUX_")
        }
        environment |= {"TMPDIR": str(home), "HOME": str(home), "LC_ALL": "C.UTF-8"}
        if sanitized:
            preload = subprocess.run(
                ["make", "-s", "-C", str(plugins.parent), "preload"],
                check=True,
                capture_output=True,
                text=True,
            ).stdout.strip()
            # Python's own memory is never given back: its loss is no mistake of ours.
            environment |= {
                "LD_PRELOAD": preload,
                "FLUX_LOAD_WITH_DEEPBIND": "0",
                "ASAN_OPTIONS": f"detect_leaks=0:log_path={home}/sanitizer",
                "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={home}/sanitizer",
            }
        command = ["flux", "start", f"--config-path={home}/flux.toml", f"-Srundir={home}"]
        with (home / "stderr").open("w") as stderr:
            process = subprocess.Popen(
                [*command, "flux", "python", str(AGENT)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=environment,
                start_new_session=True,
            )
        try:
            found = cls(process, plugins, home)
            found._read()
            yield found
        finally:
            with suppress(BrokenPipeError):  # of a broker that has ended by itself
                process.stdin.close()  # type: ignore[union-attr]
            try:
                process.wait(_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            process.stdout.close()  # type: ignore[union-attr]
            reports = [path.read_text() for path in home.glob("sanitizer*")]
            sys.stderr.write((home / "stderr").read_text())
            shutil.rmtree(home)
        assert not reports, "\n".join(reports)

    def do(self, what: str, **arguments: Any) -> Any:
        """Have the agent do something. Raises Refused."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **arguments}) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Refused(f"Flux has ended: {(self.home / 'stderr').read_text()}")
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer

    def rpc(self, topic: str, payload: Mapping[str, Any], userid: int | None = None) -> Any:
        """Ask something of Flux, as its owner or as a guest. Raises Refused."""
        return self.do("rpc", topic=topic, payload=payload, userid=userid)["answer"]

    def load(self, **conf: Any) -> None:
        """Load the jobtap plugin, anew where it is there already."""
        self.unload()
        self.rpc("job-manager.jobtap", self.loading(**conf))

    def loading(self, **conf: Any) -> dict[str, Any]:
        """Return the request to load the jobtap plugin."""
        path = str(self.plugins / "dws-jobtap.so")
        return {"load": path, "conf": {"retry-interval": 0.1, **conf}}

    def unload(self) -> None:
        """Remove the jobtap plugin."""
        loaded = self.rpc("job-manager.jobtap", {"query_only": True})["plugins"]
        if any(each.endswith("dws-jobtap.so") for each in loaded):
            self.rpc("job-manager.jobtap", {"remove": "dws-jobtap.so"})

    def query(self) -> Any:
        """Return what the plugin tells of itself."""
        return self.rpc("job-manager.jobtap-query", {"name": "dws-jobtap.so"})
