"""Fingerprints of what can change under its name: the files of a data set, the code of a method or network.

A run's address names them only. So their fingerprints are stored with it and compared whenever it is used.
"""

import dis
import hashlib
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from torch import Tensor

from paperlib import methods, oneshot
from paperlib.data import datasets
from paperlib.data.datasets import Dataset
from paperlib.experiment import Experiment
from paperlib.networks import MODELS

DIGITS = 16  # of a fingerprint
BUILT_IN = "paperlib"  # instead of a fingerprint: corrections of built-in code are part of the address
INSIDE = ("fget", "fset", "func", "__func__", "__wrapped__")  # where a property or another wrapper keeps its function


def fingerprints(experiment: Experiment, data: Dataset | None = None) -> dict[str, str]:
    """Name -> fingerprint of everything that a run uses; without a data set whose files are not on this machine.

    data: the loaded data set adds the fingerprint of its decoded images.
    """
    e, by_name = experiment, {}
    with suppress(OSError):  # files that cannot be read are not here
        by_name[f"data set {e.dataset}"] = datasets.fingerprint(e.dataset, image_size=e.image_size)
    if data is not None:
        by_name[f"images of {e.dataset}"] = data.fingerprint
    known: dict[Any, type] = {**methods.REGISTRY, **oneshot.REGISTRY}
    for name in filter(known.__contains__, (e.method, str(e.method_options.get("base")))):
        by_name[f"method {name}"] = code(known[name])
    for name in filter(MODELS.__contains__, (e.model, *e.client_models)):
        by_name[f"model {name}"] = code(MODELS[name])
    return {name: value for name, value in by_name.items() if value}


def changed(stored: Mapping[str, str], now: Mapping[str, str]) -> str:
    """The names whose fingerprints differ, joined by commas; runs of older versions have none and differ in nothing."""
    return ", ".join(name for name, value in now.items() if stored.get(name, value) != value)


def code(thing: Any) -> str:
    """Fingerprint of a class or function and of all code of one's own that it uses; `BUILT_IN` for the package's.

    It depends on what the code does: neither on comments and places, nor on the process that the code was sent to.
    """
    root = str(thing.__module__).partition(".")[0]
    if root == BUILT_IN:
        return BUILT_IN
    fingerprint = hashlib.sha256("\n".join(_parts(thing, root, set())).encode()).hexdigest()[:DIGITS]
    return _as_before.get(fingerprint, fingerprint)


def forgive(experiment: Experiment, made_with: Mapping[str, str]) -> None:
    """Let code that a run itself has changed, such as a list that a method appends to, count as before the run."""
    for name, value in fingerprints(experiment).items():
        if made_with.get(name, value) != value:
            _as_before[value] = made_with[name]


_as_before: dict[str, str] = {}  # fingerprint of the code after a run of this process -> before it


def _parts(value: Any, root: str, seen: set[int]) -> Iterator[str]:
    """The parts of a value that decide what it does, in an order of their own."""
    inner: list[Any] = []
    if isinstance(value, FunctionType | type | ModuleType):
        if id(value) in seen or not _is_own(value, root):
            yield f"{getattr(value, '__module__', '')} {value.__name__}"
            return
        seen.add(id(value))
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        used = {name: value.__globals__[name] for name in _globals(value.__code__) if name in value.__globals__}
        inner = [value.__code__, value.__defaults__, value.__kwdefaults__, cells, used]
    elif isinstance(value, type):
        members = {n: v for n, v in vars(value).items() if isinstance(v, FunctionType) or not n.startswith("__")}
        # Without the function that it was made in, which another process does not know.
        inner = [value.__name__, value.__bases__, members]
    elif isinstance(value, ModuleType):
        inner = [Path(value.__file__).read_bytes()] if value.__file__ else []
    elif isinstance(value, CodeType):
        inner = [value.co_code, value.co_names, value.co_varnames, value.co_consts]
    elif isinstance(value, Tensor | np.ndarray):
        inner = [repr(value.tolist()), str(value.dtype)]
    elif isinstance(value, dict):
        inner = [pair for _, pair in sorted((str(key), (key, item)) for key, item in value.items())]
    elif isinstance(value, list | tuple):
        inner = list(value)
    elif isinstance(value, set | frozenset):
        inner = sorted(map(repr, value))
    else:
        yield re.sub(" at 0x[0-9a-fA-F]+", "", repr(value))
        inner = [getattr(value, name) for name in INSIDE if isinstance(getattr(value, name, None), FunctionType)]
        inner += [type(value)] if _is_own(type(value), root) else []
    yield type(value).__name__
    for part in inner:
        yield from _parts(part, root, seen)


def _globals(code_object: CodeType) -> list[str]:
    """Names of the globals that a code object and the functions in it read."""
    names = {step.argval for step in dis.get_instructions(code_object) if step.opname == "LOAD_GLOBAL"}
    return sorted(names.union(*(_globals(const) for const in code_object.co_consts if isinstance(const, CodeType))))


def _is_own(value: Any, root: str) -> bool:
    """False for what belongs to this package, to Python or to an installed library other than ``root``."""
    package = str(value.__name__ if isinstance(value, ModuleType) else value.__module__).partition(".")[0]
    file = getattr(sys.modules.get(package), "__file__", None) or ""
    library = package == BUILT_IN or package in sys.stdlib_module_names or "site-packages" in Path(file).parts
    return package == root or not library
