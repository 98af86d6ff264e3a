"""What is published, checked before it is: `make release-check`.

python tests/release.py                       all of it: half an hour, most of it to install torch again and again
python tests/release.py --only cpu onnx       the environments of these extras alone ("none": no extra)
python tests/release.py --skip-tests          without the tests of the source distribution

A wheel and a source distribution are built in an isolated environment and looked into; twine checks their descriptions;
the wheel is installed with each extra into an empty environment, in which that extra does something; and the tests of
the unpacked source distribution run against the installed package. Tests that need the published results, which a
source distribution leaves out, are skipped there and say so.
"""

import argparse
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
USES = {
    "none": "import warnings\nwarnings.simplefilter('ignore')\n" + ACTIVATE,
    "cpu": "import warnings\nwarnings.simplefilter('error')\n" + ACTIVATE,
    "gpu": "import sys\nif sys.platform == 'linux': import triton\nimport graphact.nn",
    "pyg": """
import torch, graphact
from torch_geometric.data import Data
data = graphact.pyg.AttachGraph()(Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1], [1, 2]])))
assert data.graph.num_nodes == 3
""",
    "experiments": """
from graphact.cli import main
assert main("run source-localization --preset smoke --activation relu --device cpu --out out --quiet".split()) == 0
""",
    "agents": "import zenoh, graphact_agents",
    "scaleout": """
import graphact
from graphact.distributed import assign_nodes
assert assign_nodes(graphact.Graph.stochastic_block_model([20, 20], 0.5, 0.01), 2)[1] == "metis"
""",
    "onnx": """
import onnxruntime, torch, graphact
graph = graphact.Graph.stochastic_block_model([5, 5], 0.8, 0.2)
graphact.export_onnx(graphact.nn.GraphAdaptiveMax(), torch.randn(10, 1), graph, "model.onnx")
onnxruntime.InferenceSession("model.onnx")
""",
    "estimators": """
from graphact.estimators import NodeClassifier
x, y = [[1.0], [1.2], [-1.0], [-1.1]], [1, 1, 0, 0]
assert NodeClassifier(epochs=50, random_state=0).fit(x, y).score(x, y) == 1
""",
    "lightning": """
import graphact
from graphact.lightning import GraphLearner
GraphLearner(graphact.nn.GCNN([1, 2], order=1))
""",
    "all": "import graphact.estimators, graphact.lightning, torch_geometric, numba, zenoh, pymetis, onnxruntime, rich",
}
DATA = {"graphact/py.typed", "graphact/experiments/flocking/policy.safetensors"}  # files that are no code
INSIDE_WHEEL = re.compile(
    "|".join([r"graphact/[\w/]+\.py", r"graphact/experiments/report/[\w/.-]+", *map(re.escape, DATA)])
)
INSIDE_SDIST = re.compile(r"(src|tests|docs|examples|benchmarks|studies|deploy)/.+|[\w.-]+")
STRAY = re.compile(r"__pycache__|\.py[co]$|\.nb[ic]$|(^|/)(out|results|\.venv|\.git|docs/gallery)/|\.DS_Store|\.orig$")


def tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def run(*command: object, cwd: Path | None = None) -> None:
    words = [str(word) for word in command]
    tell(f"$ {' '.join(words)[:160]}")
    subprocess.run(words, check=True, cwd=cwd)


def environment(folder: Path, *packages: object) -> Path:
    """A new environment with these packages; its Python."""
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--constraint", CONSTRAINTS, *packages)
    return python


def complain(what: str, names: Iterable[str]) -> None:
    names = sorted(names)
    if names:
        sys.exit(f"{what}: {', '.join(names[:10])}")


def look_into_wheel(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
        metadata = next(archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
    complain(
        "stray files in the wheel", (name for name in names if STRAY.search(name) or not INSIDE_WHEEL.fullmatch(name))
    )
    sources = {str(file.relative_to(ROOT / "src")) for file in (ROOT / "src").rglob("*.py")}
    complain("missing in the wheel", (sources | DATA) - set(names))
    if "Project-URL: Repository" not in metadata:
        tell("note: project.urls names no Repository: relative links of the README lead nowhere on PyPI")


def look_into_sdist(path: Path, folder: Path) -> Path:
    """Check its names and unpack it."""
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(path) as archive:
        names = [member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()]
        complain("stray files in the sdist", (n for n in names if STRAY.search(n) or not INSIDE_SDIST.fullmatch(n)))
        archive.extractall(folder, filter="data")
    needed = {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "Makefile",
        "constraints.txt",
        "tests/conftest.py",
    }
    complain("missing in the sdist", needed - set(names))
    return next(folder.iterdir())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "release", help="folder to work in")
    parser.add_argument("--only", nargs="*", choices=sorted(USES), help="extras to install (default: every one)")
    parser.add_argument("--skip-tests", action="store_true", help="do not run the tests of the source distribution")
    options = parser.parse_args()
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    complain("extras without a check here", set(declared) - set(USES) - {"dev", "docs"})

    out = options.out.resolve()
    shutil.rmtree(out / "dist", ignore_errors=True)
    tools = environment(out / "tools", "build", "twine")
    run(tools, "-m", "build", "--outdir", out / "dist", ROOT)
    (wheel,), (sdist,) = (out / "dist").glob("*.whl"), (out / "dist").glob("*.tar.gz")
    run(tools, "-m", "twine", "check", "--strict", wheel, sdist)
    look_into_wheel(wheel)
    unpacked = look_into_sdist(sdist, out / "unpacked")

    for extra in USES if options.only is None else options.only:
        folder = out / f"with-{extra}"
        python = environment(folder, wheel if extra == "none" else f"{wheel}[{extra}]")
        script = folder / "use.py"
        script.write_text(USES[extra])
        run(python, "-I", script, cwd=folder)
        run(folder / "bin" / "graphact", "--version")
        shutil.rmtree(folder)
        tell(f"extra {extra}: ok")
    if not options.skip_tests:
        python = environment(out / "tests", f"{sdist}[dev]")
        run(python, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", "tests", cwd=unpacked)
        shutil.rmtree(out / "tests")
    tell(f"{wheel.name} and {sdist.name} are fit to be published")


if __name__ == "__main__":
    main()
