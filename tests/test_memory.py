"""Memory on systems that lack what Linux has; Windows has no module `resource`."""

import sys
from importlib.util import module_from_spec, spec_from_file_location

import numpy as np
import psutil
import pytest

from paperlib.runs import memory


def test_the_peak_grows_by_what_is_allocated():
    before = memory.peak_memory_mb()
    block = np.ones(int(before * 2**20 * 1.5), dtype=np.uint8)  # more than was ever held
    assert memory.peak_memory_mb() - before > 0.4 * len(block) / 2**20 - 64
    assert memory.peak_memory_mb() < before + 2 * len(block) / 2**20


def test_a_mac_counts_bytes_and_not_kilobytes(monkeypatch):
    here = memory.peak_memory_mb()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert memory.peak_memory_mb() == pytest.approx(here / 1024, rel=0.05)


def test_without_the_module_of_unix_psutil_says_the_peak(monkeypatch):
    class Process:
        def memory_info(self):
            return type("Info", (), {"peak_wset": 3 * 2**20})()

    monkeypatch.setitem(sys.modules, "resource", None)
    monkeypatch.setattr(psutil, "Process", Process)
    spec = spec_from_file_location("memory_on_windows", memory.__file__)  # a copy: the module itself stays as it is
    copy = module_from_spec(spec)
    spec.loader.exec_module(copy)
    assert copy.peak_memory_mb() == 3
