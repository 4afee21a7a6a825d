"""HTML and LaTeX with escaped texts."""

from collections.abc import Mapping, Sequence

from markupsafe import Markup, escape

GREEK = {"α": "$\\alpha$", "β": "$\\beta$", "λ": "$\\lambda$", "μ": "$\\mu$", "σ": "$\\sigma$"}
IN_LATEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"}
    | {"<": "\\textless{}", ">": "\\textgreater{}", "±": "$\\pm$", **GREEK}
    | {sign: f"\\textsuperscript{{{digit}}}" for digit, sign in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}
)


def latex(text: str) -> str:
    """A text escaped for LaTeX; line breaks become spaces, as an empty line would end a paragraph."""
    return " ".join(text.splitlines()).translate(IN_LATEX)


def table(rows: Sequence[Mapping[str, object]]) -> Markup:
    """Rows with the same columns as an HTML table; values are escaped unless they are `Markup`."""
    head = Markup("").join(Markup("<th>{}</th>").format(name) for name in rows[0])
    body = Markup("\n").join(
        Markup("<tr>{}</tr>").format(Markup("").join(Markup("<td>{}</td>").format(value) for value in row.values()))
        for row in rows
    )
    return Markup(
        '<table class="dataframe">\n<thead><tr style="text-align: right">{}</tr></thead>\n<tbody>{}</tbody>\n</table>'
    ).format(head, body)


def listed(items: Sequence[object]) -> Markup:
    """An HTML list of texts."""
    return Markup("<ul>{}</ul>").format(Markup("").join(Markup("<li>{}</li>").format(item) for item in items))


__all__ = ["Markup", "escape", "latex", "listed", "table"]
