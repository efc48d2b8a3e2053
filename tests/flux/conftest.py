"""A real Flux for tests: its plugins are built, and one broker serves a module."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flux.broker import Broker
from warren.daemons import temporaryflux

SOURCES = Path(__file__).parents[2] / "plugins" / "flux"

SANITIZED = os.environ.get("WARREN_FLUX_SANITIZE") == "1"
"""Whether the plugins are to be tried with the sanitizers, and so the broker that loads them."""


def missing() -> str | None:
    """Say what is missing for tests with a real Flux; None if all is there."""
    if shutil.which("flux") is None:
        return "flux is not installed"
    for program in ("make", "cc", "pkg-config"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    for library in ("flux-core", "jansson"):
        if subprocess.run(["pkg-config", "--exists", library]).returncode != 0:
            return f"pkg-config does not find {library}"
    return None


@pytest.fixture(scope="session")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the plugins, built from their sources as they are now."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    built = tmp_path_factory.mktemp("plugins")
    for each in (*SOURCES.glob("*.c"), SOURCES / "Makefile"):
        shutil.copy(each, built)
    target = "sanitize" if SANITIZED else "all"
    subprocess.run(["make", "-s", "-C", str(built), target], check=True)
    return built / "sanitize" if SANITIZED else built


@pytest.fixture(scope="session")
def fluxion(plugins: Path) -> None:
    """For tests that take Fluxion."""
    if not temporaryflux.has_fluxion():
        pytest.skip("Fluxion is not installed")


@pytest.fixture(scope="module")
def broker(plugins: Path) -> Iterator[Broker]:
    """A Flux with one broker and no plugin of ours."""
    with Broker.started(plugins, sanitized=SANITIZED) as found:
        yield found
