"""What the commands share: how job ids are spelled for people."""

import pytest

from warren.cli.common import f58
from warren.cli.jobread import log_path

PLAIN, UNICODE = "fuZZybuNNy", "ƒuZZybuNNy"


@pytest.mark.parametrize(
    ("environment", "spelled"),
    [
        ({}, UNICODE),
        ({"LANG": "C.UTF-8"}, UNICODE),
        ({"LANG": "en_US.utf8"}, UNICODE),
        ({"LANG": "C"}, PLAIN),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, UNICODE),
        ({"LC_ALL": "en_US.ISO-8859-1", "LC_CTYPE": "C.UTF-8"}, PLAIN),
        ({"LANG": "C.UTF-8", "FLUX_F58_FORCE_ASCII": "1"}, PLAIN),
    ],
)
def test_ids_have_no_letter_that_the_locale_lacks(
    environment: dict[str, str], spelled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LC_ALL", "LC_CTYPE", "LANG", "FLUX_F58_FORCE_ASCII"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert f58(6731191091817518) == spelled


def test_logs_are_named_in_short_or_in_full() -> None:
    assert log_path("exec") == log_path("guest.exec.eventlog") == "guest.exec.eventlog"
    assert (log_path("output"), log_path("input")) == ("guest.output", "guest.input")
