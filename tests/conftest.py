"""What the tests share. No test writes into the checkout or the home folder: it is given temporary ones."""

import multiprocessing.context
import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from pathlib import Path

import pytest
import torch
from torch import nn

from paperlib import Experiment, run
from paperlib._torchvision import torchvision
from paperlib.runs import store as store_module
from paperlib.runs.store import Store
from paperlib.workers import worker_pool


@pytest.fixture(scope="session", autouse=True)
def single_thread() -> None:
    """Operations on small tensors lose by being divided, the more so on a busy machine."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def denormals_after_a_test_are_as_before() -> Iterator[None]:
    """A worker pool that a test leaves open would go on flushing them, in whatever is tested next."""
    smallest = 5e-324
    before = smallest * 1.0
    yield
    assert smallest * 1.0 == before, "the test leaves the processor flushing denormal numbers"


@pytest.fixture(scope="session", autouse=True)
def folders_outside_the_checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("runs", "figures", "copies"):
            patch.setenv(f"PAPERLIB_{name.upper()}", str(tmp_path_factory.mktemp(name)))
        yield


@pytest.fixture(scope="session", autouse=True)
def ray_is_patient() -> Iterator[None]:
    """On a busy machine its start takes longer than the half minute after which it gives up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_raylet_start_wait_time_s", "300")
        yield


@pytest.fixture(autouse=True)
def every_round_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the disk is at the moment: tests count the rounds that an interrupted run has behind it."""
    monkeypatch.setattr(store_module, "ALLOWED", float("inf"))


@pytest.fixture(scope="session")
def forkserver() -> multiprocessing.context.ForkServerContext:
    """Starts processes that have the package imported already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["paperlib.runs.many", "pandas", "pytest"])
    return context


def pytest_report_header() -> str:
    """The instructions that the figures of this session come from: rounding, and what goes wrong, depend on them."""
    most = os.environ.get("ONEDNN_MAX_CPU_ISA")
    of_onednn = f"at most {most}" if most else "all that the processor has"
    return f"instructions: {torch.backends.cpu.get_cpu_capability()} in torch, {of_onednn} in oneDNN"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests have counted (with ``record_property``), in whichever processes they ran: kills, bad inputs."""
    if terminalreporter.verbosity < 0:  # which leaves the header out
        terminalreporter.write_line(pytest_report_header())
    counted: Counter[str] = Counter()
    for report in terminalreporter.stats.get("passed", []):
        for name, count in report.user_properties:
            counted[name] += count
    for name, count in counted.items():
        terminalreporter.write_line(f"{name}: {count}")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def interrupt_after() -> Callable[[Experiment, int, Path], None]:
    """Leaves a run in the store that has so many rounds behind it."""

    class Interrupted(Exception):
        pass

    def interrupt(e: Experiment, rounds: int, store: Path) -> None:
        def stop(row):
            if row["round"] == rounds:
                raise Interrupted

        with pytest.raises(Interrupted):
            run(e, store=store, on_round=stop)
        assert Store(store).rounds_done(e) == rounds

    return interrupt


@pytest.fixture
def tiny() -> Experiment:
    """Five rounds in a twentieth of a second."""
    return Experiment(
        dataset="digits", train_size=240, test_size=100, model="mlp", width=0.1, alpha=1.0, clients=6, sampled=3,
        rounds=5, batch_size=20, lr=0.05, weight_decay=1e-3,
    )  # fmt: skip


@pytest.fixture
def pool() -> Iterator[Executor]:
    with worker_pool(1) as pool:
        yield pool


@pytest.fixture
def reference_resnet18() -> Callable[..., nn.Module]:
    """torchvision's ResNet-18, without the first layer's stride and pooling, its widths divided by ``divisor``."""

    def build(norm: Callable[[int], nn.Module], channels: int, classes: int, divisor: int = 1) -> nn.Module:
        with torch.device("meta"):  # every layer with parameters is replaced below
            net = torchvision().models.resnet18(norm_layer=norm)
        narrow(net, norm, divisor)
        net.conv1, net.maxpool = nn.Conv2d(channels, 64 // divisor, 3, padding=1, bias=False), nn.Identity()
        net.fc = nn.Linear(512 // divisor, classes)
        return net

    def narrow(module: nn.Module, norm: Callable[[int], nn.Module], divisor: int) -> None:
        for name, layer in module.named_children():
            if isinstance(layer, nn.Conv2d):
                inputs, outputs = max(layer.in_channels // divisor, 1), layer.out_channels // divisor
                new = nn.Conv2d(inputs, outputs, layer.kernel_size, layer.stride, layer.padding, bias=False)
                setattr(module, name, new)
            elif isinstance(layer, nn.GroupNorm | nn.BatchNorm2d):
                setattr(module, name, norm(layer.weight.numel() // divisor))
            else:
                narrow(layer, norm, divisor)

    return build
