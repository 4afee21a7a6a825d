"""Each explorer in a real browser: opened, used with the keyboard, and looked at as a screen reader does."""

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from playwright.sync_api import Locator, expect

TERMS = """part => [...part.querySelectorAll('dt')].map(term =>
    [term.textContent, term.getBoundingClientRect(), term.nextElementSibling.getBoundingClientRect()])"""
NAMELESS = """part => [...part.querySelectorAll('input, select, textarea, button, [role=slider], img')]
    .filter(control => control.offsetParent !== null)
    .filter(control => !(control.ariaLabel || control.alt || [...(control.labels || [])].some(l => l.textContent.trim())
        || (control.tagName == 'BUTTON' && control.textContent.trim())))
    .map(control => control.outerHTML.slice(0, 200))"""


def words(explorer: Locator) -> Locator:
    return explorer.locator(".said").first


def picture(explorer: Locator) -> Locator:
    return explorer.locator("img[alt]:not([alt=''])").first


def is_accessible(explorer: Locator) -> None:
    """Every picture is described, and every control has a name."""
    assert explorer.evaluate(NAMELESS) == []


def changes(explorer: Locator, act: Callable[[], object]) -> None:
    """What ``act`` does changes picture and words."""
    before, said = picture(explorer).get_attribute("src"), words(explorer).inner_text()
    act()
    expect(words(explorer)).not_to_have_text(said, timeout=20_000)
    expect(explorer.locator(f'img[src="{before}"]')).to_have_count(0, timeout=20_000)


def press(control: Locator, *keys: str) -> None:
    control.focus()
    for key in keys:
        control.press(key)


def test_results_are_filtered_chosen_and_lead_to_their_notebooks(notebook, context):
    explorer = notebook.run("results")
    runs = explorer.get_by_label("Runs")
    before = runs.locator("option").count()
    changes(explorer, lambda: press(runs, "ArrowDown"))  # another run is chosen
    scale = explorer.get_by_label("Method")
    press(scale, "g", "Enter")
    expect(runs.locator("option", has_text="fedavg")).to_have_count(0, timeout=20_000)
    assert 0 < runs.locator("option").count() < before
    press(runs, "ArrowDown")
    expect(explorer.get_by_role("table")).to_contain_text("data/reference/gc_fed-smoke")
    is_accessible(explorer)
    notebook.screenshot("results", notebook.cell("results"))

    link = explorer.get_by_role("link", name="gc_fed/small_scale").first
    with context.expect_page() as opening:
        link.click()
    page = opening.value
    expect(page.locator(".jp-Notebook .jp-RenderedMarkdown h1").first).to_be_visible(timeout=60_000)
    path = unquote(urlsplit(page.url).path)
    assert path.endswith("notebooks/gc_fed/small_scale.ipynb")
    page.close()


def test_card_shows_another_method_and_its_places(notebook):
    explorer = notebook.run("card")
    expect(words(explorer)).to_contain_text("gc_fed")
    method = explorer.get_by_label("Method", exact=True)
    changes(explorer, lambda: press(method, "ArrowUp"))
    expect(words(explorer)).to_contain_text("global_gc")
    changes(explorer, lambda: method.select_option("fedhydra (one-shot)"))
    expect(explorer.get_by_label("Tables of")).to_have_value("FedHydra")
    is_accessible(explorer)
    notebook.screenshot("card", notebook.cell("card"))


def test_values_of_a_card_stand_right_of_their_labels(notebook):
    explorer = notebook.run("card")
    pairs = explorer.evaluate(TERMS)
    assert len(pairs) > 5
    for name, label, value in pairs:
        assert abs(label["top"] - value["top"]) < 12 and label["right"] <= value["left"], name
        assert value["right"] <= explorer.bounding_box()["x"] + explorer.bounding_box()["width"], name


def test_a_view_that_waits_for_the_kernel_says_so(notebook):
    explorer = notebook.run("card")
    notebook.page.evaluate(
        "() => void window.jupyterapp.shell.currentWidget.sessionContext.session.kernel"
        ".requestExecute({code: 'import time; time.sleep(4)'})"
    )
    explorer.get_by_label("Method").select_option("fedprox")
    expect(explorer).to_have_class(re.compile("computing"))
    assert words(explorer).inner_text().startswith("gc_fed")  # what is seen is not yet what was asked for
    expect(words(explorer)).to_contain_text("fedprox", timeout=30_000)
    expect(explorer).not_to_have_class(re.compile("computing"))


def test_run_is_started_paused_and_resumed_while_the_kernel_answers(notebook, lab):
    explorer = notebook.run("live")
    button = {name: explorer.get_by_role("button", name=name) for name in ("Start", "Pause", "Resume", "Stop")}
    expect(words(explorer)).to_contain_text("not started")
    expect(button["Pause"]).to_be_disabled()
    changes(explorer, lambda: press(button["Start"], "Enter"))
    expect(words(explorer)).to_contain_text(
        re.compile(r"running, \d+ of 80 rounds done. Test accuracy"), timeout=300_000
    )
    expect(notebook.run("answer")).to_have_text("42")
    expect(words(explorer)).to_contain_text("running")  # and it had not to wait for the run
    press(button["Pause"], "Enter")
    expect(words(explorer)).to_contain_text("paused after")
    notebook.screenshot("live", notebook.cell("live"))
    is_accessible(explorer)
    expect(button["Pause"]).to_be_disabled()
    (run,) = lab.runs.iterdir()
    done = rounds(run)
    assert 0 < done < 80
    press(button["Resume"], "Enter")
    expect(words(explorer)).to_contain_text("finished after 80 of 80", timeout=600_000)
    assert rounds(run) == 80 and (run / "summary.json").exists()
    for name in button:
        expect(button[name]).to_be_disabled()


def rounds(run: Path) -> int:
    return (run / "history.jsonl").read_text().count("\n")


def test_partition_follows_its_slider_and_its_line_can_be_copied(notebook):
    explorer = notebook.run("partition")
    alpha = explorer.get_by_role("slider", name="alpha")
    changes(explorer, lambda: press(alpha, "ArrowRight", "ArrowRight", "ArrowRight"))
    expect(explorer.locator("p code").first).to_contain_text("alpha=0.2", timeout=20_000)
    is_accessible(explorer)
    notebook.screenshot("partition", notebook.cell("partition"))
    press(explorer.get_by_role("button", name="Copy"), "Enter")
    expect(explorer.get_by_role("button", name="Copied")).to_be_visible()
    copied = notebook.page.evaluate("() => navigator.clipboard.readText()")
    assert copied.startswith("Experiment(") and "alpha=0.2" in copied


def test_playground_follows_its_sliders(notebook):
    explorer = notebook.run("playground")
    settled(explorer)
    changes(explorer, lambda: press(explorer.get_by_role("slider", name="local steps"), "ArrowRight"))
    expect(words(explorer)).to_contain_text("6 steps each")
    settled(explorer)
    changes(explorer, lambda: press(explorer.get_by_role("slider", name="round shown"), "ArrowRight"))
    expect(words(explorer)).to_contain_text("in round 3 of")
    is_accessible(explorer)
    notebook.screenshot("playground", notebook.cell("playground"))


def settled(explorer: Locator, seconds: float = 1.0) -> None:
    """Wait until the words have not changed for a while."""
    said = ""
    while said != (said := words(explorer).inner_text()):
        explorer.page.wait_for_timeout(1000 * seconds)
