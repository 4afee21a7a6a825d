"""HTML and LaTeX with escaped texts."""

import base64
from collections.abc import Mapping, Sequence

from markupsafe import Markup, escape

GREEK = dict(
    zip(
        "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ",
        "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi "
        "omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega".split(),
        strict=True,
    )
)
SIGNS = GREEK | {
    "±": "pm", "×": "times", "·": "cdot", "∞": "infty", "≈": "approx", "≠": "neq", "≤": "leq", "≥": "geq",
    "∇": "nabla", "ℓ": "ell", "‖": "|", "𝒦": "mathcal{K}",
}  # fmt: skip
IN_LATEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"}
    | {"<": "\\textless{}", ">": "\\textgreater{}"}
    | {sign: f"{{{sign}}}" for sign in "[*"}  # which the end of the row before them would take for its options
    | {sign: f"$\\{name}$" for sign, name in SIGNS.items()}
    | {sign: f"\\textsuperscript{{{digit}}}" for digit, sign in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}
    | {sign: f"\\textsubscript{{{digit}}}" for digit, sign in enumerate("₀₁₂₃₄₅₆₇₈₉")}
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


def data_uri(image: bytes) -> str:
    """A PNG as an address that holds it."""
    return f"data:image/png;base64,{base64.b64encode(image).decode()}"


def folded(summary: str, content: Markup) -> Markup:
    """HTML that opens at a click on its summary."""
    return Markup("<details><summary>{}</summary>{}</details>").format(summary, content)


__all__ = ["Markup", "data_uri", "escape", "folded", "latex", "listed", "table"]
