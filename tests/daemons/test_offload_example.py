"""The example of docs/offload.md: what a user copies from there gives no token away."""

import os
import re
import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SHELL: Final = re.compile(r"```sh\n(ask\(\) \{.*?^\})$", re.DOTALL | re.MULTILINE)

CURL: Final = """#!/bin/sh
for word; do
    echo "word: $word"
done
cat /dev/fd/3
cat
"""


def test_the_token_is_in_a_header_and_in_no_command_line(tmp_path: Path) -> None:
    found = SHELL.search((ROOT / "docs/offload.md").read_text())
    assert found is not None
    curl = tmp_path / "curl"
    curl.write_text(CURL)
    curl.chmod(0o755)
    script = f'{found[1]}\nask "https://there/trial" -d @- <<END\na body\nEND\n'
    told = {"DW_WORKFLOW_TOKEN": "the.token", "TLS_CERT_PATH": "/cert"}
    path = f"{tmp_path}:{os.environ['PATH']}"
    ran = subprocess.run(
        ["sh", "-c", script],
        env={**told, "PATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    words = [line for line in ran.stdout.splitlines() if line.startswith("word: ")]
    rest = [line for line in ran.stdout.splitlines() if not line.startswith("word: ")]
    assert "word: https://there/trial" in words
    assert not [word for word in words if "the.token" in word]
    assert rest == ["Authorization: Bearer the.token", "Accepts-version: 1.0", "a body"]
