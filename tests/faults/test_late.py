"""Files that are seen late, as over a network: the same command completes with the same bits."""

import os
import warnings
from pathlib import Path

import pytest

from paperlib import run
from paperlib.runs.listing import finished_runs

from .conftest import same
from .test_disk import PLAYED

pytestmark = pytest.mark.faults


class LateView:
    """Listing, stat and open see a file of a folder when ``late`` more of them have been asked for.

    Locks are kept by a server, and seen at once. known: files that another machine has written just now.
    """

    def __init__(self, folder: Path, late: int, known: list[Path]):
        self.folder, self.late, self.asked, self.unseen = str(folder), late, 0, 0
        self.written = {str(path): 0 for path in known}

    def sees(self, path) -> bool:
        name = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
        if not name.startswith(self.folder) or name.endswith("lock") or name not in self.written:
            return True
        self.asked += 1
        seen = self.asked > self.written[name] + self.late
        self.unseen += not seen
        return seen

    def take_over(self, patch) -> None:
        real = {name: getattr(os, name) for name in ("stat", "lstat", "open", "listdir", "scandir", "replace")}

        def looks(name):
            def look(path, *arguments, **options):
                if not self.sees(path):
                    raise FileNotFoundError(2, "No such file or directory", str(path))
                return real[name](path, *arguments, **options)

            return look

        def replace(source, target, **options):
            self.written[os.fspath(target)] = self.asked
            return real["replace"](source, target, **options)

        for name in ("stat", "lstat", "open"):
            patch.setattr(os, name, looks(name))
        patch.setattr(os, "listdir", lambda at: [n for n in real["listdir"](at) if self.sees(os.path.join(at, n))])
        patch.setattr(os, "replace", replace)


@pytest.mark.parametrize("played", PLAYED)
@pytest.mark.parametrize("late", [1, 4, 16, 64, 1000])
@pytest.mark.parametrize("writer", ["this machine", "another"])
def test_files_that_are_seen_late_change_no_bit(
    tiny, tmp_path, monkeypatch, interrupt_after, record_property, played, late, writer
):
    e, store = tiny.replace(**PLAYED[played]), tmp_path / "store"
    whole = run(e, store=tmp_path / "whole", workers=1)
    if writer == "another":
        interrupt_after(e, 1, store)
    view = LateView(store, late, [path for path in store.rglob("*") if path.is_file()])
    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        view.take_over(patch)
        try:
            same(run(e, store=store, workers=1), whole)
        except (OSError, ValueError) as error:
            assert "\n" not in str(error)
        finished_runs(store)
    assert view.unseen
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        same(run(e, store=store, workers=1), whole)
    assert set(finished_runs(store).runs) == {e.digest}
    record_property("files seen late", view.unseen)
