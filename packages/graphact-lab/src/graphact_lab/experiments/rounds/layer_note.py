"""The sentence of a report on networks whose activations leave no round for a filter."""

from collections.abc import Callable, Iterable, Sequence

from graphact_lab.experiments.rounds.experiment import ACTIVATIONS, orders_of

WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def layer_note(methods: Iterable[str], rounds: Sequence[int], label: Callable[[str], str]) -> str:
    """Return a sentence for each kind of activation that filters of order 0 precede; empty if there is none.

    Example:
        >>> layer_note(["gelu", "max-ga", "median-ga"], [4], str)
        'max-ga and median-ga spend two rounds a layer, so they have two layers and no filter shift.'
        >>> layer_note(["max-ga"], [2, 4, 6], str)
        'max-ga spends two rounds a layer, so after 2 and 4 rounds it has one and two layers and no filter shift.'
    """
    kinds: dict[tuple[int, tuple[int, ...]], list[str]] = {}
    for method in methods:
        without = tuple(count for count in rounds if 0 in orders_of(method, count))
        if without:
            kinds.setdefault((ACTIVATIONS[method][0] - 1, without), []).append(label(method))
    said = []
    for (each, without), names in kinds.items():
        spend, have = ("spends", "it has") if len(names) == 1 else ("spend", "they have")
        after = "" if len(rounds) == 1 else f"after {in_a_row([str(count) for count in without])} rounds "
        layers = [count // each for count in without]
        said.append(
            f"{in_a_row(names)} {spend} {counted(each, 'round')} a layer, so {after}{have} "
            f"{in_a_row([word(count) for count in layers])} layer{'' if layers == [1] else 's'} and no filter shift."
        )
    return " ".join(said)


def in_a_row(names: Sequence[str]) -> str:
    """Return names with commas and a final "and"."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def word(count: int) -> str:
    """Return a small number as a word."""
    return WORDS[count] if count < len(WORDS) else str(count)


def counted(count: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{word(count)} {noun}{'' if count == 1 else 's'}"
