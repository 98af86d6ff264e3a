"""The reproducibility paper as LaTeX, from a template and rows; its PDF where an engine is installed.

    python studies/paper.py --out out/paper     paper.tex, figures; paper.pdf by tectonic, latexmk or pdflatex

Its numbers are lookups in docs/tables/, as those of docs/results.md. Pages are counted where an engine is installed.
"""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

from draw import draw_all
from evidence import PROBLEMS
from graphact.storage import check_writable, write_atomically
from lookup import Lookup
from page import make_environment

DELIMITERS = {
    **{
        "variable_start_string": "<<",
        "variable_end_string": ">>",
        "block_start_string": "<%",
        "block_end_string": "%>",
    },
    **{"comment_start_string": "<#", "comment_end_string": "#>"},
}
ENGINES = (
    ("tectonic", ["tectonic", "paper.tex"]),
    ("latexmk", ["latexmk", "-pdf", "-interaction=nonstopmode", "paper.tex"]),
    ("pdflatex", ["pdflatex", "-interaction=nonstopmode", "paper.tex"]),
)
LETTERS = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$"},
    **{"±": r"$\pm$", "✓": r"\checkmark", "▲": r"$\blacktriangle$", "▼": r"$\blacktriangledown$", "|": "$|$"},
    **{"\N{NO-BREAK SPACE}": "~", "β": r"$\beta$", "è": r"\`e"},
}


class Tex(str):
    """Text that is LaTeX already."""

    __slots__ = ()


def to_tex(value):
    """Escape a text with the marks that facts use: bold, code, plus and minus signs."""
    if isinstance(value, Tex):
        return value
    text = "".join(LETTERS.get(letter, letter) for letter in str(value))
    text = re.sub(r"\*\*(.+?)\*\*", r"\\textbf{\1}", text)
    text = re.sub(r"`([^`]*)`", r"\\texttt{\1}", text)
    text = re.sub(r"(?<![\w.])([+-])(?=\d)", r"$\1$", text)
    return Tex(text.replace(" - ", " $-$ "))


def tabular(body, columns=None):
    """A table with its heads in the first line; ``columns`` are LaTeX's letters."""
    heads, *lines = body
    letters = columns or "l" + "r" * (len(heads) - 1)
    text = [rf"\begin{{tabular}}{{{letters}}}", r"\toprule", " & ".join(map(to_tex, heads)) + r" \\", r"\midrule"]
    text += [" & ".join(map(to_tex, line)) + r" \\" for line in lines]
    return Tex("\n".join([*text, r"\bottomrule", r"\end{tabular}"]))


def render_paper(known):
    """The LaTeX of the paper."""
    environment = make_environment(known.names(), finalize=to_tex, **DELIMITERS)
    environment.globals |= {"tabular": tabular}
    return environment.get_template("paper.tex.j2").render()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/paper"))
    options = parser.parse_args()
    try:
        check_writable(options.out)
        known = Lookup()
        text = render_paper(known)
    except PROBLEMS as problem:
        sys.exit(str(problem))
    write_atomically(options.out / "paper.tex", text.encode())
    draw_all(known, options.out, is_pdf=True)
    sys.stdout.write(f"{options.out / 'paper.tex'}\n")
    for name, command in ENGINES:
        if shutil.which(name):
            for _ in range(2 if name == "pdflatex" else 1):  # the second pass knows the references
                done = subprocess.run(command, cwd=options.out, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"{name} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
            sys.stdout.write(f"{options.out / 'paper.pdf'}\n")
            return
    sys.stdout.write(f"no PDF: none of {', '.join(name for name, _ in ENGINES)} is installed\n")


if __name__ == "__main__":
    main()
