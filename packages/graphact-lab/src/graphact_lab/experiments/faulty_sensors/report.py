"""The report on faulty sensors: errors of healthy and of faulty stations, and differences at equal rounds."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from graphact.storage import write_atomically
from graphact_lab.experiments.faulty_sensors.experiment import FAULTS, training_faults
from graphact_lab.statistics import Difference, choose, difference, holm
from graphact_lab.store import Row
from graphact_lab.style import markdown_table

REFERENCE = "gelu"
LABELS = {
    "gelu": "GELU (pointwise)",
    "relu": "ReLU (pointwise)",
    "prelu": "PReLU (pointwise)",
    "max-l": "Max L.",
    "median-l": "Median L.",
    "max-ga": "Max G.A.",
    "median-ga": "Median G.A.",
    "bank-mean": "bank of means",
    "bank-median": "bank of medians",
    "bank-max-min": "bank of max, min",
    "bank-median-max-min": "bank of median, max, min",
}
INTRODUCTION = """\
Temperatures of 32 stations at rolling origins; some stations report {outlier:g} standard deviations too much or too
little in {outlier_share:.0%} of the hours, drift by {drift:g} of them an hour, or repeat one value. A network estimates
all temperatures, trained on {trained} of the stations; tests have each fault
at each share. Errors are root mean squares in kelvin over the origins, {epochs} epochs, width {width}, a window of
{window} hours. Intervals are 95 %, over the origins, corrected for the overlap of their training parts; p is
Holm's over the table."""


def rows_of_method(rows: Sequence[Row], method: str, rounds: int) -> list[Row]:
    """Return the rows of a method with a number of rounds."""
    return [dict(row) for row in choose(rows, method=method, rounds=rounds)]


def error(rows: Sequence[Row], fault: str, part: str) -> float:
    """The mean error over origins and shares under a kind of fault."""
    found = [row[part] for row in rows if row["condition"]["fault"] == fault]
    return fmean(value for value in found if value is not None)


def averaged(rows: Sequence[Row], part: str) -> list[Row]:
    """A row for each origin with the mean error over all conditions with faults."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if row["condition"]["fault"] != "none":
            found.setdefault(row["split"], []).append(row[part])
    return [{"split": split, "seed": 0, "value": fmean(values)} for split, values in sorted(found.items())]


def error_table(rows: Sequence[Row]) -> str:
    """A line for each method: healthy and faulty stations under each fault."""
    methods = dict.fromkeys((row["kind"], row["method"], row["rounds"]) for row in rows)
    lines = []
    for kind, method, rounds in sorted(methods, key=lambda key: (key[0] == "model", key[2])):
        own = rows_of_method(rows, method, rounds)
        cells: list[str] = [LABELS.get(method) or method, str(rounds)]
        cells += ["" if kind == "baseline" else str(own[0]["parameters"]), f"{error(own, 'none', 'healthy'):.2f}"]
        cells.append(f"{fmean(row['value'] for row in averaged(own, 'value')):.2f}")
        cells += [f"{error(own, fault, 'healthy'):.2f} / {error(own, fault, 'faulty'):.2f}" for fault in FAULTS]
        lines.append(cells)
    return markdown_table(("method", "rounds", "parameters", "no fault", "all stations, all faults", *FAULTS), lines)


def share_table(rows: Sequence[Row]) -> str:
    """A line for each method and share: errors of faulty stations, over the kinds of fault."""
    shares = sorted({row["condition"]["share"] for row in rows} - {0.0})
    lines = []
    for method, rounds in dict.fromkeys((row["method"], row["rounds"]) for row in rows):
        own = rows_of_method(rows, method, rounds)
        cells: list[str] = [LABELS.get(method) or method, str(rounds)]
        for share in shares:
            pair = [
                fmean(row[part] for row in own if row["condition"]["share"] == share) for part in ("healthy", "faulty")
            ]
            cells.append(f"{pair[0]:.2f} / {pair[1]:.2f}")
        lines.append(cells)
    return markdown_table(("method", "rounds", *(f"{share:.0%} faulty" for share in shares)), lines)


def differences(rows: Sequence[Row], overlap: float) -> dict[tuple[str, int, str], Difference]:
    """Differences of networks from the pointwise one at equal rounds, over all conditions with faults."""
    models = [dict(row) for row in choose(rows, kind="model")]
    found = {}
    for method, rounds in dict.fromkeys((row["method"], row["rounds"]) for row in models):
        for part in ("value", "healthy", "faulty"):
            pair = [averaged(rows_of_method(models, name, rounds), part) for name in (method, REFERENCE)]
            if method != REFERENCE and pair[1]:
                found[method, rounds, part] = difference(*pair, overlap=overlap)
    return found


def difference_table(rows: Sequence[Row], overlap: float) -> str:
    """Differences with intervals; bold where they are significant."""
    found = differences(rows, overlap)
    adjusted = dict(zip(found, holm([each.p_unlike() for each in found.values()]), strict=True))
    lines = []
    for method, rounds in dict.fromkeys((method, rounds) for method, rounds, _ in found):
        cells = [LABELS[method], str(rounds)]
        for part in ("value", "healthy", "faulty"):
            text = f"{found[method, rounds, part].mean:+.3f} ± {found[method, rounds, part].margin:.3f}"
            cells.append(f"**{text}**" if adjusted[method, rounds, part] < 0.05 else text)
        lines.append(cells)
    return markdown_table(("minus GELU", "rounds", "all stations", "healthy", "faulty"), lines)


def write_page(rows: Sequence[Row], folder: Path, commands: Sequence[str]) -> Path:
    """Write ``report.md``; return its path."""
    settings = rows[0]["settings"]
    pairs = dict.fromkeys(training_faults(settings["draws"], settings["shares"]))
    trained = ", ".join(f"{fault} at {share:.0%}" for fault, share in pairs)
    parts = [
        "# Faulty sensors",
        INTRODUCTION.format(**settings, trained=trained),
        "## Healthy / faulty stations, by fault",
    ]
    parts += [error_table(rows), "## Healthy / faulty stations, by share", share_table(rows)]
    if {row["method"] for row in choose(rows, kind="model")} > {REFERENCE}:
        overlap = settings["test_hours"] / settings["train_hours"]
        parts += ["## Differences at equal rounds", difference_table(rows, overlap)]
    parts += ["## How this was made", "```\n" + "\n".join(commands) + "\n```"]
    write_atomically(folder / "report.md", ("\n\n".join(parts) + "\n").encode())
    return folder / "report.md"
