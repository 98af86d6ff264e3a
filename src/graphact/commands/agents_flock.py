"""graphact agents flock: a team of processes that steers itself, in closed loop, while things go wrong."""

import argparse
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from graphact.commands.parser import command, option

POLICY = Path(__file__).parent.parent / "experiments" / "flocking" / "policy.safetensors"


@command(
    option("--agents", "how many, one process each (default: 20)", type=int, default=20),
    option("--seconds", "of the clock (default: 60)", type=float, default=60.0),
    option("--rate", "steps in a second; a step is 0.01 s of flight (default: 20)", type=float, default=20.0),
    option("--loss", "probability that a datagram is lost (default: 0.1)", type=float, default=0.1),
    option(
        "--kill", "agent that is killed at a third of the flight and back at half (default: 3)", type=int, default=3
    ),
    option("--no-kill", "kill none", action="store_true"),
    option("--transport", "default: udp", default="udp"),
    option(
        "--model",
        "a policy of graphact run flocking, from models/ (default: graphact's own, a graph-adaptive max)",
        type=Path,
        default=POLICY,
        metavar="MODEL",
    ),
    "--seed",
    option("--out", "keep logs and states here (default: nowhere)"),
)
def flock(options: argparse.Namespace) -> int:
    """Fly a team in closed loop: one process for each agent, messages between those in range over a real network. A
    world process integrates the motion and tells each agent its own state and who is in range; it relays nothing and
    computes no control. Messages are lost, an agent is killed and started again, and for a while half of the team does
    not hear the other. Afterwards every control is computed again from the logs. The exit code is 1 if an agent did
    not come to the end, or none of its controls came in time, or one is not what the logs say.
    """
    from graphact import load
    from graphact._checks import check_integer, check_positive, check_probability
    from graphact.experiments.flocking.live import Plan, check_flight, fly_live

    check_integer("--agents", options.agents, minimum=3)
    killed = None if options.no_kill else check_integer("--kill", options.kill, minimum=0)
    if killed is not None and killed >= options.agents:
        raise ValueError(f"--kill must be an agent, less than {options.agents}, got {killed}")
    rate = check_positive("--rate", options.rate)
    steps = check_integer("steps", round(check_positive("--seconds", options.seconds) * rate), minimum=1)
    plan = Plan(
        agents=options.agents,
        steps=steps,
        rate=rate,
        loss=check_probability("--loss", options.loss),
        killed=killed,
        transport=options.transport,
        seed=options.seed,
    )
    every = max(1, round(rate))

    def watch(step: int, variance: float, links: int, came: int) -> None:
        if step % every == every - 1 or step == steps - 1:
            bar = "#" * min(40, round(12 * variance**0.5))
            line = f"{(step + 1) / rate:6.1f} s  controls {came:3d} of {plan.agents}  links {links:4d}  variance "
            sys.stdout.write(f"{line}{variance:7.3f} {bar}\n")
            sys.stdout.flush()

    with nullcontext(options.out) if options.out else tempfile.TemporaryDirectory() as folder:
        facts = fly_live(load(options.model), plan, Path(folder), watch)
        check = check_flight(Path(folder), plan.world)
    for line in summary(facts, check):
        sys.stdout.write(line + "\n")
    wrong = failures(facts, check)
    for line in wrong:
        sys.stderr.write(f"graphact: {line}\n")
    return int(bool(wrong))


def failures(facts: dict[str, Any], check: Any) -> list[str]:
    """What keeps a flight from being one that went well, a line each; that an agent was killed on purpose does not."""
    lines = []
    for name, words in (
        ("gone", "did not come to the end of the flight: they died or stand still (errors.txt in --out may say why)"),
        ("idle", "never had a control in time; try a lower --rate"),
    ):
        if facts[name]:
            lines.append(f"agents {', '.join(map(str, facts[name]))} {words}")
    if not check.largest <= 1e-9:  # nor not a number
        lines.append(f"a control is not the one that the logs say: it differs by {check.largest:.2g}")
    return lines


def summary(facts: dict[str, Any], check: Any) -> list[str]:
    """What happened, in a few lines."""
    missed = facts["missed"] / max(facts["used"] + facts["missed"], 1)
    marks = [step for step in (100, 500, len(check.apart) - 1) if step < len(check.apart)]
    apart = ", ".join(f"{check.apart[step]:.2g} after {step} steps" for step in dict.fromkeys(marks))
    return [
        f"{facts['controls']:.1%} of the controls came in time; {missed:.2%} of the links were missed in a round; "
        f"{facts['lost']} datagrams were lost on purpose, beside {facts['sent']} values sent",
        f"{check.controls} controls computed again from the logs: largest difference {check.largest:.2g}",
        f"the flight computed in one place with the same links is apart by {apart} (largest distance of an agent, m)",
        f"variance of the velocities at the end: {facts['variance']:.4f}",
    ]
