"""Tests of commands, beside instances that live in threads of the same process."""

from collections.abc import Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent

UNCLOSED = "ignore:unclosed .*(_SelectorSocketTransport|socket.socket):ResourceWarning"
"""A connection that an instance accepts while its thread ends is closed with its loop, or by the
collection of memory in a later test, which has not left it."""


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(UNCLOSED))
