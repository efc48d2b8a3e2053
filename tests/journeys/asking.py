"""What a job's program is in tests of copies that it asks for: `asking.py METHOD PATH [JSON]`.

It knows nothing but the variables that its job has, and prints what it is answered, or, for the
answer `name=NAME`, NAME. With PATIENT=1 it asks again while nothing answers.
"""

import http.client
import os
import ssl
import sys
import time
from collections.abc import Mapping


def ask(known: Mapping[str, str], method: str, path: str, body: str | None = None) -> str:
    """Return the status and the text of an answer."""
    context = ssl.create_default_context(cafile=known["TLS_CERT_PATH"])
    connection = http.client.HTTPSConnection(
        known["NNF_CONTAINER_LAUNCHER"],
        int(known["NNF_CONTAINER_PORTS"].split(",")[0]),
        context=context,
        timeout=120,
    )
    headers = {"Accepts-version": "1.0"}
    if known.get("DW_WORKFLOW_TOKEN"):
        headers["Authorization"] = f"Bearer {known['DW_WORKFLOW_TOKEN']}"
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return f"{answer.status} {answer.read().decode().strip()}"
    finally:
        connection.close()


def main() -> None:
    while True:
        try:
            said = ask(os.environ, *sys.argv[1:])
        except OSError:
            if "PATIENT" not in os.environ:
                raise
            time.sleep(0.2)
        else:
            print(said.removeprefix("200 name="))
            return


if __name__ == "__main__":
    main()
