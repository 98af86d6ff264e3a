"""The animation of flocking: one team under the expert and under two policies, with links that are lost.

``python studies/flocking_picture.py results/flocking/full --gif docs/figures/flocking.gif``, and with
``--page flocking.html``.

The policies are those of a folder that ``graphact-lab run flocking`` wrote. Colours are headings: where all are alike,
the team flies one way. The page holds the same flights, without and with losses, to be played, stopped and looked at.
"""

import argparse
import base64
import json
from pathlib import Path

import numpy as np
import torch

import graphact
from graphact_lab.experiments.flocking.experiment import ORDER, world_of
from graphact_lab.experiments.flocking.flight import Conditions, Moment, fly
from graphact_lab.experiments.flocking.imitation import teams_for
from graphact_lab.experiments.flocking.policies import Policies
from graphact_lab.experiments.flocking.world import Teams, World, adjacency_of, disagreement, pairs_of
from graphact_lab.protocols import file_key, run_seed
from graphact_lab.store import Store, StoreError
from graphact_lab.style import Variant

INK, PAPER, LINK, LOST = "#e8ecf4", "#0e1320", "#5d6a86", "#ff5a4f"
COMMON = (1.6, 0.9)  # a velocity that all agents share changes nothing for them, and gives the team a heading
EVERY, TRAIL = 3, 12  # steps a frame, steps of a trail


class Recorded:
    """A flight of one team, step by step."""

    def __init__(self, title: str, loss: float) -> None:
        self.title, self.loss = title, loss
        self.position, self.velocity, self.lost, self.variance = [], [], [], []

    def watch(self, moment: Moment, world: World) -> None:
        position, velocity = (part[0, 0] for part in moment.teams)
        self.position.append((position - position.mean(0)).numpy())
        self.velocity.append(velocity.numpy())
        in_range = adjacency_of(pairs_of(position), world.radius)
        self.lost.append((in_range & ~moment.adjacency[0, 0]).triu().nonzero().numpy())
        self.variance.append(float(disagreement(velocity)))


def policy_of(store: Store, method: str, number: int) -> tuple[graphact.nn.GraphModule, str, dict]:
    """A trained policy of the filter order of the papers, its label, and its settings."""
    for row in store.rows():
        if (row["kind"], row["method"], row.get("order"), row["delayed"]) == ("model", method, ORDER, False):
            folder = store.directory / "models" / file_key(f"{method}-K{ORDER}", row["settings"])
            label = Variant(method, row["hops"]).style.long
            return graphact.load(folder / f"{number}.safetensors"), label, row["settings"]
    raise StoreError(f"{store.directory} holds no policy {method!r} of filter order {ORDER}")


def record(store: Store, methods: list[str], number: int, agents: int, losses: list[float]) -> list[list[Recorded]]:
    """For each loss, the flights of the expert and of the policies, from one start and with the same links lost."""
    found = [policy_of(store, method, number) for method in methods]
    world = World(**{**world_of(found[0][2]), "steps": 200, "connected": True})
    seed = run_seed("flocking", found[0][2]["seed"], number)
    start = teams_for("picture", [seed], 1, agents, world, torch.zeros(()))
    start = start._replace(velocity=start.velocity + torch.tensor(COMMON))
    rows = []
    for loss in losses:
        flights = []
        for controller, title in [("expert", "expert"), *((Policies([model]), title) for model, title, _ in found)]:
            flight = Recorded(title, loss)
            fly(
                Teams(*start),
                controller,
                world,
                conditions=Conditions(loss=loss),
                generator=torch.Generator().manual_seed(7),
                watch=lambda moment, flight=flight: flight.watch(moment, world),
            )
            flights.append(flight)
        rows.append(flights)
    return rows


def heading_colors(velocity: np.ndarray) -> np.ndarray:
    """A colour for each direction: cyclic, and equally bright all around."""
    angle = np.arctan2(velocity[:, 1], velocity[:, 0])
    waves = [np.cos(angle - 2 * np.pi * k / 3) for k in range(3)]
    return np.clip(np.stack([0.66 + 0.34 * wave for wave in waves], 1), 0, 1)


def write_gif(flights: list[Recorded], path: Path, radius: float) -> None:
    """Three teams side by side, and below each how much its velocities still differ."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.collections import LineCollection
    from PIL import Image

    plt.rcParams.update({"font.family": "DejaVu Sans", "text.color": INK, "axes.labelcolor": INK})
    figure = plt.figure(figsize=(10.6, 4.5), dpi=80, facecolor=PAPER)
    grid = figure.add_gridspec(2, len(flights), height_ratios=[5.4, 1], hspace=0.05, wspace=0.04)
    grid.update(left=0.015, right=0.985, top=0.9, bottom=0.085)
    reach = 1.03 * max(np.abs(position).max() for flight in flights for position in flight.position)
    top = max(flight.variance[0] for flight in flights)
    sky = [figure.add_subplot(grid[0, number]) for number in range(len(flights))]
    plots = [figure.add_subplot(grid[1, number]) for number in range(len(flights))]
    frames = []
    for step in [*range(0, len(flights[0].position), EVERY), *[len(flights[0].position) - 1] * 10]:
        for axes, below, flight in zip(sky, plots, flights, strict=True):
            axes.clear()
            below.clear()
            position, velocity = flight.position[step], flight.velocity[step]
            colors = heading_colors(velocity)
            near = np.triu(np.hypot(*(position[:, None] - position[None]).transpose(2, 0, 1)) < radius, 1)
            lost = {tuple(pair) for pair in flight.lost[step]}
            kept = [(i, j) for i, j in np.argwhere(near) if (i, j) not in lost]
            axes.add_collection(LineCollection([position[[i, j]] for i, j in kept], colors=LINK, linewidths=0.7))
            style = {"colors": LOST, "linewidths": 0.9, "linestyles": (0, (2, 2)), "alpha": 0.8}
            axes.add_collection(LineCollection([position[[*pair]] for pair in lost], **style))
            first = max(0, step - TRAIL)
            for agent in range(len(position)):
                trail = np.array([flight.position[at][agent] for at in range(first, step + 1)])
                axes.plot(*trail.T, color=colors[agent], linewidth=1.1, alpha=0.55, solid_capstyle="round")
            axes.scatter(*position.T, s=26, c=colors, edgecolors=PAPER, linewidths=0.5, zorder=5)
            unit = velocity / np.maximum(np.linalg.norm(velocity, axis=1, keepdims=True), 1e-9)
            axes.quiver(*position.T, *unit.T, color=colors, scale=26, width=0.006, headwidth=3.4, zorder=4)
            axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
            axes.axis("off")
            axes.set_title(flight.title, color=INK, fontsize=12, pad=4)
            time = 0.01 * np.arange(step + 1)
            below.fill_between(time, np.array(flight.variance[: step + 1]), color="#7fb4ff", alpha=0.28, linewidth=0)
            below.plot(time, flight.variance[: step + 1], color="#9cc6ff", linewidth=1.4)
            below.set(xlim=(0, 0.01 * len(flight.position)), ylim=(0, 1.08 * top), facecolor=PAPER)
            below.axis("off")
            note = f"velocity variance {flight.variance[step]:.2f}    cost {sum(flight.variance[: step + 1]):.0f}"
            below.text(0.5, -0.16, note, transform=below.transAxes, ha="center", va="top", fontsize=9, color="#aab6cd")
        figure.texts.clear()
        words = f"{len(position)} agents, one-hop messages, {flights[0].loss:.0%} of the links lost at every step"
        figure.text(0.985, 0.965, f"{0.01 * step:.2f} s", ha="right", va="center", fontsize=9, color="#aab6cd")
        figure.text(0.015, 0.965, words, ha="left", va="center", fontsize=9, color="#aab6cd")
        figure.canvas.draw()
        frames.append(Image.fromarray(np.asarray(figure.canvas.buffer_rgba())[..., :3].copy()))
    palette = Image.new("RGB", (frames[0].width, frames[0].height * 3))
    for number, at in enumerate((0, len(frames) // 3, -1)):
        palette.paste(frames[at], (0, number * frames[0].height))
    palette = palette.quantize(72, dither=Image.Dither.NONE)
    frames = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    path.parent.mkdir(parents=True, exist_ok=True)
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=70, loop=0, optimize=True)


def write_page(rows: list[list[Recorded]], path: Path, radius: float) -> None:
    """One file that needs nothing else: positions in millimetres, lost links as pairs."""

    def packed(array: np.ndarray) -> str:
        return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()

    data = {
        "radius": radius,
        "agents": len(rows[0][0].position[0]),
        "steps": len(rows[0][0].position),
        "losses": [flights[0].loss for flights in rows],
        "flights": [
            [
                {
                    "title": flight.title,
                    "position": packed((1000 * np.array(flight.position)).round().astype("<i2")),
                    "heading": packed((1000 * np.array(flight.velocity)).round().astype("<i2")),
                    "lost": packed(np.concatenate(flight.lost).astype("u1")),
                    "counts": [len(pairs) for pairs in flight.lost],
                    "variance": [round(value, 4) for value in flight.variance],
                }
                for flight in flights
            ]
            for flights in rows
        ],
    }
    template = (Path(__file__).parent / "templates" / "flocking.html").read_text()
    path.write_text(template.replace("/*DATA*/null", json.dumps(data, separators=(",", ":"))))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--gif", type=Path)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--methods", nargs="+", default=["relu", "max-ga"])
    parser.add_argument("--agents", type=int, default=50)
    parser.add_argument("--number", type=int, default=0, help="which realization")
    parser.add_argument("--loss", type=float, default=0.3)
    options = parser.parse_args()
    try:
        rows = record(Store(options.results), options.methods, options.number, options.agents, [0.0, options.loss])
    except StoreError as error:
        parser.exit(1, f"{error}\n")
    if options.gif:
        write_gif(rows[1], options.gif, 2.0)
    if options.page:
        write_page(rows, options.page, 2.0)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
