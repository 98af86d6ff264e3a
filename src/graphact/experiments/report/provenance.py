"""Where results come from: versions, device, time, command."""

from collections.abc import Sequence

from graphact.experiments.report.rows import Run
from graphact.experiments.report.sections.facts import computing_time, duration
from graphact.experiments.report.sections.section import listed


def provenance(runs: Sequence[Run]) -> tuple[tuple[str, str], ...]:
    """Name and value of what is known."""
    finished = sorted(run.finished for run in runs if run.finished)
    models = sum(run.kind == "model" for run in runs)
    found = [
        ("Results", f"{len(runs):,} ({models:,} of networks, {len(runs) - models:,} of baselines)"),
        ("Computing time, added up", duration(computing_time(runs))),
        ("graphact", listed(run.graphact for run in runs)),
        ("torch", listed(run.torch for run in runs)),
        ("Device", listed(run.device for run in runs)),
        ("Finished", " to ".join(dict.fromkeys((finished[0], finished[-1]))) if finished else ""),
    ]
    return tuple((name, value) for name, value in found if value)
