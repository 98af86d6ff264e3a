"""The size of the house: lines of each room, words of the site, names that stand for two things.

python tests/house.py            a table, and what is above its target
"""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
CORE = "packages/graphact/src/graphact"
AGENTS = "packages/graphact-agents/src/graphact_agents"
LAB = "packages/graphact-lab/src/graphact_lab"
ROOMS = {  # of the library: folders and files, and the lines aimed at
    "graph": (("graph",), 2200),
    "kernels": (("kernels", "_triton.py", "_sparse.py"), 4200),
    "functional": (("functional",), 900),
    "nn": (("nn",), 2300),
    "spec, files, onnx": (("spec", "files.py", "onnx"), 1400),
    "pyg": (("pyg",), 700),
    "training": (("training",), 1700 + 570),
    "estimators": (("estimators", "lightning.py"), 900),
    "guarantees": (("guarantees",), 3300),
    "distributed": (("distributed",), 1300),
    "commands, checks, registry": (None, 1000),
}
# Each experiment of the lab has its description, its task and perhaps its runner; each command line has its entry point
SAME_NAMES = {"__init__.py", "experiment.py", "task.py", "runner.py", "cli.py"}
CORE_ROOMS = ("graph", "kernels", "functional", "nn", "spec, files, onnx")
PARALLEL = (  # folders whose files correspond: the same name stands for the same thing there
    (r"kernels/(numba|triton|cuda)/", "kernels/*/"),
    (r"graphact/(functional|nn)/", "graphact/*/"),
    (r"/experiments/\w+/", "/experiments/*/"),
    (r"^.*/(commands/\w+|cli)\.py$", ""),  # a command is called as what it calls
)
# Words of text that pages may have: tables and code come on top, but for the README, which is counted as a whole
MAX_TEXT = {
    ("results", "choosing"): 2_500,
    ("agents", "agents-protocol", "agents-learning"): 5_000,
    ("guarantees",): 2_500,
    ("flocking",): 800,
    ("performance",): 1_000,
    ("scaling",): 1_200,
    ("experiments",): 1_500,
    ("start",): 400,
}
MAX_README = 800
MAX_CORE, MAX_AGENTS, MAX_LAB, MAX_SOURCE, MAX_TESTS, MAX_WORDS = 11_000, 7_000, 9_000, 35_000, 30_000, 30_000


def tracked(*patterns: str) -> list[Path]:
    """Return the tracked files that match, as they stand in the working tree."""
    command = ["git", "ls-files", "-z", "--", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def lines(paths: list[Path]) -> int:
    """Return the number of lines of files."""
    return sum(len(path.read_text().splitlines()) for path in paths)


def lines_by_room() -> dict[str, int]:
    """Return the lines of each room of the library."""
    every = {path: lines([path]) for path in tracked(f"{CORE}/*.py")}
    counts = {}
    for room, (places, _) in ROOMS.items():
        if places is not None:
            mine = [path for path in every if path.relative_to(ROOT / CORE).parts[0] in places]
            counts[room] = sum(every.pop(path) for path in mine)
        else:
            counts[room] = sum(every.values())
    return counts


def words_by_page() -> dict[str, int]:
    """Return the words of each page of the site but for the API, which is generated."""
    pages = [path for path in tracked("docs/*.md", "README.md") if "api" not in path.parts]
    return {str(path.relative_to(ROOT)): len(path.read_text().split()) for path in pages}


def words_of_text(page: str) -> int:
    """Return the words of a page without its tables, code and comments."""
    text = re.sub(
        r"<!--.*?-->|^```.*?^```$", "", (ROOT / "docs" / f"{page}.md").read_text(), flags=re.DOTALL | re.MULTILINE
    )
    return sum(len(line.split()) for line in text.splitlines() if not line.startswith("|"))


def colliding_names() -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return class names and file names that stand at several places in the sources, other than in parallel folders."""
    classes, files = defaultdict(list), defaultdict(list)
    for path in tracked("packages/*/src/*.py"):
        place = str(path.relative_to(ROOT / "packages"))
        if path.name not in SAME_NAMES:
            files[path.name].append(place)
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(place)
    files = {name: list({parallel(place): place for place in places if parallel(place)}.values())
             for name, places in files.items()}  # fmt: skip
    both = [{name: places for name, places in found.items() if len(places) > 1} for found in (classes, files)]
    return both[0], both[1]


def parallel(place: str) -> str:
    """Return a place with parallel folders made equal; empty for a file whose name is given from outside."""
    for pattern, common in PARALLEL:
        place = re.sub(pattern, common, place)
    return place


def summary() -> dict[str, tuple[int, int]]:
    """Return each total beside its limit."""
    rooms = lines_by_room()
    agents, lab = (lines(tracked(f"{place}/*.py")) for place in (AGENTS, LAB))
    tests = lines(tracked("tests/*.py", "packages/*/tests/*.py", "conftest.py"))
    words = words_by_page()
    return {
        "core": (sum(rooms[room] for room in CORE_ROOMS), MAX_CORE),
        "graphact": (sum(rooms.values()), MAX_SOURCE - MAX_AGENTS - MAX_LAB),
        "graphact-agents": (agents, MAX_AGENTS),
        "graphact-lab": (lab, MAX_LAB),
        "all sources": (sum(rooms.values()) + agents + lab, MAX_SOURCE),
        "tests": (tests, MAX_TESTS),
        "words of the site": (sum(words.values()), MAX_WORDS),
        "words of README": (words["README.md"], MAX_README),
        **{f"text of {', '.join(pages)}": (sum(map(words_of_text, pages)), limit) for pages, limit in MAX_TEXT.items()},
    }


def main() -> int:
    """Print the tables."""
    for room, count in lines_by_room().items():
        sys.stdout.write(f"  {room:46s} {count:7,d} {ROOMS[room][1]:7,d}{mark(count, ROOMS[room][1])}\n")
    for name, (count, limit) in summary().items():
        sys.stdout.write(f"{name:48s} {count:7,d} {limit:7,d}{mark(count, limit)}\n")
    for kind, found in zip(("class", "file"), colliding_names(), strict=True):
        sys.stdout.write(f"{len(found)} {kind} names stand for two things\n")
        for name, places in sorted(found.items()):
            sys.stdout.write(f"  {name:28s} {', '.join(re.sub(r'/src/graphact[^/]*', '', p) for p in places)}\n")
    return 0


def mark(count: int, limit: int) -> str:
    """Return how far a count is above its limit."""
    return f"  {count - limit:+,d}" if count > limit else ""


if __name__ == "__main__":
    sys.exit(main())
