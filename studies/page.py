"""The pages on the reproduction (docs/reproduction.md and its kin), and what the README says of it, from the rows.

    python studies/page.py            write them again
    python studies/page.py --check    compare what is there with the rows; exit status 1 where they differ

Every number of the pages comes from an expression of the template: computed from rows, or announced as ``stated`` with
where it comes from. Numbers that stand in the text itself are names of settings (F = 8, Table 1), checked by
:func:`literal_numbers`.
"""

import argparse
import difflib
import re
import sys
from pathlib import Path

import jinja2

from evidence import PROBLEMS, RESULTS, Evidence
from facts import Facts
from graphact.storage import write_atomically

ROOT = Path(__file__).parent.parent
TEMPLATES = Path(__file__).parent / "templates"
PAGES = {
    "reproduction.md.j2": "docs/reproduction.md",
    "reproduction-details.md.j2": "docs/reproduction-details.md",
    "authors-code.md.j2": "docs/authors-code.md",
    "readme-results.md.j2": "README.md",  # the lines between its marks
}
BEGIN, END = "<!-- results: written by python studies/page.py -->\n", "<!-- end of results -->\n"
COMPUTED = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}|```.*?```|`[^`]*`|\]\([^)]*\)", re.DOTALL)
SETTINGS = re.compile(
    r"""\b[FK]\s=\s\d+(?:,\s\d+)*(?:\s(?:and|to|or|against)\s\d+)?  # settings of networks
    |\b(?:Tables?|Figures?|Section|Prop\.)\s\d[a-d]?(?:\s(?:and|to)\s\d?[a-d]?)?  # exhibits of the paper
    |\((?:19|20)\d\d\)|\b(?:19|20)\d\d\b  # years of publications
    |\(\d\)  # hops of an activation
    |\b95\s%|\bH200\b|\b100K\b|\bfloat32\b""",
    re.VERBOSE,
)


def make_environment(names, **options):
    """Templates that know what these names stand for; an unknown name is an error."""
    blanks = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    loader = jinja2.FileSystemLoader(TEMPLATES)
    made = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, **blanks, **options)
    made.globals |= names
    made.filters["words"] = lambda text: str(text).replace("**", "")
    return made


def literal_numbers(template):
    """Numbers in the text of a template that are neither computed nor names of settings."""
    text = SETTINGS.sub(" ", COMPUTED.sub(" ", template))
    return re.findall(r"\S*\d\S*", text)


def render_pages(evidence):
    """The text of every page by its path."""
    environment = make_environment(Facts(evidence).names())
    return {path: within_marks(path, environment.get_template(name).render()) for name, path in PAGES.items()}


def within_marks(path, text):
    """A page is its template; of one with marks, the lines between them are."""
    page = (ROOT / path).read_text() if (ROOT / path).exists() else ""
    if BEGIN not in page:
        return text
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}{text}{END}{rest.split(END)[1]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", type=Path, default=RESULTS)
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    try:
        pages = render_pages(Evidence(options.directory))
    except PROBLEMS as problem:
        sys.exit(str(problem))
    differs = False
    for path, text in pages.items():
        before = (ROOT / path).read_text() if (ROOT / path).exists() else ""
        lines = difflib.unified_diff(before.splitlines(), text.splitlines(), path, "from the rows", lineterm="", n=0)
        if changes := list(lines):
            differs = True
            sys.stdout.writelines(f"{line}\n" for line in changes)
        if not options.check:
            write_atomically(ROOT / path, text.encode())
    return int(options.check and differs)


if __name__ == "__main__":
    sys.exit(main())
