"""One of four processes that run everything that needs several; one start serves all tests.

Usage: four_processes.py RANK DIR. For P = 1, 2, 3, 4 the first P processes form a group of their own. Each writes what
it found to DIR/NAME-P-RANK.json.
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from distributed import elastic_run, mishaps, same_as_one
from graphact.distributed import disconnect


def main(rank, directory):
    torch.set_num_threads(1)
    for parts in range(rank + 1, 5):
        dist.init_process_group("gloo", init_method=f"file://{directory}/store-{parts}", rank=rank, world_size=parts)
        found = {"same": same_as_one.run(parts)}
        if parts == 2:
            elastic_run.run(rank, directory / "two", directory / "undisturbed")
        if parts == 3:
            found["mishaps"] = mishaps.run(rank, directory)
        for name, finding in found.items():
            (directory / f"{name}-{parts}-{rank}.json").write_text(json.dumps(finding))
        disconnect()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
