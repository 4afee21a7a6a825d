"""The registry of methods, and how they are built and combined.

``build("gc_fed", {"border": 0.9})`` is GC-Fed; ``build("gc_fed", {"base": "fedprox", "mu": 0.1})`` is GC-Fed around
FedProx. Two methods combine by cooperative inheritance: each hook of the outer one calls the same hook of its base.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from paperlib.checks import one_of
from paperlib.federated.door import Registry, is_own, watched
from paperlib.federated.method import FedAvg, State, Upload
from paperlib.options import of_declared_kinds, options_of

# In the order of all tables. A method is the class of its name (gc_fed: GCFed), in the module of its name or its home.
NAMES = """
fedavg fedavgm fedadam fedprox scaffold feddyn fednova fedvarp fedacg fedexp fedinit fedspeed delta_sgd fedmr
fedasam fedlesam fedsol feddecorr feddisco fedntd fedlc local_gc global_gc gc_fed fedgps fedgps_cf fedacd
fedacd_base fedimpro mixup fedrod creff fednh ccvr vhl nucfl spherefed
""".split()
HOMES = {"fedavg": "federated.method", "fedgps_cf": "methods.fedgps", "fedacd_base": "methods.fedacd"}
HOMES |= dict.fromkeys(("local_gc", "global_gc", "gc_fed"), "methods.gc")


def _class(name: str) -> type[FedAvg]:
    module = import_module(f"paperlib.{HOMES.get(name, f'methods.{name}')}")
    return next(value for word, value in vars(module).items() if word.lower() == name.replace("_", ""))


PACKAGE: dict[str, type[FedAvg]] = {name: _class(name) for name in NAMES}
REGISTRY = Registry(FedAvg, PACKAGE)

__all__ = ["REGISTRY", "FedAvg", "State", "Upload", "build", "combine", "options_of"]


def build(name: str, options: Mapping[str, Any] | None = None) -> FedAvg:
    """The method ``name`` with its options; option ``base`` names a method it is wrapped around.

    Raises ValueError for a name, an option or a combination that does not exist.
    """
    options = dict(options or {})
    method, title = _find(name), name
    if "base" in options:
        title = f"{name} around {options['base']}"
        method = combine(method, _find(options.pop("base")))
    built = method(**of_declared_kinds(name, method, options))
    return watched(built, FedAvg, title) if is_own(method) else built


def combine(outer: type[FedAvg], base: type[FedAvg]) -> type[FedAvg]:
    """The method whose hooks are those of ``outer`` around those of ``base``; its options are those of both."""
    if issubclass(outer, base) or issubclass(base, outer):
        if base is FedAvg:
            return outer
        raise ValueError(f"{outer.__name__} cannot be wrapped around {base.__name__}: one already contains the other")
    if not outer.passes_loss_on and base.loss is not FedAvg.loss:
        raise ValueError(f"{outer.__name__} cannot be wrapped around {base.__name__}, whose loss it would not see")
    for one, other in ((outer, base), (base, outer)):
        for excluded, reason in one.excludes.items():
            if _is_or_changes(other, excluded):
                raise ValueError(f"{one.__name__} cannot be combined with {other.__name__}: {reason}")
        if "weighting" in one.needs and other.weights is not FedAvg.weights:
            raise ValueError(f"{other.__name__} cannot be combined with {one.__name__}: it needs uniform weights")
    shared = set(options_of(outer)) & set(options_of(base))
    if shared:
        raise ValueError(f"{outer.__name__} and {base.__name__} both have an option {', '.join(sorted(shared))}")
    return type(f"{outer.__name__}{base.__name__}", (outer, base), {"needs": outer.needs | base.needs})


def _is_or_changes(method: type[FedAvg], what: type[FedAvg] | str) -> bool:
    """Return True for a method of a class, or for one that changes what a name stands for in FedAvg."""
    if isinstance(what, str):
        return getattr(method, what, None) is not getattr(FedAvg, what, None)
    return issubclass(method, what)


def _find(name: str) -> type[FedAvg]:
    one_of("method", name, REGISTRY)
    return REGISTRY[name]
