"""Small changes to words."""


def uncapitalized(text: str) -> str:
    """Text that goes on within a sentence.

    Example:
        >>> from graphact.experiments.report.words import uncapitalized
        >>> uncapitalized("Test RMSE")
        'test RMSE'
    """
    return text[:1].lower() + text[1:]


def capitalized(text: str) -> str:
    """Text that begins a sentence; unlike ``str.capitalize`` it leaves the other letters alone."""
    return text[:1].upper() + text[1:]
