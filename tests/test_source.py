"""The source of hooks as notebooks show it."""

import html
import inspect
import re
from textwrap import dedent

import pytest

from paperlib.display.source import source
from paperlib.methods.fedgps import FedGPS
from paperlib.methods.gc import Centralized, GCFed, LocalGC
from paperlib.oneshot.distillation import Distillation


def shown(page):
    """The text of a page without its tags."""
    return html.unescape(re.sub(r"<[^>]*>", "", page))


@pytest.mark.parametrize("hook", [LocalGC.gradient, Centralized.center, FedGPS.loss, GCFed])
def test_nothing_of_the_code_is_dropped(hook):
    code = dedent(inspect.getsource(hook))
    page = source(hook)._repr_html_()
    assert code in shown(page) and "<span" in page  # highlighted
    assert code.rstrip() in repr(source(hook)) and "<" not in repr(source(LocalGC.gradient))


def test_several_hooks_stand_in_the_order_asked_for_with_name_and_file():
    text = repr(source(LocalGC.gradient, GCFed, Distillation.epochs))
    heads = re.findall(r"^# (.*)$", text, re.M)
    assert heads == [
        "LocalGC.gradient, paperlib/methods/gc.py",
        "GCFed, paperlib/methods/gc.py",
        "Distillation.epochs, paperlib/oneshot/distillation.py",
    ]
    assert "return self.distill_epochs" in text  # a property is its getter


def test_code_with_signs_of_html_stays_code(tmp_path, monkeypatch):
    (tmp_path / "tagged.py").write_text('def tagged(x):\n    return "<b>&amp;</b>" if 1 < x else "\'"\n')
    monkeypatch.syspath_prepend(tmp_path)
    from tagged import tagged

    page = source(tagged)._repr_html_()
    assert "<b>" not in page and 'return "<b>&amp;</b>" if 1 < x else "\'"' in shown(page)
    assert str(tmp_path) not in page and str(tmp_path) not in repr(source(tagged))


@pytest.mark.parametrize("hook", [len, "gradient", 3, None])
def test_what_has_no_source_is_refused_in_a_sentence(hook):
    with pytest.raises(ValueError, match="has no Python source, but must be a function, a method or a class"):
        source(hook)
    with pytest.raises(ValueError, match="needs a function"):
        source()
