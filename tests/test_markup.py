"""A text stays a text in HTML and LaTeX, and a table shows it where it stands."""

import html
import html.parser
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paperlib.display.markup import IN_LATEX, Markup, latex, listed, table
from paperlib.display.tables import QUANTITIES, DescriptionTable, ResultTable
from paperlib.reports import markdown

CORPUS = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", '"><svg onload=alert(1)>', "javascript:alert(1)",
    "</td></table><iframe src=x>", "&lt;b&gt; & &amp;", "' onmouseover='alert(1)", "{{7*7}} {0.__class__} %s %(x)s",
    "50 % & 3 #1 $x_1^2$ {a} ~b \\input{/etc/passwd} <c> \\\\ \n\n line", "\\end{tabular}\\write18{id}", "α ± β",
]  # fmt: skip


class Texts(html.parser.HTMLParser):
    """The tags of a page and the texts between them."""

    def __init__(self, page: str):
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        assert not any(name.startswith("on") for name, _ in attributes)

    def handle_data(self, data):
        self.texts.append(data)


def unescaped(text: str) -> str:
    """What LaTeX prints."""
    for sign, command in sorted(IN_LATEX.items(), key=lambda pair: -len(pair[1])):
        text = text.replace(command, chr(0xE000 + sign))  # a private sign, which no command has in it
    return "".join(chr(ord(c) - 0xE000) if 0xE000 <= ord(c) < 0xF000 else c for c in text)


@given(st.text(st.characters(max_codepoint=0x3FF, exclude_categories=["Cc", "Zl", "Zp"])))
def test_latex_prints_what_a_text_says(text):
    written = latex(text)
    assert unescaped(written) == " ".join(text.splitlines())
    bare = written
    for command in sorted(IN_LATEX.values(), key=len, reverse=True):
        bare = bare.replace(command, "")
    assert not re.search(r"[&%$#_{}~^\\<>]", bare)


@pytest.mark.parametrize("text", CORPUS)
def test_an_html_table_and_a_list_show_texts_as_they_are(text):
    for page in (table([{text: text}]), listed([text]), table([{"a": Markup("<b>{}</b>").format(text)}])):
        seen = Texts(page)
        assert seen.tags <= {"table", "thead", "tbody", "tr", "th", "td", "ul", "li", "b"}
        assert text in seen.texts


@pytest.mark.parametrize("text", CORPUS)
def test_tables_on_disk_hold_texts_as_texts_wherever_they_stand(text, tmp_path):
    cell = {"ours": np.nan, "std": np.nan, "printed": 3.0, "printed_std": np.nan, "difference": np.nan}
    cell |= {"status": text, "printed_status": ""}
    results = ResultTable({(text, q): [cell[q]] for q in QUANTITIES}, index=pd.Index([text], name=text))
    results.title, results.caption, results.path, results.lower_is_better = text, text, tmp_path / "results", ()
    results.heads, results.runs = {text: text}, {(text, text): {text: [text]}}
    rows = pd.DataFrame({text: [text]}, index=pd.Index([text], name=text))
    for saved in (results.save(), DescriptionTable(text, text, rows, tmp_path / "description").save()):
        page = saved.path.with_suffix(".html").read_text(encoding="utf-8")
        assert Texts(page).tags <= {"p", "br", "b", "u", "small", "div", "table", "thead", "tbody", "tr", "th", "td"}
        plain = html.unescape(page.replace("<br>", "\n"))  # captions break where their text does
        assert plain.count(text) >= 3  # pandas writes line breaks of a cell in another way
        source = saved.path.with_suffix(".tex").read_text(encoding="utf-8")
        assert source.count(latex(text)) >= 4
        rest = source.replace(latex(text), "")
        assert not re.search(r"input|write18|script", rest) and rest.count("\\end{tabular}") == 1


@pytest.mark.parametrize("text", [*CORPUS, "a | b", "\\| c", "> quote"])
def test_a_markdown_table_has_a_cell_for_every_text_and_no_tag(text):
    lines = markdown.table([text, "b"], [["x", text], [text, text]]).splitlines()
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in lines] == [3, 3, 3, 3]
    assert not re.search("[<>]", "".join(lines))
    bare = html.unescape(lines[3].replace("\\|", "|")).removeprefix("| ")
    assert bare.startswith(html.unescape(" ".join(text.splitlines())))
