"""Methods of one's own on their way to other processes, which know only those of the package.

A class of a notebook or script travels whole, one of a module by the module's name (cloudpickle).
"""

import copyreg
from collections.abc import Iterable
from dataclasses import MISSING

import cloudpickle

from paperlib import methods, oneshot
from paperlib.checks import one_line, quote
from paperlib.experiment import Experiment

# Options are fields of a dataclass, which tells one without a default by this very object, not by a copy of it.
copyreg.pickle(type(MISSING), lambda _: "MISSING")


def pack(experiments: Iterable[Experiment]) -> bytes:
    """The methods of these experiments that are registered from elsewhere; empty where there are none.

    Raises ValueError for one that cannot be sent.
    """
    used = {name for e in experiments for name in (e.method, e.method_options.get("base"))}
    known = methods.REGISTRY | oneshot.REGISTRY
    own = {name: known[name] for name in used if name in known and not known[name].__module__.startswith("paperlib.")}
    for name, method in own.items():
        try:
            cloudpickle.dumps(method)
        except Exception as error:
            raise ValueError(
                f"method {quote(name)} cannot be sent to other processes ({one_line(error)}): keep what it uses inside "
                "its class or in a module, or use jobs=1"
            ) from None
    return cloudpickle.dumps(own) if own else b""


def register(packed: bytes) -> None:
    """Register in this process what `pack` gave."""
    own = cloudpickle.loads(packed) if packed else {}
    for name, method in own.items():
        registry = oneshot.REGISTRY if issubclass(method, oneshot.OneShot) else methods.REGISTRY
        registry[name] = method
