"""Texts that would run something, wherever a page, a widget or a table shows one: in Chromium none does."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import BrowserContext

from paperlib.display.markup import escape, listed, table
from paperlib.display.tables import QUANTITIES, DescriptionTable, ResultTable
from paperlib.papers import TITLES
from paperlib.reports import gallery
from paperlib.reports.method_table import card
from paperlib.reports.pages import render
from paperlib.teaching.widgets import card as method_card
from paperlib.teaching.widgets import explorer, playground, results

from ..test_markup import CORPUS

HOSTILE = [
    *CORPUS, "<svg><script>alert(1)</script></svg>", "<body onload=alert(1)>", "</script><script>alert(1)</script>",
    "</title><script>alert(1)</script>", "<details open ontoggle=alert(1)>", '" autofocus onfocus="alert(1)" x="',
    "<a href='javascript:alert(1)'>x</a>", "<math><mtext></mtext><style><img src=x onerror=alert(1)>",
    "--><script>alert(1)</script>", "\u2028<script>alert(1)</script>", "<iframe srcdoc='<script>alert(1)</script>'>",
    "');alert(1);('", "\\');alert(1);(\\'", "</style><script>alert(1)</script>",
]  # fmt: skip
# Everything is touched, pressed and focused, but for links to other pages.
TOUCH = """() => { for (const part of document.querySelectorAll('body, body *'))
    for (const kind of ['mouseover', 'focus', 'click', 'toggle', 'load', 'error'])
        if (!(kind == 'click' && part.closest('a'))) part.dispatchEvent(new Event(kind)); }"""
# An explorer's view as the page makes it, of a model that has only this to say.
VIEW = """async ([module, state]) => {
    const { default: widget } = await import(URL.createObjectURL(new Blob([module], {type: 'text/javascript'})));
    const model = {get: name => state[name], on: () => {}};
    document.body.className = 'explorer';
    widget.render({model, el: document.body, signal: new AbortController().signal});
}"""
ALIVE = """() => [...document.querySelectorAll('*')].filter(part =>
    ['SCRIPT', 'IFRAME', 'svg', 'math', 'OBJECT', 'EMBED'].includes(part.tagName)
    || [...part.attributes].some(a => a.name.startsWith('on')
        || (!['alt', 'id', 'title'].includes(a.name) && a.value.trim().toLowerCase().startsWith('javascript:'))))
    .map(part => part.outerHTML.slice(0, 200))"""


def result_table(text: str, folder: Path) -> ResultTable:
    cell = {"ours": np.nan, "std": np.nan, "printed": 3.0, "printed_std": np.nan, "difference": np.nan}
    cell |= {"status": text, "printed_status": text}
    made = ResultTable({(text, q): [cell[q]] for q in QUANTITIES}, index=pd.Index([text], name=text))
    made.title, made.caption, made.path, made.lower_is_better = text, text, folder / "smoke" / "gc_fed" / "T5", ()
    made.runs = {(text, text): {text: [text]}}
    return made


def pages(text: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Whatever makes HTML of texts, and what it makes of this one."""
    made = result_table(text, folder)
    yield "table", made._repr_html_()
    rows = pd.DataFrame({text: [text]}, index=pd.Index([text], name=text))
    yield "description", DescriptionTable(text, text, rows, folder / "T2")._repr_html_()
    yield "rows and list", table([{text: text}]) + listed([text])
    place = made.save().path.parent
    (place / "F4.png").touch()
    (place / "F4.txt").write_text(f"{text}\n{text}\n", encoding="utf-8")
    (place / "notebooks").mkdir()
    (place / "notebooks" / f"{text.replace('/', '_')}.html").touch()
    yield "gallery", gallery.build(folder).read_text(encoding="utf-8")
    columns = {"title": text, "verdict": text, "run, smoke": text, "note": text, text: text}
    scores = pd.DataFrame([columns], index=pd.Index([text], name=text))
    section = dict.fromkeys(("name", "title", "picture", "tables", "figures"), text) | dict.fromkeys(
        ("scores", "claims", "not_run"), scores
    )
    yield "scorecard", render("scorecard", title=text, explanation=text, papers=[section])
    section = {"name": text, "title": text, "scales": [], "missing": [text]}
    yield (
        "empty gallery",
        render("gallery", title=text, papers=[section], pages={}, rules={text: text}, smoke_one_shot=text),
    )
    one = card("gc_fed")
    one = type(one)(
        **vars(one) | {"name": one.name, "title": text, "what": text, "source": text, "options": {text: text},
                       "hooks": {text: text}, "refused": (text,), "equations": {text: text}}
    )  # fmt: skip
    rank = {"table": text, "row": text, "column": text, "printed": 1.0, "printed_rank": 1, "printed_among": 2,
            "ours": 1.0, "rank": 1, "among": 2, "beside": 1, "beside_among": 2}  # fmt: skip
    yield "card", method_card._page(one, text, pd.DataFrame([rank]), next(iter(TITLES)), text)
    yield "refused runs", results.unreadable({text: text})
    run = dict.fromkeys(["version", "finished", "device", "from", "folder", "file", "scale"], text)
    run |= {"seconds": 1.0, "places": []}
    yield "result browser", results._provenance(pd.DataFrame([run], index=[text]), {text: text})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(playground, "refusals", lambda kind: {text: text})
        yield "playground", playground.missing_methods("quadratic")


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_runs_as_a_script_wherever_it_is_shown(text, tmp_path, context: BrowserContext, record_property):
    opened, ran = context.new_page(), []
    opened.on("dialog", lambda dialog: (ran.append(dialog.message), dialog.dismiss()))
    try:
        for name, content in pages(text, tmp_path):
            opened.set_content(content)
            opened.evaluate(TOUCH)
            assert opened.evaluate(ALIVE) == [], name
            assert ran == [], name
            record_property("hostile texts in Chromium", 1)
        state = {name: text for name in ("words", "error", "code")} | {"picture": "", "more": str(escape(text))}
        opened.set_content("")
        opened.evaluate(VIEW, [str(explorer.Screen._esm), state])
        opened.evaluate(TOUCH)
        assert opened.evaluate(ALIVE) == [] and ran == []
        seen = "part => part.textContent"
        assert [opened.locator(part).evaluate(seen) for part in (".said", ".error", "code")] == [text] * 3
        screen = explorer.Screen()
        screen.show(explorer.View(text, more=text))  # a text is none, also where HTML may stand
        assert screen.more == escape(text)
    finally:
        opened.close()
