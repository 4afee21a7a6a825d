"""The devices that a run may ask for: the CPU, or GPUs by their numbers."""

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch

from paperlib.checks import quote

CHOICES = "auto, cpu, cuda, or GPUs by number such as cuda:1 or cuda:0,2"


def devices(device: str) -> tuple[str, ...]:
    """The devices of a run, the first of which holds it: ("cpu",), ("cuda",) or such as ("cuda:0", "cuda:2").

    device: "cpu"; "cuda", the first GPU; "auto", the first GPU where there is one; or numbers of GPUs, "cuda:0,2".
    Raises ValueError for another one, and for a GPU that is not there.
    """
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return ("cpu",)
    named = gpu_numbers(device)
    if device not in ("auto", "cuda") and not named:
        raise ValueError(f"unknown device {quote(device)}; choose one of {CHOICES}")
    if not torch.cuda.is_available():
        raise ValueError(f"device is {quote(device)}, but torch finds no GPU here; choose cpu or auto")
    count = torch.cuda.device_count()
    if missing := [number for number in named if number >= count]:
        raise ValueError(
            f"device is {quote(device)}, but torch finds {count} GPUs here, and none is number {missing[0]}"
        )
    return tuple(f"cuda:{number}" for number in named) or ("cuda",)


def single(device: str, what: str) -> str:
    """The only device of `devices`; raises ValueError for several, saying what can use only one."""
    first, *others = devices(device)
    if others:
        raise ValueError(f"device is {quote(device)}, but {what} uses one device; choose one of {CHOICES}")
    return first


def current(device: str) -> AbstractContextManager[object]:
    """Inside, a GPU is the current one of the thread, on which streams and graphs are made."""
    return nullcontext() if device == "cpu" else torch.cuda.device(device)


def device_name(targets: Sequence[str]) -> str:
    """What the summary of a run calls the devices: "cpu", or the GPUs by their models."""
    return "cpu" if targets[0] == "cpu" else ", ".join(map(torch.cuda.get_device_name, targets))


def gpu_numbers(device: str) -> list[int]:
    """The numbers in "cuda:0,2", each once; none in any other text."""
    if not isinstance(device, str) or not re.fullmatch(r"cuda:\d{1,3}(,\d{1,3})*", device):
        return []
    return list(dict.fromkeys(int(number) for number in device.removeprefix("cuda:").split(",")))
