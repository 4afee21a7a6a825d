"""Checks of methods where they come in: a class when it is registered, and what its hooks return in a run.

Every engine calls the hooks of an instance that `watched` gave; what they return must be what their annotations in
FedAvg and OneShot say. Hooks of a round and of a client's visit are checked whenever they are called, those of a local
step the first time, so that training takes as long as without.
"""

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import MISSING, fields
from functools import cache, partial
from math import isfinite
from numbers import Real
from types import CodeType, NoneType
from typing import Any, NoReturn, TypeVar, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from paperlib.checks import LONGEST_NAME, is_name, meant, named, quote
from paperlib.quantities.fairness import RECORDED

T = TypeVar("T")
STEP = ("logits", "logit_loss", "loss", "gradient", "local_step")  # hooks of a local step
# Whose state a hook returns: a tensor of that name keeps its shape and type.
STATES = {"server_init": "server", "aggregate": "server"} | dict.fromkeys(
    ("client_init", "end", "keep_when_absent"), "client"
)
# Types of tensors that a run can send, store and read again.
TYPES = [getattr(torch, name) for name in "float64 float32 float16 int64 int32 int16 int8 uint8 bool".split()]
# Entries of every row of a history.
ROW = [*"round communication_round epoch seconds bytes_up bytes_down test_accuracy test_loss".split(), *RECORDED]
# What a hook must leave as it finds it: how to read it, and how to put it back.
TORCH: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "gradient mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "number of threads": (torch.get_num_threads, torch.set_num_threads),
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "default device": (
        torch.get_default_device, lambda device: torch.set_default_device(None if device.type == "cpu" else device),
    ),
    "deterministic mode": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    "anomaly detection": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
}  # fmt: skip


class Registry(dict[str, type[T]]):
    """Methods by name. A class of one's own is checked when it is assigned; the package's names cannot be taken.

    Raises ValueError, in one sentence, for a name, a class, an option or a hook that cannot work.
    """

    taken: dict[str, type] = {}  # the package's methods of all registries
    update, setdefault = MutableMapping.update, MutableMapping.setdefault  # by __setitem__

    def __init__(self, base: type[T], methods: dict[str, type[T]]):
        super().__init__(methods)
        self.base = base
        self.taken.update(methods)

    def __setitem__(self, name: str, kind: type[T]) -> None:
        if name not in self.taken or kind is not self.taken[name]:
            named("the name of a method", name)
            if name in self.taken:
                raise ValueError(f"{name} is a method of paperlib: register {quote(kind)} under another name")
            check_class(name, kind, self.base)
        super().__setitem__(name, kind)


def check_class(name: str, kind: Any, base: type) -> None:
    """Raise ValueError unless a class derives from ``base`` and its options and hooks can be used."""
    if not isinstance(kind, type) or not issubclass(kind, base):
        raise ValueError(f"method {name} is {quote(kind)}, but must be a class that derives from {base.__name__}")
    for f in fields(kind):  # type: ignore[arg-type]
        if f.init and f.default is MISSING and f.default_factory is MISSING:
            raise ValueError(f"option {f.name} of method {name} has no default, such as {f.name}: float = 0.1")
    package = [k for k in kind.__mro__ if k.__module__.startswith("paperlib.")]
    hooks = {hook: f for k in package for hook, f in vars(k).items() if inspect.isfunction(f) and hook[0] != "_"}
    own = [(word, value) for k in kind.__mro__ if k not in package for word, value in vars(k).items() if word[0] != "_"]
    called = {word for _, value in own for word in _words(getattr(value, "__code__", None))}
    for word, value in own:
        if word in hooks:
            _check_signature(name, word, value, hooks[word])
        elif inspect.isfunction(value) and word not in called and (hint := meant(word, hooks)):
            raise ValueError(f"nothing calls {word} of method {name}{hint} (names of other functions begin with _)")


def _words(code: CodeType | None) -> Iterator[str]:
    """Yield the names that a function's code uses."""
    if code is not None:
        yield from code.co_names
        for inner in code.co_consts:
            yield from _words(inner if isinstance(inner, CodeType) else None)


def _check_signature(name: str, hook: str, function: Any, of_base: Callable[..., Any]) -> None:
    parameters = list(inspect.signature(of_base).parameters)
    try:
        inspect.signature(function).bind(*parameters[isinstance(function, staticmethod | classmethod) :])
    except TypeError:
        wanted = f"must be a function that can be called with ({', '.join(parameters)})"
        raise ValueError(f"{hook} of method {name} is {quote(function)}, but {wanted}") from None


@cache
def hooks_of(base: type) -> dict[str, tuple[tuple[str, ...], Any]]:
    """Return name -> (parameters, type of the result) of the hooks of FedAvg or OneShot."""
    functions = {name: f for name, f in vars(base).items() if inspect.isfunction(f) and name[0] != "_"}
    return {n: (tuple(inspect.signature(f).parameters)[1:], get_type_hints(f)["return"]) for n, f in functions.items()}


def is_own(kind: type) -> bool:
    """Return True for a class that is the reader's, or is combined with one."""
    return any(not one.__module__.startswith("paperlib.") for one in kind.__mro__[:-1])


def watched(method: T, base: type, title: str) -> T:
    """Return a method with checks around the hooks that it has from ``base``; ``title`` names it in sentences."""
    door = Door(method, base, title)
    for hook in door.hooks:
        setattr(method, hook, partial(door.call, hook))
    return method


class Door:
    """The checks of one method in one run. Every refusal is a ValueError."""

    def __init__(self, method: Any, base: type, title: str):
        self.method, self.title, self.hooks = method, title, hooks_of(base)
        self.functions = {hook: getattr(method, hook) for hook in self.hooks}
        self.seen: dict[tuple[str, str], tuple[object, ...]] = {}  # whose state and name -> shape and type
        self.thread = threading.local()

    def call(self, hook: str, *args: Any, **named: Any) -> Any:
        """Call a hook and refuse a wrong result, or another state of torch."""
        parameters, returned = self.hooks[hook]
        before = torch_state()
        if hook == "end":
            self.same_torch("a local step", getattr(self.thread, "begun", before), before)
        try:
            value = self.functions[hook](*args, **named)
        except KeyError as error:
            if hook != "collect":
                raise
            raise ValueError(f"collect of method {self.title} reads {error}, which end did not upload") from error
        self.same_torch(hook, before, torch_state())
        self.thread.begun = before
        self.check(hook, returned, value, dict(zip(parameters, args, strict=False)) | named)
        if hook in STEP:
            vars(self.method).pop(hook, None)
        return value

    def same_torch(self, hook: str, before: tuple[Any, ...], after: tuple[Any, ...]) -> None:
        """Refuse, and undo, a change of torch's state."""
        for (what, (_, put_back)), old, new in zip(TORCH.items(), before, after, strict=True):
            if old != new:
                put_back(old)
                raise ValueError(f"{hook} of method {self.title} leaves torch's {what} at {new}; before, it was {old}")

    def check(self, hook: str, hint: Any, value: Any, given: Mapping[str, Any], whose: str = "") -> None:
        """Refuse a result that is not of the type ``hint``; ``given``: the hook's arguments."""
        parts, whose = get_args(hint), whose or STATES.get(hook, hook)
        if hook == "setup" and vars(self.method).get("context") is not given["context"]:
            raise ValueError(f"setup of method {self.title} must call super().setup(context)")
        if hint is NoneType and value is not None:
            self.refuse(hook, value, "nothing")
        elif hint is int and not (type(value) is int and value > 0):
            self.refuse(hook, value, "a whole number of at least 1")
        elif hint is float and not is_number(value):
            self.refuse(hook, value, "a finite number")
        elif hint is Tensor:
            self.check_tensor(hook, value, given)
        elif hint == list[float]:
            count = len(given["cohort"])
            if not isinstance(value, list | tuple) or len(value) != count or not all(map(is_number, value)):
                self.refuse(hook, value, f"{count} finite numbers")
        elif hint == dict[str, float]:
            self.check_row(hook, value)
            if hook == "epoch":
                progress = given["progress"]
                self.check_state(hook, {"theta": progress.theta, **progress.server}, given, "server")
        elif hint == dict[str, Tensor]:
            self.check_state(hook, value, given, whose)
        elif get_origin(hint) is tuple:
            if not isinstance(value, tuple) or (Ellipsis not in parts and len(value) != len(parts)):
                self.refuse(hook, value, f"a tuple of {len(parts)}, as FedAvg's {hook}")
            if Ellipsis not in parts:
                self.check(hook, parts[0], value[0], given, "upload")
                self.check(hook, parts[1], value[1], given)

    def check_tensor(self, hook: str, value: Any, given: Mapping[str, Any]) -> None:
        """Refuse another loss than a scalar, other logits than a matrix, and a model unlike theta [P]."""
        if hook in STEP[:3]:
            dimensions = 2 if hook == "logits" else 0
            if not isinstance(value, Tensor) or value.ndim != dimensions or not value.dtype.is_floating_point:
                self.refuse(hook, value, "a tensor of shape [B, C]" if dimensions else "a scalar tensor, of shape []")
            if hook == "loss" and given["theta"].requires_grad and not value.requires_grad:
                self.refuse(hook, value, "a scalar that depends on theta")
        elif (like := given.get("theta")) is not None:
            alike = isinstance(value, Tensor) and is_plain(value) and value.shape == like.shape
            if not alike or (value.dtype, value.device) != (like.dtype, like.device):
                self.refuse(hook, value, f"{describe(like.detach())}, dense and detached")

    def check_state(self, hook: str, value: Any, given: Mapping[str, Any], whose: str) -> None:
        """Refuse all but tensors by name that can be stored, and that have the shape and type of former ones."""
        if not isinstance(value, dict):
            self.refuse(hook, value, "a dict of tensors")
        device = self.method.context.data.device
        for name, tensor in value.items():
            reserved = name == "__metadata__" or (name == "buffers" and whose == "upload")
            if not is_name(name) or reserved or ("/" in name and name not in given.get("own", ())):
                wanted = f"must be at most {LONGEST_NAME} printable characters without /, not __metadata__ or buffers"
                raise ValueError(f"{hook} of method {self.title} names a tensor {quote(name)}, but a name {wanted}")
            if whose == "upload" and name == "delta":
                self.check_tensor(hook, tensor, given)
            elif not isinstance(tensor, Tensor) or not is_plain(tensor) or tensor.dtype not in TYPES:
                self.refuse(hook, tensor, f"as {name} a dense, detached tensor of real numbers of up to 64 bits")
            if tensor.device not in (device, torch.device("cpu")):
                self.refuse(hook, tensor, f"as {name} a tensor on {device} or cpu")
            sizes = list(tensor.shape)[whose == "upload" :]  # a client may send rows for its classes alone (CReFF)
            this = tensor.ndim, sizes, tensor.dtype
            if (first := self.seen.setdefault((whose, name), this)) != this:
                self.refuse(hook, tensor, f"as {name} what came first: {first[0]} dimensions, {first[1]}, {first[2]}")

    def check_row(self, hook: str, value: Any) -> None:
        """Refuse all but numbers by names that are free in a history."""
        good = isinstance(value, dict) and all(is_name(n) and isinstance(x, Real) for n, x in value.items())
        if not good or not value.keys().isdisjoint(ROW):
            self.refuse(hook, value, f"numbers by name, other than {', '.join(ROW)}")

    def refuse(self, hook: str, value: object, wanted: str) -> NoReturn:
        """Raise the ValueError for a result."""
        raise ValueError(f"{hook} of method {self.title} returned {describe(value)}, but must return {wanted}")


def torch_state() -> tuple[Any, ...]:
    """Return the values of `TORCH` in this thread."""
    return tuple(read() for read, _ in TORCH.values())


def is_number(value: object) -> bool:
    """Return True for a finite number."""
    return isinstance(value, Real) and isfinite(value)


def is_plain(value: Tensor) -> bool:
    """Return True for a dense and detached tensor."""
    return value.layout == torch.strided and not value.requires_grad


def describe(value: object) -> str:
    """Return a value for a sentence: a tensor by its shape, dtype and device, and by what is unusual about it."""
    if not isinstance(value, Tensor):
        return f"{quote(value)}, of type {type(value).__name__}"
    unusual = f", {value.layout}" if value.layout != torch.strided else ""
    unusual += ", which requires a gradient" if value.requires_grad else ""
    return f"a tensor of shape {list(value.shape)}, {value.dtype} on {value.device}{unusual}"
