"""Pages whose numbers are lookups in docs/tables/ and in rows of results/, and the marked lines of README.md.

    python studies/page.py            write them again
    python studies/page.py --check    compare what is there with the tables; exit status 1 where they differ

Every number comes from an expression of the template: a lookup, or announced as ``stated`` with where it comes from.
Numbers that stand in the text itself are names of settings (F = 8, Table 1), checked by :func:`literal_numbers`.
"""

import argparse
import difflib
import re
import sys
import textwrap
from pathlib import Path

import jinja2

from air_time import AirTime
from evidence import PROBLEMS
from graphact.storage import write_atomically
from lookup import Lookup
from timings import Timings

ROOT = Path(__file__).parent.parent
TEMPLATES = Path(__file__).parent / "templates"
PAGES = {
    "results.md.j2": "docs/results.md",
    "performance.md.j2": "docs/performance.md",
    "scheduling.md.j2": "docs/scheduling.md",
    "readme-results.md.j2": "README.md",  # the lines between its marks
}
BEGIN, END = "<!-- results: written by python studies/page.py -->\n", "<!-- end of results -->\n"
COMPUTED = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}|```.*?```|`[^`]*`|\]\([^)]*\)", re.DOTALL)
SETTINGS = re.compile(
    r"""\b[FK]\s=\s\d+(?:,\s\d+)*(?:\s(?:and|to|or|against)\s\d+)?  # settings of networks
    |\b(?:Tables?|Figures?|Section|Prop\.)\s\d[a-d]?(?:\s(?:and|to)\s\d?[a-d]?)?  # exhibits of the paper
    |\((?:19|20)\d\d\)|\b(?:19|20)\d\d\b  # years of publications
    |\(\d\)|^\d\.\s|\bGATv2\b  # hops of an activation, items of a list, a name
    |\b9[05]\s%|\bH200\b|\bK\s\+\s1\b""",
    re.VERBOSE | re.MULTILINE,
)


def make_environment(names, **options):
    """Return templates that know these names; an unknown name is an error."""
    blanks = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    loader = jinja2.FileSystemLoader(TEMPLATES)
    made = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, **blanks, **options)
    made.globals |= names
    return made


def literal_numbers(template):
    """Return numbers in the text of a template that are neither computed nor names of settings."""
    text = SETTINGS.sub(" ", COMPUTED.sub(" ", template))
    return re.findall(r"\S*\d\S*", text)


def render_pages(known):
    """Return the text of every page by its path."""
    environment = make_environment(known.names() | Timings().names() | {"air": AirTime()})
    return {path: within_marks(path, wrapped(environment.get_template(name).render())) for name, path in PAGES.items()}


def wrapped(text, width=100):
    """Return Markdown with its paragraphs and items wrapped; tables, code, comments and images are left as they are."""
    found, in_code = [], False
    for block in text.split("\n\n"):
        in_code ^= block.count("```") % 2 == 1
        if in_code or "```" in block or block.lstrip().startswith(("|", "#", "<!--", "!", "{")):
            found.append(block)
            continue
        items = re.split(r"\n(?=- |\d\. )", block.strip("\n"))
        options = {"width": width, "break_long_words": False, "break_on_hyphens": False}
        indents = ["  " if item.startswith("- ") else "   " if re.match(r"\d\. ", item) else "" for item in items]
        lines = [
            textwrap.fill(" ".join(item.split()), subsequent_indent=indent, **options)
            for item, indent in zip(items, indents, strict=True)
        ]
        found.append("\n".join(lines))
    return "\n\n".join(found).rstrip("\n") + "\n"


def within_marks(path, text):
    """Return a page: its template, or, for one with marks, what is there with the template between them."""
    page = (ROOT / path).read_text() if (ROOT / path).exists() else ""
    if BEGIN not in page:
        return page if path == "README.md" else text
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}{text}{END}{rest.split(END)[1]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    try:
        pages = render_pages(Lookup())
    except PROBLEMS as problem:
        sys.exit(str(problem))
    differs = False
    for path, text in pages.items():
        before = (ROOT / path).read_text() if (ROOT / path).exists() else ""
        lines = difflib.unified_diff(before.splitlines(), text.splitlines(), path, "from the tables", lineterm="", n=0)
        if changes := list(lines):
            differs = True
            sys.stdout.writelines(f"{line}\n" for line in changes)
        if not options.check:
            write_atomically(ROOT / path, text.encode())
    return int(options.check and differs)


if __name__ == "__main__":
    sys.exit(main())
