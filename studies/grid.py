"""Tables of texts, in whatever markup."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Grid:
    """A table in whatever markup."""

    heads: list
    lines: list  # of lists of texts

    def markdown(self):
        lines = [f"| {' | '.join(self.heads)} |", "|---" * len(self.heads) + "|"]
        rows = ([text.replace("|x|", r"\|x\|") for text in line] for line in self.lines)
        return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
