"""The reproducibility paper as LaTeX, from a template and rows; its PDF where an engine is installed.

    python studies/paper.py [results] --out out/paper     paper.tex, figures; paper.pdf by tectonic, latexmk or pdflatex

Its numbers come from the same functions as those of docs/reproduction.md.
"""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

import exchanges
from evidence import PROBLEMS, RESULTS, Evidence
from facts import Facts
from graphact.storage import check_writable, write_atomically
from page import make_environment
from verdicts import shown_p

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


def tabular(grid, columns=None):
    """A grid as a table; ``columns`` are LaTeX's letters."""
    letters = columns or "l" + "r" * (len(grid.heads) - 1)
    lines = [rf"\begin{{tabular}}{{{letters}}}", r"\toprule", " & ".join(map(to_tex, grid.heads)) + r" \\", r"\midrule"]
    lines += [" & ".join(map(to_tex, line)) + r" \\" for line in grid.lines]
    return Tex("\n".join([*lines, r"\bottomrule", r"\end{tabular}"]))


def forest(verdict, axis):
    """The contrasts of a claim with their intervals, as a figure of matplotlib."""
    from graphact_lab import style

    with style.house_style():
        found = list(verdict.estimates.items())
        sheet = style.new_sheet(0.7 + 0.16 * len(found))
        axes = sheet.subplots()
        for place, (_, estimate) in enumerate(found):
            color = "#0072b2" if estimate.is_certain else style.GREY
            axes.errorbar(
                estimate.mean, place, xerr=estimate.margin, color=color, marker="o", markersize=3, linewidth=1.2
            )
        axes.axvline(0.0, color=style.INK, linewidth=0.7)
        if verdict.claim.bound:
            axes.axvline(verdict.claim.bound, color=style.INK, linewidth=0.7, linestyle=(0, (4, 2)))
        labels = [contrast.label.removesuffix(", minus the paper's") for contrast, _ in found]
        axes.set_yticks(range(len(found)), labels)
        axes.set_ylim(len(found) - 0.4, -0.6)
        sheet.supxlabel(axis, fontsize=8.5)
        axes.grid(axis="x")
        return sheet


def draw_figures(facts, folder):
    """The figures by the names that the template includes."""
    wanted = {
        "gain-over-relu": ("source-localization", "beats-relu", "converged", "Accuracy minus that of ReLU (points)"),
        "beside-the-paper": ("source-localization", "table-1", "converged", "Accuracy minus the paper's (points)"),
        "lost-links": ("consensus", "ga-lose-least", "paper", "What lost links add to the RMSE, minus that of others"),
    }
    folder.mkdir(parents=True, exist_ok=True)
    exchanges.draw(facts.evidence, exchanges.WIDTHS).savefig(folder / "exchanges.pdf", metadata={"CreationDate": None})
    for name, (experiment, key, protocol, axis) in wanted.items():
        verdict = facts.verdict(experiment, key, protocol)
        if verdict and verdict.estimates:
            forest(verdict, axis).savefig(folder / f"{name}.pdf", metadata={"CreationDate": None})


def render_paper(facts):
    """The LaTeX of the paper."""
    environment = make_environment(facts.names(), finalize=to_tex, **DELIMITERS)
    environment.globals |= {"tabular": tabular, "shown_p": shown_p}
    return environment.get_template("paper.tex.j2").render()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, default=Path("out/paper"))
    options = parser.parse_args()
    try:
        check_writable(options.out)
        facts = Facts(Evidence(options.directory))
    except PROBLEMS as problem:
        sys.exit(str(problem))
    write_atomically(options.out / "paper.tex", render_paper(facts).encode())
    draw_figures(facts, options.out)
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
