"""Certified Lipschitz constants of the policies in a folder of results, kept beside its rows."""

import json
from collections.abc import Sequence
from pathlib import Path

from graphact.storage import write_atomically
from graphact_lab.experiments.flocking.experiment import ORDER, USUAL, world_of
from graphact_lab.protocols import file_key, run_seed
from graphact_lab.store import Row

CERTIFICATES = "certificates.json"


def read_certificates(folder: Path) -> dict[str, float]:
    """Those that are known, by key; none where nothing was certified yet."""
    path = folder / CERTIFICATES
    known: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
    return known


def certificate_key(row: Row) -> str:
    """Return the key of a policy: its folder and realization."""
    return f"{folder_of(row)}/{row['graph']}"


def folder_of(row: Row) -> str:
    """The folder in ``models/`` of the policies of a row; its name depends on everything that they depend on."""
    return file_key(f"{row['method']}-K{row['order']}", row["settings"])


def certify(rows: Sequence[Row], folder: Path) -> None:
    """Certify a Lipschitz constant of each policy of the usual filter order in ``models/``, on its first test team.

    Those that are certified already are left as they are; see :func:`graphact.guarantees.lipschitz_bound`.
    """
    import graphact
    from graphact.guarantees import lipschitz_bound
    from graphact.spec import UnsupportedModelError
    from graphact_lab.experiments.flocking.imitation import teams_for
    from graphact_lab.experiments.flocking.team_graphs import graph_of
    from graphact_lab.experiments.flocking.world import World, adjacency_of, pairs_of

    known = read_certificates(folder)
    for row in rows:
        if row["kind"] != "model" or row["condition"] or row["order"] != ORDER or row["delayed"]:
            continue
        key, settings = certificate_key(row), row["settings"]
        if key in known:
            continue
        world = World(**world_of(settings))
        agents = settings["imitation"].get("agents", int(USUAL["agents"]))
        seed = run_seed("flocking", row["seed"], row["graph"])
        team = teams_for("test", [seed], settings["tests"], agents, world)
        graph = graph_of(adjacency_of(pairs_of(team.position[0, :1]), world.radius))
        file = folder / "models" / f"{key}.safetensors"
        if not file.exists():
            continue
        try:
            known[key] = lipschitz_bound(graphact.load(file), graph).value
        except UnsupportedModelError:
            continue
        write_atomically(folder / CERTIFICATES, json.dumps(known, indent=1).encode())
