"""Effect of the start of teams and the gain of the expert: ``studies/flocking_connected.py results/flocking/parts``.

Published policies, trained on teams of 50, fly teams of several sizes. Teams that start in parts that do not hear each
other keep several velocities, whoever flies them by messages. The cost is over that of the expert whose gain is the
size that was trained with, and over that of the expert whose gain is the size that flies. ``--beside`` names a folder
with rows of policies that were trained on connected teams and flown on these: a column has the paired differences.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import graphact
from graphact_lab.experiments.flocking.experiment import ORDER, USUAL, Flocking
from graphact_lab.experiments.flocking.policies import Policies
from graphact_lab.experiments.flocking.runner import Airfield
from graphact_lab.protocols import file_key
from graphact_lab.statistics import choose, difference
from graphact_lab.store import Store


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--methods", nargs="+", default=["relu", "max-ga", "tanh"])
    parser.add_argument("--agents", nargs="+", type=int, default=[50, 200])
    parser.add_argument("--realizations", type=int, default=10)
    parser.add_argument("--tests", type=int, default=20, help="teams for each realization")
    parser.add_argument("--starts", nargs="+", choices=("connected", "any"), default=["connected", "any"])
    parser.add_argument("--beside", type=Path, help="a folder of rows of policies that were trained on connected teams")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    store = Store(options.results)
    networks = [row for row in store.rows() if row["kind"] == "model" and row["order"] == ORDER and not row["delayed"]]
    folders = {
        row["method"]: store.directory / "models" / file_key(f"{row['method']}-K{ORDER}", row["settings"])
        for row in networks
    }
    beside = [] if options.beside is None else Store(options.beside).rows()
    base, trained = Flocking("full", (), {}, options.realizations, options.tests), USUAL["agents"]
    header = ["start", "agents", "policy", f"over the expert of gain {trained}", "over that of gain N"]
    header += ["minus those trained on connected teams"] * bool(beside)
    sys.stdout.write(f"| {' | '.join(header)} |\n|---|---:|---|{'---:|' * (len(header) - 3)}\n")
    for start in options.starts:
        field = Airfield(replace(base, world={"connected": start == "connected"}), 0, options.device)
        for agents in options.agents:
            for method in options.methods:
                files = [folders[method] / f"{number}.safetensors" for number in range(options.realizations)]
                policies = Policies([graphact.load(file) for file in files], options.device)
                (flown,) = field.fly(policies, [{"agents": agents}], delayed=False)
                cost = flown.cost.mean(1)
                experts = [field.expert_cost({"agents": agents}, gain) for gain in (trained, None)]
                over = [(cost / expert.mean(1)).tolist() for expert in experts]
                cells = [f"{fmean(values):.3f} ± {stdev(values):.3f}" for values in over]
                if beside:
                    usual = {} if agents == trained else {"agents": agents}
                    same = {"method": method, "order": ORDER, "delayed": False, "condition": usual}
                    theirs = choose(beside, **same)
                    ours = [row | {"value": over[1][row["graph"]]} for row in theirs]
                    gap = difference(ours, theirs) if start == "connected" else None
                    cells.append("" if gap is None else f"{gap.mean:+.3f} ± {gap.margin:.3f}")
                sys.stdout.write(f"| {start} | {agents} | {method} | {' | '.join(cells)} |\n")
                sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
