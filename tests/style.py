"""Names and sentences: what a native engineer of the field would not write. Run by make lint; docs in CONTRIBUTING.md.

python tests/style.py            every finding, a line each; exit code 1 if there is one
python tests/style.py --count    findings by rule and folder
python tests/style.py FILE...    of these files alone
"""

import argparse
import ast
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from house import tracked

ROOT = Path(__file__).parent.parent
FOLDERS = ("packages", "benchmarks", "studies", "examples", "docs", "tests", "conftest.py")
OPENINGS = {"What", "Whether", "How", "Which", "Where", "Why", "Who", "Whose"}
PREFIXES = ("of_", "MOST_", "LEAST_", "FEWEST_", "LARGEST_", "SMALLEST_", "LONGEST_", "SHORTEST_", "hear_")
NAMES = {"MOST", "LARGEST", "WAYS", "go_on_from", "least_too", "mean_and_apart", "network_in_plain_words"}
NAMES |= {"own_operation", "settled", "take_back", "unshown"}
FUNCTIONS = {"say", "takes"}  # names of functions that say nothing
FILES = {"others", "parts", "names", "drawn", "shares", "saying", "fields"}
PHRASES = {  # what was found, and what says the same
    r"\bof (yours|ours|hers|theirs)\b": "your own, our own",
    r"\bhas not (the|a|any)\b": "has no, lacks",
    r"\bhave not (the|a|any)\b": "have no, lack",
    r"\bis no (parameter|part|name|number|graph|module|tensor|array|function|file|row) of\b": "is not a",
    r"\ball that is no\b": "non-..., without",
    r"\b(that|which) (is|are) no (array|tensor|number|module|graph|class|function)s?\b": "not a, non-...",
    r"\bmany an? \w+ is\b": "most",
    r"\bhardly an?\b": "few",
    r"\bit is taken as it is\b": "it is used unchanged",
    r"\bare taken as they are\b": "are used unchanged",
    r"\bnobody (takes|reads|needs|asks)\b": "ignored, unused",
    r"\b(what|which) is (kept|saved) are\b": "saved values are",
    r"\bforgotten at once\b": "ephemeral",
    r"\bin plain words\b": "readable",
    r"\bshall\b": "must",
    r"\bwhat came of\b": "results of",
    r"\bat once\b(?=\s*[.;,]?\s*$)": "together, immediately",
    r"\bgoes the way\b": "uses the strategy",
    r"\banew\b": "again",
    r"\bbehind it\b": "after it",
    r"\blooks? inside\b": "traces",
    r"\blaid out\b": "materialized",
    r"\bwhereby\b|\bthereof\b|\bwherein\b": "plain words",
}
PATTERN = re.compile("|".join(f"(?P<p{i}>{phrase})" for i, phrase in enumerate(PHRASES)), re.IGNORECASE | re.MULTILINE)


def sources(arguments: list[str]) -> list[Path]:
    """Return the Python files to check: those given, or all that git tracks."""
    if arguments:
        return [Path(name).resolve() for name in arguments]
    return [path for path in tracked(*FOLDERS) if path.suffix == ".py"]


def check(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield line, rule and finding for each fault of a file."""
    text = path.read_text()
    if path.stem in FILES:
        yield 1, "file name", path.name
    if path == Path(__file__).resolve():
        return
    tree = ast.parse(text)
    for node in ast.walk(tree):
        yield from check_names(node)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node, clean=True)
            first = (docstring or "").split(maxsplit=1)[:1]
            if first and first[0].strip(",:") in OPENINGS:
                yield node.body[0].lineno, "docstring opening", docstring.splitlines()[0]
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING) or token.type == getattr(
                tokenize, "FSTRING_MIDDLE", -1
            ):
                for found in PATTERN.finditer(token.string):
                    instead = list(PHRASES.values())[int(found.lastgroup[1:])]
                    line = token.start[0] + token.string[: found.start()].count("\n")
                    yield line, "phrase", f"{found[0]!r}: {instead}"


def check_names(node: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Yield names that a definition, an argument or an assignment gives, and that nobody would search for."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            found = [name]
        case ast.arg(arg=name):
            found = [name]
        case ast.Name(id=name, ctx=ast.Store()):
            found = [name]
        case ast.Attribute(attr=name, ctx=ast.Store()):
            found = [name]
        case _:
            return
    if isinstance(node, ast.FunctionDef) and node.name.lstrip("_") in FUNCTIONS:
        yield node.lineno, "name", node.name
    for name in found:
        if name.lstrip("_").startswith(PREFIXES) or name.lstrip("_") in NAMES:
            yield node.lineno, "name", name


def main(arguments: list[str]) -> int:
    """Print what was found; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--count", action="store_true")
    options = parser.parse_args(arguments)
    found = [(path.relative_to(ROOT), *each) for path in sources(options.files) for each in check(path)]
    if options.count:
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for path, _, rule, _ in found:
            counts["/".join(path.parts[:-1][:5])][rule] += 1
        for folder, rules in sorted(counts.items()):
            sys.stdout.write(f"{folder:60s} {dict(rules)}\n")
    else:
        for path, line, rule, words in found:
            sys.stdout.write(f"{path}:{line}: {rule}: {words}\n")
    sys.stdout.write(f"{len(found)} findings\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
