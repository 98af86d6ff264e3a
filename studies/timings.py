"""Times on docs/performance.md: rows of benchmarks, and figures that are quoted from earlier runs."""

import json
from pathlib import Path

from lookup import read_table

FOLDER = Path(__file__).parent.parent / "results" / "performance"
OPERATIONS = ("max", "median", "kernel")


class Timings:
    """The files of results/performance as tables."""

    def __init__(self, folder=FOLDER):
        self.folder = Path(folder)

    def rows(self, name):
        """Return what a benchmark wrote; None where it was not run."""
        file = self.folder / f"{name}.json"
        return json.loads(file.read_text()) if file.exists() else None

    def machine(self, name):
        """Return the machine of a benchmark in words."""
        own = self.rows(name)["machine"]
        versions = ", ".join(
            f"{key} {own[key]}" for key in ("torch", "torch_geometric", "numba", "triton") if key in own
        )
        clock = ", the thread's own time" if own["clock"] == "own time" else ""
        words = f"{own['processor']}, threads: {own['threads']} of {own['cores']} cores{clock}, load {own['load']}"
        return f"{words}; {versions}"

    def everyday_rows(self, name):
        """Return the times of everyday graphs as a table."""
        found = self.rows(name)["milliseconds"]
        return everyday({case: times for case, times in found.items() if case != "network"})

    def network_ratio(self, name, contender):
        """Return the time of a training step over that with ReLU."""
        found = self.rows(name)["milliseconds"]["network"]
        return found[contender] / found["ReLU"]

    def quoted_devices(self, name):
        """Return the devices of quoted figures."""
        return list(dict.fromkeys(line["device"] for line in read_table(self.folder / f"{name}.csv")))

    def everyday_quoted(self, device):
        """Return the quoted times of everyday graphs on a device as a table."""
        found = {}
        for line in read_table(self.folder / "quoted-everyday.csv"):
            if line["device"] == device:
                found.setdefault(line["case"], {})[line["contender"]] = line["milliseconds"]
        return everyday(found, device)

    def large_quoted(self):
        """Return the quoted times of large graphs as a table."""
        body = [["graph", "activation", "forward", "with backward", "PyG composed", "of the floor", "peak, signals"]]
        for line in read_table(self.folder / "quoted-large.csv"):
            graph = line["graph"] + (", bfloat16" if line["numbers"] == "bfloat16" else "")
            texts = [f"{line[key]:.2f} ms" for key in ("forward_ms", "with_backward_ms")]
            peers = [line[key] for key in ("pyg_forward_ms", "pyg_with_backward_ms")]
            texts += [" / ".join(f"{peer:.1f}" for peer in peers) + " ms" if all(peers) else ""]
            signals = "" if line["peak_signals"] is None else f"{line['peak_signals']:.1f}"
            body.append([graph, line["activation"], *texts, f"{line['floor_percent']} %", signals])
        return body

    def names(self):
        """Return what templates know."""
        return {word: getattr(self, word) for word in dir(self) if not word.startswith("_") and word != "names"}


def everyday(found, corner="milliseconds"):
    """Return times by case and contender as a table, each activation beside PyG's operations composed."""
    body = [[corner, *found], ["ReLU", *(f"{times['ReLU']:.3f}" for times in found.values())]]
    for op in OPERATIONS:
        pairs = [(times[f"{op}-ga"], times.get(f"PyG {op}")) for times in found.values()]
        peers = ["-" if peer is None else f"{peer:.3g}" for _, peer in pairs]
        body.append([f"{op}-ga / PyG", *(f"{ours:.3g} / {peer}" for (ours, _), peer in zip(pairs, peers, strict=True))])
        if op == "max":
            ratios = [f"{ours / peer:.2f}" for ours, peer in pairs]
    return [*body, ["max-ga over PyG", *ratios]]
