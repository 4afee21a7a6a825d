"""Every exported table is LaTeX that says what the table says, in rows of as many columns as are declared."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pylatexenc.latex2text import LatexNodes2Text, MacroTextSpec, get_default_latex_context_db
from pylatexenc.latexwalker import LatexEnvironmentNode, LatexMacroNode, LatexWalker
from pylatexenc.latexwalker import get_default_latex_context_db as get_known_macros
from pylatexenc.macrospec import MacroSpec, SpecialsSpec

from paperlib import papers
from paperlib.display.tables import QUANTITIES, DescriptionTable, ResultTable
from paperlib.papers.claims import claims

from .test_markup import CORPUS

HOSTILE = [
    *CORPUS, "[3em] a row's option", "* another", "\\begin{document} \\verb|x|", "}{ & \\\\ \\hline", "^^41 ^^M",
    "% rest", "$$ \\[ \\( \\)", "\\newline\\par", "{[}", "γ η Σ ∇ ℓ ‖ 𝒦 ∞ ≤ x₁ x² ⁰ × ·", "\\textsuperscript{2}",
]  # fmt: skip
RULES = ("toprule", "midrule", "bottomrule", "cline")
UPPER, LOWER = dict(zip("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹", strict=True)), dict(zip("0123456789", "₀₁₂₃₄₅₆₇₈₉", strict=True))

ARGUMENTS = {"multicolumn": "{{{", "\\": "*["} | dict.fromkeys(
    ("caption", "textbf", "underline", "textsuperscript", "textsubscript", "mathcal", "cline"), "{"
)
KNOWN = get_known_macros().filter_context(keep_which=["macros", "environments"])  # no ligatures, such as -- for a dash
KNOWN.add_context_category(
    "tables", macros=[MacroSpec(*pair) for pair in ARGUMENTS.items()], specials=[SpecialsSpec("&")], prepend=True
)
TEXTS = get_default_latex_context_db()
TEXTS.add_context_category(
    "tables",
    macros=[
        MacroTextSpec("textsuperscript", lambda node, l2tobj: UPPER[l2tobj.nodelist_to_text(node.nodeargd.argnlist)]),
        MacroTextSpec("textsubscript", lambda node, l2tobj: LOWER[l2tobj.nodelist_to_text(node.nodeargd.argnlist)]),
        MacroTextSpec("underline", "%s"),
        MacroTextSpec("textasciicircum", "^"),
        MacroTextSpec("textless", "<"),
        MacroTextSpec("textgreater", ">"),
        MacroTextSpec("|", "‖"),
        MacroTextSpec("mathcal", "𝒦"),
    ],
    prepend=True,
)


TO_TEXT = LatexNodes2Text(TEXTS, math_mode="text", keep_comments=True, strict_latex_spaces=True)


def text_of(nodes) -> str:
    return TO_TEXT.nodelist_to_text(nodes)


def one_line(text: object) -> str:
    return " ".join(" ".join(str(text).splitlines()).split())


def parsed(source: str) -> tuple[str, list[list[str]]]:
    """Caption and rows of a table; fails where a row has not as many columns as its environment declares."""
    nodes, *_ = LatexWalker(source, latex_context=KNOWN, tolerant_parsing=False).get_latex_nodes()
    (inside,) = [node.nodelist for node in nodes if node.isNodeType(LatexEnvironmentNode)]
    caption = next(node for node in inside if node.isNodeType(LatexMacroNode) and node.macroname == "caption")
    (tabular,) = [node for node in inside if node.isNodeType(LatexEnvironmentNode)]
    assert tabular.environmentname == "tabular"
    columns = len(text_of([tabular.nodeargd.argnlist[-1]]))
    rows, cells, cell, width = [], [], [], 0
    for node in tabular.nodelist:
        macro = node.macroname if node.isNodeType(LatexMacroNode) else ""
        if macro in RULES:
            continue
        if macro == "multicolumn":
            width += int(text_of([node.nodeargd.argnlist[0]])) - 1
            cell.append(node.nodeargd.argnlist[2])
        elif macro == "\\" or node.latex_verbatim() == "&":
            cells.append(one_line(text_of(cell)))
            cell = []
            if macro == "\\":
                assert node.nodeargd.argnlist == [None, None], "an option of a row's end"
                assert len(cells) + width == columns, cells
                rows.append(cells)
                cells, width = [], 0
        else:
            cell.append(node)
    assert not one_line(text_of(cell)), "a row without an end"
    return one_line(text_of([caption.nodeargd.argnlist[-1]])), rows


def check(table: ResultTable | DescriptionTable) -> None:
    """Save a table and compare what its LaTeX says with the table."""
    title, text = table.title, table.text() if isinstance(table, ResultTable) else table.data.map(str)
    source = table.save().path.with_suffix(".tex").read_text(encoding="utf-8")
    caption, rows = parsed(source)
    assert caption == one_line(f"{title}. {table.caption}")
    body = rows[-len(text) :]
    assert [row[0] for row in body] == [one_line(label) for label in text.index]
    assert [row[1:] for row in body] == [[one_line(cell) for cell in row] for row in text.to_numpy()]
    labels = table.labels if isinstance(table, ResultTable) else list(text.columns)
    assert rows[0] == ["", *map(one_line, labels)]
    assert rows[-len(text) - 1][0] == one_line(text.index.name or "")
    assert {sign for sign in source if ord(sign) > 127} <= set("°éüöäïçñß"), "signs that LaTeX does not print"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPERLIB_FIGURES", str(tmp_path / "figures"))
    monkeypatch.setenv("PAPERLIB_RUNS", str(tmp_path / "runs"))
    return tmp_path / "figures"


@pytest.mark.parametrize("paper", papers.TITLES)
def test_every_table_of_a_paper_says_in_latex_what_it_says(paper, folder):
    for name in papers.tables(paper):
        check(papers.table(paper, name, scale="small", compute=False))
    if claims(paper):
        check(papers.open(paper, scale="small").claims())
    compiled(folder)


def hostile(text: str, path: Path) -> list[ResultTable | DescriptionTable]:
    cell = {"ours": np.nan, "std": np.nan, "printed": 3.0, "printed_std": np.nan, "difference": np.nan}
    cell |= {"status": text, "printed_status": text}
    results = ResultTable({(text, q): [cell[q]] * 2 for q in QUANTITIES}, index=pd.Index([text, "b"], name=text))
    results.title, results.caption, results.path, results.lower_is_better = text, text, path / "results", ()
    rows = pd.DataFrame({text: [text, text]}, index=pd.Index([text, text], name=text))
    return [results, DescriptionTable(text, text, rows, path / "description")]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_is_a_text_wherever_it_stands(text, tmp_path):
    for table in hostile(text, tmp_path / "figures"):
        check(table)
    compiled(tmp_path / "figures")


@pytest.mark.parametrize(
    "damage",
    [("\\$", "$"), ("\\}", "}"), ("\\{", "{"), ("\\&", "&"), ("\\%", "%"), ("{[}", "["), ("\\textbackslash{}", "\\")],
)
def test_the_check_notices_a_sign_that_is_not_escaped(damage, tmp_path, monkeypatch):
    (table, _) = hostile("[x] $ { } & % \\y", tmp_path)
    written = Path.write_text
    monkeypatch.setattr(Path, "write_text", lambda path, text, **how: written(path, text.replace(*damage), **how))
    with pytest.raises(Exception):  # noqa: B017  the parser's or that of a comparison
        check(table)


def compiled(folder: Path) -> None:
    """Compile all tables of a folder in one document, where LaTeX is installed."""
    if shutil.which("pdflatex") is None:
        return
    tables = "\n\\clearpage\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.tex")))
    document = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n" + tables + "\n\\end{document}\n"
    (folder / "all").mkdir()
    (folder / "all" / "all.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "-no-shell-escape", "all.tex"]
    done = subprocess.run(command, cwd=folder / "all", capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-3000:]
