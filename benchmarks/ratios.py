"""What every benchmark says: ratios of works that are timed in turns, and on which machine."""

import os
import platform
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

Work = Callable[[], object]


@dataclass
class Line:
    """A line of the table. goal: (must, aim), which ``value`` should not exceed."""

    target: str
    what: str
    goal: tuple[float, float]
    value: float
    shown: str

    @property
    def verdict(self) -> str:
        must, aim = self.goal
        return "aim" if self.value <= aim else "met" if self.value <= must else "missed"


def in_turns(works: Mapping[str, Work], seconds: Callable[[Work], float], repetitions: int) -> dict[str, list[float]]:
    """Seconds of each work per repetition, one after another in every repetition, after one that does not count."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for repetition in range(repetitions + 1):
        for name, work in works.items():
            spent = seconds(work)
            if repetition:
                times[name].append(spent)
    return times


def ratio(target: str, what: str, goal: tuple[float, float], above: list[float], below: list[float]) -> Line:
    """The median of the ratios of two works, repetition by repetition."""
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    value = statistics.median(ratios)
    return Line(target, what, goal, value, f"{value:.3f} ({min(ratios):.2f} to {max(ratios):.2f})")


def hardware() -> str:
    """CPU, cores, and GPU if there is one."""
    model = next(
        (text.split(":")[1].strip() for text in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in text),
        platform.processor(),
    )
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ", no GPU"
    return f"{model}, {os.cpu_count()} cores{gpu}"
