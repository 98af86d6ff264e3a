"""HTML that cannot be injected into: plain text is escaped wherever it is put, markup is a type of its own."""

from html import escape


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def markup(*parts: str) -> Markup:
    """Join parts; those that are not markup are escaped.

    Example:
        >>> from graphact.experiments.report.markup import element, markup
        >>> markup("a < b ", element("b", "bold"))
        'a &lt; b <b>bold</b>'
    """
    return Markup("".join(part if isinstance(part, Markup) else escape(part) for part in parts))


def element(name: str, *children: str, **attributes: str | None) -> Markup:
    """An element with its children; an attribute's trailing underscore is dropped, inner ones become hyphens.

    Example:
        >>> from graphact.experiments.report.markup import element
        >>> element("p", "<script>", class_="note", aria_label='"')
        '<p class="note" aria-label="&quot;">&lt;script&gt;</p>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{written}>{markup(*children)}</{name}>")


def unbroken(text: str) -> str:
    """Text whose equations and deviations stay on one line."""
    space = "\N{NO-BREAK SPACE}"
    return text.replace(" = ", f"{space}={space}").replace(" ± ", f"{space}±{space}")
