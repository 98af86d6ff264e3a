"""Mutation testing: small faults are put into the code, one at a time, and a test must fail for each.

python tests/mutation.py                            a sample of every room, half an hour at most; prints the scores
python tests/mutation.py --only graph --sample 0    every mutant of one room
python tests/mutation.py --line agents/node.py:256  the mutants of a line, with the fate of each

The faults are those of mutmut. Its runner copies functions behind a switch, which torch.compile and vmap do not take,
and knows no sample; so here a mutant is a changed file in a copy of the repository, tested by a forked process that has
torch already. Every test runs once unchanged, on the reference backend, to see which lines it reaches; a mutant meets
the tests of its room that reach its statement, quick ones first, until one fails. Annotations, docstrings, imports,
decorators, the wording of errors and statements about CUDA are not mutated.
"""

import argparse
import ast
import contextlib
import importlib.util
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SOURCES = [Path("packages") / name / "src" for name in ("graphact", "graphact-agents", "graphact-lab")]
LIBRARY, AGENTS, LAB = (folder / folder.parent.name.replace("-", "_") for folder in SOURCES)
LIBRARY_TESTS, AGENTS_TESTS, LAB_TESTS = (folder.parent / "tests" for folder in SOURCES)
NODE_TESTS = ("node", "node_refusals", "agreement", "hostile", "link_loss", "memory_network", "replay")
AREAS: dict[str, tuple[Path, tuple[Path, ...]]] = {  # each room: its sources, and the tests that must notice
    "graph": (LIBRARY / "graph", (LIBRARY_TESTS / "graph", LIBRARY_TESTS / "functional", LIBRARY / "graph")),
    "functional": (
        LIBRARY / "functional",
        (LIBRARY_TESTS / "functional", LIBRARY_TESTS / "nn", LIBRARY_TESTS / "graph", LIBRARY / "functional"),
    ),
    "nn": (
        LIBRARY / "nn",
        (
            LIBRARY_TESTS / "nn",
            LIBRARY_TESTS / "test_new_activation.py",
            LIBRARY_TESTS / "test_files.py",
            LIBRARY / "nn",
        ),
    ),
    "kernels": (LIBRARY / "kernels" / "reference.py", (LIBRARY_TESTS / "functional", LIBRARY_TESTS / "kernels")),
    "training": (LIBRARY / "training", (LIBRARY_TESTS / "training", LIBRARY / "training")),
    "guarantees": (LIBRARY / "guarantees", (LIBRARY_TESTS / "guarantees", LIBRARY / "guarantees")),
    "agents": (
        AGENTS / "node.py",
        tuple(AGENTS_TESTS / "agents" / f"test_{name}.py" for name in NODE_TESTS),
    ),
    "lab": (LAB / "statistics.py", (LAB_TESTS / "experiments" / "test_statistics.py",)),
}
MAX_TEST_SECONDS = 5.0  # seconds; a longer one is left out
START = 20.0  # seconds that a mutant may take beyond five times the time of its tests


@dataclass(frozen=True)
class Mutant:
    """One fault: what stood there, what stands there now, and the lines of its statement."""

    area: str
    file: str
    line: int
    lines: range
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {_short(self.before)}  ->  {_short(self.after)}"


def mutants_of(area: str, file: Path) -> Iterator[Any]:
    """The mutants of a file, each as a function that makes it: only those of the sample are made."""
    import libcst as cst
    from libcst.metadata import MetadataWrapper, ParentNodeProvider, PositionProvider
    from mutmut.mutation.file_mutation import NEVER_MUTATE_FUNCTION_CALLS
    from mutmut.mutation.mutators import mutation_operators, operator_assignment

    wrapper = MetadataWrapper(cst.parse_module((ROOT / file).read_text()))
    module, code = wrapper.module, wrapper.module.code_for_node
    original = ast.dump(ast.parse(module.code))
    positions, parents = wrapper.resolve(PositionProvider), wrapper.resolve(ParentNodeProvider)
    no_logic = (cst.Annotation, cst.Decorator, cst.Import, cst.ImportFrom, cst.Raise)

    def is_wording(node: cst.CSTNode) -> bool:
        return isinstance(node, cst.BaseString) and " " in code(node).strip()

    def is_skipped(node: cst.CSTNode) -> bool:
        if isinstance(node, no_logic) or (isinstance(node, cst.Expr) and isinstance(node.value, cst.BaseString)):
            return True
        if isinstance(node, cst.If) and "TYPE_CHECKING" in code(node.test):
            return True
        if isinstance(node, cst.Assign) and code(node.targets[0].target) == "__all__":
            return True
        if isinstance(node, (cst.BaseSmallStatement, cst.FunctionDef)):
            return ("CUDAGraph" if isinstance(node, cst.FunctionDef) else "cuda") in code(node)
        if isinstance(node, cst.Call) and code(node.func) in NEVER_MUTATE_FUNCTION_CALLS:
            return True
        if isinstance(
            node, cst.Arg
        ):  # the name of an argument in a message; an assertion on lengths; the CPU is enough
            call = code(parents[node].func).split(".")[-1] if isinstance(parents[node], cst.Call) else ""
            return (call.lstrip("_").startswith("check_") and isinstance(node.value, cst.SimpleString)) or (
                node.keyword is not None and node.keyword.value in ("strict", "device")
            )
        return is_wording(node)

    def drops_skipped(node: cst.CSTNode, mutated: cst.CSTNode) -> bool:
        """Return whether a call loses only parts that are not mutated."""
        if not isinstance(node, cst.Call) or not isinstance(mutated, cst.Call):
            return False
        kept = {id(arg) for arg in mutated.args}
        return all(is_skipped(arg) or is_wording(arg.value) for arg in node.args if id(arg) not in kept)

    def statement(node: cst.CSTNode) -> range:
        """The lines of the statement around a node; of a compound one, its head."""
        while not isinstance(node, (cst.BaseSmallStatement, cst.BaseCompoundStatement, cst.Module)):
            node = parents[node]
        place = positions[node]
        body = getattr(node, "body", None)
        end = place.end.line if body is None or isinstance(node, cst.Module) else positions[body].start.line
        return range(place.start.line, max(place.start.line, end) + 1)

    def in_function(node: cst.CSTNode) -> bool:
        while not isinstance(node, (cst.FunctionDef, cst.Module)):
            node = parents[node]
        return isinstance(node, cst.FunctionDef)

    def maker(node: cst.CSTNode, mutated: cst.CSTNode) -> Any:
        def make() -> Mutant | None:
            source = module.deep_replace(node, mutated).code
            try:
                if ast.dump(ast.parse(source)) == original:
                    return None
            except SyntaxError:
                return None
            place = positions[node].start.line
            return Mutant(area, str(file), place, statement(node), code(node), code(mutated), source)

        return positions[node].start.line, make

    def walk(node: cst.CSTNode) -> Iterator[Any]:
        if is_skipped(node):
            return
        for kind, operator in mutation_operators:
            # outside of functions, a name set to None is most often a type
            if isinstance(node, kind) and (operator is not operator_assignment or in_function(node)):
                yield from (maker(node, new) for new in operator(node) if not drops_skipped(node, new))
        on_cuda = isinstance(node, cst.If) and "cuda" in code(node.test)
        for child in node.children:
            if not on_cuda or child is node.orelse:
                yield from walk(child)

    yield from walk(module)


def run_tests(copy: Path, tests: list[str], keep: dict[str, float] | None, report: Path | None) -> int:
    """Run tests in a copy, in this process: to learn what they reach (``report``) or until one fails (``keep``)."""
    import coverage
    import pytest

    os.chdir(copy)
    folders = [str(copy / folder) for folder in SOURCES]
    sys.path[:0] = folders
    os.environ["PYTHONPATH"] = os.pathsep.join(folders)
    measured = coverage.Coverage(data_file=None, source=folders, config_file=False) if report else None
    seconds: dict[str, float] = {}
    failed: list[str] = []

    class Plugin:
        @pytest.hookimpl(trylast=True)
        def pytest_collection_modifyitems(self, items: list[Any]) -> None:
            if keep is not None:
                items[:] = sorted((item for item in items if item.nodeid in keep), key=lambda item: keep[item.nodeid])

        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
            import graphact

            if measured:
                measured.switch_context(item.nodeid)
            began = time.monotonic()
            with graphact.backend("reference"):
                result = yield
            seconds[item.nodeid] = time.monotonic() - began
            return result

        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed:
                failed.append(report.nodeid)

    if measured:
        measured.start()
    options = ["--quiet", "-p", "no:cacheprovider", "-m", "not slow", f"--rootdir={copy}", f"--basetemp={copy}/tmp"]
    status = int(pytest.main([*options, *([] if report else ["--exitfirst"]), *tests], plugins=[Plugin()]))
    if measured and report:
        measured.stop()
        reach: dict[str, dict[str, list[str]]] = {}
        for file in measured.get_data().measured_files():
            lines = measured.get_data().contexts_by_lineno(file)
            reach[str(Path(file).relative_to(copy))] = {str(line): names for line, names in lines.items()}
        report.write_text(json.dumps({"seconds": seconds, "failed": failed, "reach": reach}))
    return status


def fork(copy: Path, tests: list[str], keep: dict[str, float] | None = None, report: Path | None = None) -> int:
    """Start ``run_tests`` in a process of its own and return the number of the process."""
    process = os.fork()
    if process == 0:
        status = 3
        try:
            os.setsid()
            with (copy / "output.txt").open("w") as output:
                for stream in (1, 2):
                    os.dup2(output.fileno(), stream)
            status = run_tests(copy, tests, keep, report)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    return process


def make_copy(folder: Path) -> Path:
    """A copy of what tests need."""
    for name in ("packages", "tests", "benchmarks", "examples", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    for name in ("conftest.py", "pyproject.toml", "README.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def put(path: Path, source: str) -> None:
    """Write a file; what was compiled before goes, for Python may not notice a change within a second."""
    path.write_text(source)
    Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


class Reach:
    """The lines that every test reaches and the time it takes, without a mutant."""

    def __init__(self, folder: Path, areas: list[str], known: Path | None) -> None:
        if known is None or not known.exists():
            tests = sorted({str(path) for area in areas for path in AREAS[area][1] if (ROOT / path).exists()})
            known = (known or folder / "reach.json").absolute()
            _, status = os.waitpid(fork(make_copy(folder), tests, report=known), 0)
            if not known.exists():
                sys.exit((folder / "output.txt").read_text() + f"\nthe tests cannot be run ({status})")
        report = json.loads(known.read_text())
        self.seconds, self.failed, self.reach = report["seconds"], set(report["failed"]), report["reach"]

    def of(self, mutant: Mutant) -> dict[str, float]:
        """The tests of the mutant's area that reach its statement; all of the area if importing reaches it."""
        by_line = self.reach.get(mutant.file, {})
        found = {name for line in mutant.lines for name in by_line.get(str(line), [])}
        names = self.seconds if "" in found else found
        places = tuple(str(path) for path in AREAS[mutant.area][1])
        return {
            name: self.seconds[name]
            for name in names
            if name.startswith(places) and name not in self.failed and self.seconds[name] < MAX_TEST_SECONDS
        }


def draw(areas: list[str], sample: int, seed: int, line: str | None) -> tuple[list[Mutant], dict[str, int]]:
    """A sample of every area, mixed, so that a run that is cut short has seen all; and how many there are."""
    queues, totals = [], {}
    for area in areas:
        path = ROOT / AREAS[area][0]
        files = [path] if path.is_file() else sorted(path.rglob("*.py"))
        makers = [maker for file in files for maker in mutants_of(area, file.relative_to(ROOT))]
        totals[area] = len(makers)
        if line is not None:
            name, number = line.split(":")
            makers = [m for file in files if str(file).endswith(name) for m in mutants_of(area, file.relative_to(ROOT))]
            queues.append([m for at, make in makers if at == int(number) and (m := make())])
            continue
        random.Random(seed).shuffle(makers)
        made: list[Mutant] = []
        while makers and (not sample or len(made) < sample):
            mutant = makers.pop()[1]()
            made += [mutant] if mutant else []
        queues.append(made)
    longest = max(map(len, queues))
    return [queue[i] for i in range(longest) for queue in queues if i < len(queue)], totals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", choices=list(AREAS), default=list(AREAS), help="what to mutate")
    parser.add_argument("--sample", type=int, default=100, help="mutants of each (0: all)")
    parser.add_argument("--seed", type=int, default=0, help="decides the sample")
    parser.add_argument("--minutes", type=float, default=25, help="no mutant is begun later")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--reach", type=Path, help="file to keep what tests reach in: the next run is spared to look")
    parser.add_argument("--line", help="file:number, instead of a sample")
    parser.add_argument("--at-least", type=float, default=85, help="exit with 1 if the score of all is lower (percent)")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    began = time.monotonic()
    mutants, totals = draw(options.only, options.sample, options.seed, options.line)
    for name in ("numba", "pytest", "scipy.sparse", "torch", "torch_geometric.data"):  # once for all forks
        importlib.import_module(name)

    fates: dict[str, dict[str, int]] = {area: dict.fromkeys(("killed", "timeout", "survived"), 0) for area in AREAS}
    with tempfile.TemporaryDirectory() as folder:
        tests = Reach(Path(folder) / "unchanged", options.only, options.reach)
        _write_line(f"{len(tests.seconds)} tests, {len(mutants)} of {sum(totals.values())} mutants")
        for name in sorted(tests.failed):
            _write_line(f"not used, it fails on the reference backend without a mutant: {name}")

        def decide(mutant: Mutant, fate: str) -> None:
            fates[mutant.area][fate] += 1
            done = sum(sum(counts.values()) for counts in fates.values())
            if done % 50 == 0:
                _write_line(f"{done} mutants after {(time.monotonic() - began) / 60:.0f} minutes")
            if fate != "killed" or options.line:
                _write_line(f"{fate:9}{mutant}")

        free = [make_copy(Path(folder) / str(i)) for i in range(options.processes)]
        running: dict[int, tuple[Mutant, Path, float]] = {}
        while (mutants and time.monotonic() - began < 60 * options.minutes) or running:
            if free and mutants and time.monotonic() - began < 60 * options.minutes:
                mutant = mutants.pop(0)
                selected = tests.of(mutant)
                if not selected:
                    decide(mutant, "survived")
                    continue
                copy = free.pop()
                put(copy / mutant.file, mutant.source)
                files = sorted({name.partition("::")[0] for name in selected})
                limit = time.monotonic() + START + 5 * sum(selected.values())
                running[fork(copy, files, selected)] = mutant, copy, limit
                continue
            ended, status = os.waitpid(-1, os.WNOHANG)
            if not ended:
                for process, (_, _, limit) in running.items():
                    if time.monotonic() > limit:
                        os.killpg(process, signal.SIGKILL)
                time.sleep(0.02)
                continue
            mutant, copy, limit = running.pop(ended)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(ended, signal.SIGKILL)  # what a test has started and not ended
            put(copy / mutant.file, (ROOT / mutant.file).read_text())
            free.append(copy)
            passed = os.waitstatus_to_exitcode(status) in (0, 5)  # of pytest: no test failed, or there was none
            decide(mutant, "survived" if passed else "timeout" if time.monotonic() > limit else "killed")

    _write_line(f"{'room':24}{'all':>7}{'run':>7}{'killed':>8}{'timeout':>9}{'survived':>10}{'score':>8}")
    rows = [(area, totals[area], fates[area]) for area in options.only]
    whole = {fate: sum(counts[fate] for _, _, counts in rows) for fate in ("killed", "timeout", "survived")}
    for name, total, counts in [*rows, ("together", sum(totals.values()), whole)]:
        run = sum(counts.values())
        share = 100 * (run - counts["survived"]) / max(run, 1)
        numbers = f"{counts['killed']:8}{counts['timeout']:9}{counts['survived']:10}"
        _write_line(f"{name:24}{total:7}{run:7}{numbers}{share:7.1f}%")
    _write_line(f"{(time.monotonic() - began) / 60:.1f} minutes; a timeout counts as noticed")
    sys.exit(share < options.at_least)


def _short(code: str) -> str:
    line = " ".join(code.split())
    return line if len(line) <= 90 else f"{line[:60]} ... {line[-25:]}"


def _write_line(line: str) -> None:
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
