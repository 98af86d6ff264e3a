"""Times on docs/performance.md: rows of benchmarks."""

import json
from pathlib import Path

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
        if own["device"] != "cpu":
            return f"{own['device']}; {versions}"
        words = f"{own['processor']}, threads: {own['threads']} of {own['cores']} cores{clock}, load {own['load']}"
        return f"{words}; {versions}"

    def has_extensions(self, name):
        """Return whether PyG had one of its compiled extensions."""
        own = self.rows(name)["machine"]
        return own["torch_scatter"] or own["pyg_lib"]

    def everyday_rows(self, name):
        """Return the times of everyday graphs as a table."""
        found = self.rows(name)["milliseconds"]
        return everyday({case: times for case, times in found.items() if case != "network"})

    def network_ratio(self, name, contender):
        """Return the time of a training step over that with ReLU."""
        found = self.rows(name)["milliseconds"]["network"]
        return found[contender] / found["ReLU"]

    def compiled_rows(self, name, kind):
        """Return the times of activations or networks in every mode as a table."""
        cases = self.compiled_cases(name, kind)
        modes = list(next(iter(cases.values()))["ReLU"])
        body = [[f"{kind}: {' / '.join(modes)}", *cases]]
        for contender in dict.fromkeys(one for times in cases.values() for one in times):
            rows = [times.get(contender, {}) for times in cases.values()]
            texts = [[f"{row[mode]:#.3g}" if mode in row else "-" for mode in modes] for row in rows]
            body.append([contender, *map(" / ".join, texts)])
        return body

    def over_relu(self, places):
        """Return times over those of ReLU in the same mode and run as a table; places are (file, case, contender)."""
        body = [["times of ReLU in the same mode", "eager", "compiled", "reduce-overhead"]]
        for title, (name, case, contender) in places.items():
            rows = self.rows(name)["milliseconds"][case]
            body.append([title, *(f"{rows[contender][mode] / rows['ReLU'][mode]:.2f}" for mode in body[0][1:])])
        return [[body[0][0], "eager", "compiled", "`reduce-overhead`"], *body[1:]]

    def compiled_cases(self, name, kind):
        """Return the rows of activations or networks by the name of their graph."""
        found = self.rows(name)["milliseconds"]
        return {title.removeprefix(f"{kind}, "): rows for title, rows in found.items() if title.startswith(kind)}

    def gains_of_mode(self, name, kind, mode, cases=None):
        """Return how many times as fast as eager code ours is in a mode, from the least to the most."""
        return sorted(
            row["eager"] / row[mode]
            for case, rows in self.compiled_cases(name, kind).items()
            for contender, row in rows.items()
            if not contender.startswith(("ReLU", "PyG")) and (cases is None or case in cases)
        )

    def compiled_pyg_ahead(self, name, case):
        """Return whether the compiled activation of PyG's parts is faster than ours."""
        rows = self.compiled_cases(name, "activation")[case]
        return rows["PyG max"]["compiled"] < rows["max-ga"]["compiled"]

    def is_timed(self, name, contender, mode):
        """Return whether any network of this contender was right in a mode, and so timed."""
        return any(mode in rows[contender] for rows in self.compiled_cases(name, "network").values())

    def peer_over_ours(self, name, case, mode):
        """Return the time of max-ga from PyG's parts over that of one operator, in an activation or else a network."""
        if rows := self.compiled_cases(name, "activation").get(case):
            return rows["PyG max"][mode] / rows["max-ga"][mode]
        rows = self.compiled_cases(name, "network")[case]
        return rows["PyG max composed"][mode] / rows["max-ga, Graph"][mode]

    def gains_of_rows(self, name, cases, rows, unit=""):
        """Return PyG's milliseconds, or with the unit "_mb" its memory, over ours, from the least to the most."""
        found = [self.rows(name)[case][row] for case in cases for row in rows]
        return sorted(row[f"pyg{unit}"] / row[f"graphact{unit}"] for row in found)

    def gains_over_pyg(self, places):
        """Return how many times as fast as PyG ours are as a table; places are files and cases by title."""
        body = [["times as fast as PyG", *places]]
        for row in self.rows("aggregations-h200")["20,000 nodes"]:
            gains = [self.gains_of_rows(name, [case], [row])[0] for name, case in places.values()]
            body.append([row, *(f"{gain:.1f}" for gain in gains)])
        return body

    def large_over_pyg(self, name, case):
        """Return times and memory of large graphs as a table."""
        body = [[case.removesuffix(", wide"), "ms, PyG", "ours", "times as fast", "peak MiB, PyG", "ours"]]
        for title, row in self.rows(name)[case].items():
            both = [
                [f"{row[key]:.1f}" for key in ("pyg", "graphact")],
                [f"{row[key]:.0f}" for key in ("pyg_mb", "graphact_mb")],
            ]
            body.append([title, *both[0], f"{row['pyg'] / row['graphact']:.1f}", *both[1]])
        return body

    @staticmethod
    def span(values, digits=2):
        """Return the least and the largest value."""
        return f"{min(values):.{digits}f} to {max(values):.{digits}f}"

    def names(self):
        """Return what templates know."""
        return {word: getattr(self, word) for word in dir(self) if not word.startswith("_") and word != "names"}


def everyday(found):
    """Return times by case and contender as a table, each activation beside PyG's operations composed."""
    body = [["milliseconds", *found], ["ReLU", *(f"{times['ReLU']:.3f}" for times in found.values())]]
    for op in OPERATIONS:
        pairs = [(times[f"{op}-ga"], times.get(f"PyG {op}")) for times in found.values()]
        peers = ["-" if peer is None else f"{peer:.3g}" for _, peer in pairs]
        body.append([f"{op}-ga / PyG", *(f"{ours:.3g} / {peer}" for (ours, _), peer in zip(pairs, peers, strict=True))])
        if op == "max":
            ratios = [f"{ours / peer:.2f}" for ours, peer in pairs]
    return [*body, ["max-ga over PyG", *ratios]]
