"""Write a text to a file of the kernel's: `python -I filewriter.py FILE`; the text is its input.

A process of its own, since the kernel may take its time for what is asked of it, or for
ever: it can be killed. The text may be a secret, and all users read the arguments of processes.
It imports nothing of ours, to be there at once.
"""

import os
import sys


def main(path: str, text: bytes) -> str | None:
    """Write it at once; return what was wrong, as the kernel says it."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        os.write(descriptor, text)
    except OSError as error:
        return f"{error.strerror}"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.stdin.buffer.read()))
