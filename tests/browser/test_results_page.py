"""The page of all runs in a browser that has no network."""

import re

import pytest
from playwright.sync_api import expect

from paperlib.reports.results_page import write_page

NAMELESS = """() => [...document.querySelectorAll('select, input, table')]
    .filter(part => !(part.labels?.length || part.caption)).map(part => part.outerHTML.slice(0, 100))"""
PALE = """() => [...document.querySelectorAll('p, h1, h2, label, td')].map(part => getComputedStyle(part).color)
    .filter(colour => { const [r, g, b] = colour.match(/\\d+/g).map(v => (v / 255) ** 2.2);
        return 1.05 / (0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05) < 4.5; })"""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    return write_page(folder, folder / "runs").as_uri()


@pytest.fixture(params=[1280, 390])
def page(request, browser, address):
    context = browser.new_context(viewport={"width": request.param, "height": 900}, offline=True)
    page, mistakes = context.new_page(), []
    page.on("console", lambda message: mistakes.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: mistakes.append(str(error)))
    page.on("request", lambda asked: mistakes.append(asked.url) if asked.url.startswith("http") else None)
    page.goto(address)
    expect(page.locator("body")).to_have_attribute("data-ready", re.compile(r"\d"), timeout=60_000)
    yield page
    assert mistakes == []
    context.close()


def test_choices_narrow_pictures_and_tables_by_keyboard_alone(page):
    said, rows = page.locator("#said"), page.locator("#runs tbody tr")
    table = page.get_by_label("Table or figure", exact=True)
    expect(table).not_to_have_value("")
    of_table = int(said.inner_text().split()[0])
    table.select_option("")
    expect(said).not_to_have_text(re.compile(rf"^{of_table} runs"))
    everything = int(said.inner_text().split()[0])
    paper = page.get_by_label("Paper", exact=True)
    paper.focus()
    page.keyboard.press("g")  # GC-Fed
    expect(paper).to_have_value("GC-Fed")
    expect(said).not_to_have_text(re.compile(rf"^{everything} runs"))
    chosen = int(said.inner_text().split()[0])
    assert of_table < everything and 0 < chosen < everything and rows.count() == min(chosen, 300)
    assert set(page.locator("#runs tbody td:first-child").all_inner_texts()) != {""}
    lines = page.locator("#curves svg.marks [aria-roledescription='line mark']")
    before = lines.count()
    method = page.get_by_label("Method", exact=True)
    method.select_option("gc_fed")
    expect(page.locator("#runs tbody td:nth-child(2)").first).to_have_text("gc_fed")
    assert 0 < lines.count() < before
    page.get_by_label("Find").fill("no such run")
    expect(page.locator("#curves")).to_be_hidden()


def test_the_whole_page_fits_and_is_readable(page):
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.evaluate(NAMELESS) == [] and page.evaluate(PALE) == []
    for picture in ("curves", "numbers", "pairs", "claims"):
        drawn = page.locator(f"#{picture} [aria-label] svg.marks")
        box, window = drawn.bounding_box(), page.viewport_size
        assert box["x"] >= 0 and box["x"] + box["width"] <= window["width"] + 1
