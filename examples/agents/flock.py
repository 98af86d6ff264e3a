"""Fly a team in closed loop, one process each, through lost messages, a crash and a partition.

python examples/agents/flock.py --agents 20 --seconds 60

A world process integrates the motion and tells each agent its own state and who is in range; it computes no control.
Afterwards every control is computed again from the logs. The exit code is 1 if an agent did not come to the end, or a
control is not the one that the logs give.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import graphact
from graphact_lab.experiments.flocking import live

POLICY = Path(live.__file__).with_name("policy.safetensors")


def main(arguments=None):
    """Fly, print a line a second, check, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=20, help="processes (default: 20)")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the flight by the clock (default: 60)")
    parser.add_argument("--rate", type=float, default=20.0, help="controls a second (default: 20)")
    parser.add_argument("--loss", type=float, default=0.1, help="probability that a datagram is lost (default: 0.1)")
    parser.add_argument("--kill", type=int, default=3, help="agent that is killed at a third of the flight; -1: none")
    parser.add_argument("--transport", choices=("udp", "zenoh"), default="udp")
    parser.add_argument("--model", type=Path, default=POLICY, help="a policy that graphact.save has written")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if not -1 <= options.kill < options.agents:
        parser.error(f"--kill must be an agent, less than {options.agents}, or -1, got {options.kill}")
    steps, every = round(options.seconds * options.rate), max(1, round(options.rate))
    plan = live.FlightPlan(
        agents=options.agents,
        steps=steps,
        rate=options.rate,
        loss=options.loss,
        killed=None if options.kill < 0 else options.kill,
        transport=options.transport,
        seed=options.seed,
    )

    def show(step, variance, links, controls):
        if (step + 1) % every == 0 or step == steps - 1:
            time = f"{(step + 1) / options.rate:6.1f} s"
            print(f"{time}  controls {controls:3d} of {plan.agents}  links {links:4d}  variance {variance:7.3f}")

    with tempfile.TemporaryDirectory() as folder:
        facts = live.fly_live(graphact.load(options.model), plan, Path(folder), show)
        check = live.check_flight(Path(folder), plan.world)
    missed = facts["missed"] / max(facts["used"] + facts["missed"], 1)
    print(f"{facts['controls']:.1%} of the controls came in time, {missed:.2%} of the links were missed in a round")
    print(f"{check.controls} controls computed again from the logs: largest difference {check.largest:.2g}")
    failures = find_failures(facts, check)
    for line in failures:
        print(line, file=sys.stderr)
    return int(bool(failures))


def find_failures(facts, check):
    """Return a line for each thing that went wrong; an agent that was killed on purpose is none."""
    lines = []
    for name, text in (
        ("gone", "did not come to the end of the flight: they died or stand still"),
        ("idle", "never had a control in time; try a lower --rate"),
    ):
        if facts[name]:
            lines.append(f"agents {', '.join(map(str, facts[name]))} {text}")
    if not check.largest <= 1e-9:  # nor not a number
        lines.append(f"a control is not the one that the logs give: it differs by {check.largest:.2g}")
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
