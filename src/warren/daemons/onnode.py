"""Run a program on an emulated node: `python -m warren.daemons.onnode STATEDIR PROGRAM ...`.

A launcher of several processes runs it in front of each: `PMI_RANK` is which node is meant, of
all that the cluster has.
"""

import os
import sys
from pathlib import Path

from warren.daemons import clustershape
from warren.daemons.nodes import Nodes
from warren.daemons.statedir import StateDir


def main() -> None:
    """Enter the node, and become the program. Raises OSError, and NodeTrouble."""
    state_dir = StateDir(Path(sys.argv[1]))
    shape = clustershape.load(state_dir.shape_file)
    assert shape is not None
    computes = [host for each in shape.chassis() for host in each.hosts]
    Nodes(state_dir, shape, isolated=True).enter(computes[int(os.environ["PMI_RANK"])])
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
