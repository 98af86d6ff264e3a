"""Check the three packages before they are published: `make release-check`.

python tests/release.py                            all of it: half an hour, most of it to install torch repeatedly
python tests/release.py --only graphact[cpu]       these environments alone
python tests/release.py --skip-tests               without the tests of the source distributions

A wheel and a source distribution of each package are built in an isolated environment and looked into; twine checks
their descriptions; the wheels are installed with each extra into an empty environment, in which that extra does
something, and one without an extra finds neither of the other packages; and the quick tests run against the installed
packages. Tests that need the published results are run from the repository and not from a source distribution.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
ACTIVATE = """
import torch, graphact
graph = graphact.Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
act = graphact.nn.GraphAdaptiveMax(hops=1)
torch.nn.init.ones_(act.weights)
out = act(torch.tensor([[1.0], [-2.0], [4.0]]), graph).flatten().tolist()
assert out == [6.0, -2.0, 9.0], out
"""
WITHOUT = """
import importlib.util
assert not any(importlib.util.find_spec(name) for name in {others}), "another package of the house is there"
"""
ALIASES = ("numba", "triton")  # of graphact[cpu] and graphact[gpu]
USES = {
    "graphact": WITHOUT.format(others=("graphact_agents", "graphact_lab"))
    + "import warnings\nwarnings.simplefilter('ignore')\n"
    + ACTIVATE,
    "graphact[cpu]": "import warnings\nwarnings.simplefilter('error')\n" + ACTIVATE,
    "graphact[gpu]": "import sys\nif sys.platform == 'linux': import triton\nimport graphact.nn",
    "graphact[pyg]": """
import torch, graphact
from torch_geometric.data import Data
data = graphact.pyg.AttachGraph()(Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1], [1, 2]])))
assert data.graph.num_nodes == 3
""",
    "graphact[progress]": "from graphact.progress import progress_bar\nwith progress_bar(1): pass",
    "graphact[figures]": "import matplotlib",
    "graphact[distributed]": """
import graphact
from graphact.distributed import assign_nodes
assert assign_nodes(graphact.Graph.stochastic_block_model([20, 20], 0.5, 0.01), 2)[1] == "metis"
""",
    "graphact[onnx]": """
import onnxruntime, torch, graphact
graph = graphact.Graph.stochastic_block_model([5, 5], 0.8, 0.2)
graphact.export_onnx(graphact.nn.GraphAdaptiveMax(), torch.randn(10, 1), graph, "model.onnx")
onnxruntime.InferenceSession("model.onnx")
""",
    "graphact[estimators]": """
from graphact.estimators import NodeClassifier
x, y = [[1.0], [1.2], [-1.0], [-1.1]], [1, 1, 0, 0]
assert NodeClassifier(epochs=50, random_state=0).fit(x, y).score(x, y) == 1
""",
    "graphact[lightning]": """
import graphact
from graphact.lightning import GraphLearner
GraphLearner(graphact.nn.GCNN([1, 2], order=1))
""",
    "graphact[all]": "import graphact.estimators, graphact.lightning, torch_geometric, numba, pymetis, onnxruntime",
    "graphact-agents": WITHOUT.format(others=("graphact", "graphact_lab", "torch"))
    + """
from graphact_agents.command import main
try:
    main(["--help"])
except SystemExit as stopped:
    assert stopped.code == 0
""",
    "graphact-agents[metrics]": "import prometheus_client, graphact_agents",
    "graphact-agents[zenoh]": "import zenoh, cryptography, graphact_agents",
    "graphact-lab": """
from graphact_lab.cli import main
assert main("run source-localization --preset smoke --activation relu --device cpu --out out --quiet".split()) == 0
""",
    "graphact-lab[parquet]": "from graphact_lab.parquet import decode_keys, encode_cells",
    "graphact-lab[pyg]": "import torch_geometric, graphact_lab.tasks",
}
PACKAGES = ("graphact", "graphact-agents", "graphact-lab")
TESTED_AS_INSTALLED = {  # folders of the repository; the rest reads published results or starts from the sources
    "graphact": ("graph", "functional", "nn", "training", "guarantees"),
    "graphact-agents": ("agents",),
    "graphact-lab": ("experiments",),
}
STRAY = re.compile(r"__pycache__|\.py[co]$|\.nb[ic]$|(^|/)(out|results|\.venv|\.git)/|\.DS_Store|\.orig$")
INSIDE_SDIST = re.compile(r"(src|tests)/.+|[\w.-]+")


def tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def run(*command: object, cwd: Path | None = None) -> None:
    words = [str(word) for word in command]
    tell(f"$ {' '.join(words)[:160]}")
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # what is installed counts
    subprocess.run(words, check=True, cwd=cwd, env=environ)


def environment(folder: Path, *packages: object) -> Path:
    """Make an environment with these packages, and return its Python."""
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-compile", "--constraint", CONSTRAINTS, *packages)
    return python


def complain(what: str, names: Iterable[str]) -> None:
    names = sorted(names)
    if names:
        sys.exit(f"{what}: {', '.join(names[:10])}")


def look_into_wheel(path: Path, package: str) -> None:
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
        metadata = next(archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
    source = ROOT / "packages" / package / "src"
    listed = subprocess.run(["git", "ls-files", "."], cwd=source, capture_output=True, text=True, check=True)
    complain(f"stray files in the wheel of {package}", set(names) - set(listed.stdout.split()))
    complain(f"missing in the wheel of {package}", set(listed.stdout.split()) - set(names))
    if "Project-URL: Repository" not in metadata:
        tell(f"note: project.urls of {package} names no Repository")


def look_into_sdist(path: Path, package: str) -> None:
    with tarfile.open(path) as archive:
        names = [member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()]
    complain(
        f"stray files in the sdist of {package}",
        (name for name in names if STRAY.search(name) or not INSIDE_SDIST.fullmatch(name)),
    )
    complain(f"missing in the sdist of {package}", {"pyproject.toml", "README.md", "LICENSE"} - set(names))


def declared_extras() -> set[str]:
    """Return every package, and each with each of its extras, as pip writes them."""
    found = set(PACKAGES)
    for package in PACKAGES:
        project = tomllib.loads((ROOT / "packages" / package / "pyproject.toml").read_text())["project"]
        found |= {f"{package}[{extra}]" for extra in project["optional-dependencies"] if extra not in ALIASES}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "release", help="folder to work in")
    parser.add_argument("--only", nargs="*", choices=sorted(USES), help="environments to install (default: every one)")
    parser.add_argument("--skip-tests", action="store_true", help="do not run tests against the installed packages")
    options = parser.parse_args()
    complain("packages and extras without a check here", declared_extras() ^ set(USES))

    out = options.out.resolve()
    shutil.rmtree(out / "dist", ignore_errors=True)
    tools = environment(out / "tools", "build", "twine")
    wheels = {}
    for package in PACKAGES:
        built = out / "dist" / package
        run(tools, "-m", "build", "--outdir", built, ROOT / "packages" / package)
        (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
        run(tools, "-m", "twine", "check", "--strict", wheel, sdist)
        look_into_wheel(wheel, package)
        look_into_sdist(sdist, package)
        wheels[package] = wheel

    for use in USES if options.only is None else options.only:
        folder = out / re.sub(r"\W", "-", f"with-{use}")
        name, bracket, extra = use.partition("[")
        below = [wheels["graphact"], wheels["graphact-agents"]] if name == "graphact-lab" else []
        python = environment(folder, *below, f"{wheels[name]}{bracket}{extra}")
        script = folder / "use.py"
        script.write_text(USES[use])
        run(python, "-I", script, cwd=folder)
        run(folder / "bin" / name, "--help")
        shutil.rmtree(folder)
        tell(f"{use}: ok")
    if not options.skip_tests:
        needed = ("pytest", "hypothesis", "networkx", "scikit-learn", "torch_geometric", "pyarrow", "rich")
        needed += ("prometheus-client", "cryptography", "eclipse-zenoh")
        python = environment(out / "tests", *wheels.values(), *needed)
        copy = out / "repository"
        shutil.rmtree(copy, ignore_errors=True)
        cache = shutil.ignore_patterns("__pycache__")  # tests read all else, and import what is installed
        for folder in ("packages", "tests", "docs", "deploy", "examples", "benchmarks", "studies", "results"):
            shutil.copytree(ROOT / folder, copy / folder, ignore=cache)
        for package, rooms in TESTED_AS_INSTALLED.items():
            tests = [copy / "packages" / package / "tests" / room for room in rooms]
            complain(f"rooms of {package} that are not there", (str(path) for path in tests if not path.is_dir()))
        for name in ("conftest.py", "pyproject.toml", "README.md", "constraints.txt", ".dockerignore"):
            shutil.copy(ROOT / name, copy / name)
        tests = [f"packages/{package}/tests/{room}" for package, rooms in TESTED_AS_INSTALLED.items() for room in rooms]
        run(python, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", *tests, cwd=copy)
        shutil.rmtree(out / "tests")
    tell(f"{', '.join(wheel.name for wheel in wheels.values())} are fit to be published")


if __name__ == "__main__":
    main()
