"""A disk that is full: whatever could be written is whole, and the run goes on when there is room."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.faults

SCRIPT = """
import subprocess, sys, warnings
from pathlib import Path
import torch
from paperlib import Experiment, run

store, e = Path(sys.argv[1]), Experiment.from_json(Path(sys.argv[2]).read_text())
warnings.simplefilter("error")
whole = run(e, store=store.with_name("whole"), workers=1)
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", store], check=True)
stopped = set()
for size in range(4, 4000, 4):
    subprocess.run(["mount", "-o", f"remount,size={size}k", store], check=True)
    try:
        result = run(e, store=store, workers=1)
        break
    except OSError as error:
        assert error.errno == 28 or "No space left" in str(error), error
        history = store / e.digest / "history.jsonl"
        stopped.add(history.read_bytes().count(b"\\n") if history.exists() else 0)
assert torch.equal(result.parameters, whole.parameters)
assert result.history.drop(columns="seconds").equals(whole.history.drop(columns="seconds"))
print("stopped after rounds", sorted(stopped), "at", size, "k")
"""


def test_a_run_whose_disk_is_full_goes_on_where_it_was_when_there_is_room(tiny, tmp_path):
    """A disk in memory grows by a page at a time, so that one write after the other is the one that does not fit."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("needs the right to mount a file system in a namespace of its own")
    e = tiny.replace(method="scaffold", rounds=6)
    (tmp_path / "disk").mkdir()
    (tmp_path / "e.json").write_text(e.to_json())
    (tmp_path / "full.py").write_text(SCRIPT)
    command = ["unshare", "-rm", sys.executable, tmp_path / "full.py", tmp_path / "disk", tmp_path / "e.json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("stopped after rounds [0, 1")
