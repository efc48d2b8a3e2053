"""A small PMI-1 client, as a program that a shell starts: it tells, and reads what is told.

`python pmi_client.py ROUNDS` prints what it found in the end.
"""

import os
import socket
import sys


def main(rounds: int) -> None:
    rank, size = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
    with socket.socket(fileno=int(os.environ["PMI_FD"])) as wire, wire.makefile("rw") as lines:

        def ask(request: str) -> dict[str, str]:
            lines.write(f"{request}\n")
            lines.flush()
            return dict(word.partition("=")[::2] for word in lines.readline().split())

        assert ask("cmd=init pmi_version=1 pmi_subversion=1")["rc"] == "0"
        assert ask("cmd=get_universe_size")["size"] == str(size)
        name = ask("cmd=get_my_kvsname")["kvsname"]
        for number in range(rounds):
            put = f"cmd=put kvsname={name} key=card-{number}-{rank} value=at-{rank}"
            assert ask(put)["rc"] == "0"
            assert ask("cmd=barrier_in")["rc"] == "0"
            for other in range(size):
                got = ask(f"cmd=get kvsname={name} key=card-{number}-{other}")
                assert got["value"] == f"at-{other}", got
        mapping = ask(f"cmd=get kvsname={name} key=PMI_process_mapping")["value"]
        assert ask("cmd=finalize")["cmd"] == "finalize_ack"
    print(f"{rank} of {size} on {mapping}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
