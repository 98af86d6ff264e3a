"""How published policies fly teams that start connected: ``studies/flocking_connected.py results/flocking/full``.

The papers let teams start in parts that do not hear each other, whose velocities no exchange can bring together.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import graphact
from graphact.experiments.flocking.experiment import ORDER, Flocking, job_of
from graphact.experiments.flocking.policies import Policies
from graphact.experiments.flocking.runner import Airfield
from graphact.experiments.protocol import file_key
from graphact.experiments.store import Store


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--methods", nargs="+", default=["relu", "max-ga", "tanh"])
    parser.add_argument("--agents", type=int, default=50)
    parser.add_argument("--realizations", type=int, default=10)
    parser.add_argument("--tests", type=int, default=2)
    options = parser.parse_args()
    store = Store(options.results)
    settings = {row["method"]: row["settings"] for row in store.rows() if row["kind"] == "model"}
    base = Flocking("full", (), {}, realizations=options.realizations, tests=options.tests)
    for connected in (True, False):
        field = Airfield(replace(base, world={"connected": connected}), 0, "cpu")
        condition = {"agents": options.agents}
        for method in options.methods:
            folder = store.directory / "models" / file_key(f"{job_of(method).method}-K{ORDER}", settings[method])
            policies = Policies([graphact.load(folder / f"{k}.safetensors") for k in range(options.realizations)])
            (flown,) = field.fly(policies, [condition], delayed=False)
            values = (flown.cost.mean(1) / field.expert_cost(condition).mean(1)).tolist()
            start = "connected" if connected else "as in the papers"
            sys.stdout.write(f"{start}, {options.agents} agents, {method}: {fmean(values):.3f} ± {stdev(values):.3f}\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
