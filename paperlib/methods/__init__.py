"""The registry of methods, and how they are built and combined.

``build("gc_fed", {"border": 0.9})`` is GC-Fed; ``build("gc_fed", {"base": "fedprox", "mu": 0.1})`` is GC-Fed around
FedProx. Two methods combine by cooperative inheritance: each hook of the outer one calls the same hook of its base.
"""

from collections.abc import Mapping
from typing import Any

from paperlib.checks import one_of
from paperlib.federated.door import Registry, is_own, watched
from paperlib.federated.method import FedAvg, State, Upload
from paperlib.methods.ccvr import CCVR
from paperlib.methods.creff import CReFF
from paperlib.methods.delta_sgd import DeltaSGD
from paperlib.methods.fedacd import FedACD, FedACDBase
from paperlib.methods.fedacg import FedACG
from paperlib.methods.fedadam import FedAdam
from paperlib.methods.fedasam import FedASAM
from paperlib.methods.fedavgm import FedAvgM
from paperlib.methods.feddecorr import FedDecorr
from paperlib.methods.feddisco import FedDisco
from paperlib.methods.feddyn import FedDyn
from paperlib.methods.fedexp import FedExP
from paperlib.methods.fedgps import FedGPS, FedGPSCF
from paperlib.methods.fedimpro import FedImpro
from paperlib.methods.fedinit import FedInit
from paperlib.methods.fedlc import FedLC
from paperlib.methods.fedlesam import FedLESAM
from paperlib.methods.fedmr import FedMR
from paperlib.methods.fednh import FedNH
from paperlib.methods.fednova import FedNova
from paperlib.methods.fedntd import FedNTD
from paperlib.methods.fedprox import FedProx
from paperlib.methods.fedrod import FedROD
from paperlib.methods.fedsol import FedSOL
from paperlib.methods.fedspeed import FedSpeed
from paperlib.methods.fedvarp import FedVARP
from paperlib.methods.gc import GCFed, GlobalGC, LocalGC
from paperlib.methods.mixup import Mixup
from paperlib.methods.nucfl import NUCFL
from paperlib.methods.scaffold import Scaffold
from paperlib.methods.spherefed import SphereFed
from paperlib.methods.vhl import VHL
from paperlib.options import of_declared_kinds, options_of

PACKAGE: dict[str, type[FedAvg]] = {
    "fedavg": FedAvg,
    "fedavgm": FedAvgM,
    "fedadam": FedAdam,
    "fedprox": FedProx,
    "scaffold": Scaffold,
    "feddyn": FedDyn,
    "fednova": FedNova,
    "fedvarp": FedVARP,
    "fedacg": FedACG,
    "fedexp": FedExP,
    "fedinit": FedInit,
    "fedspeed": FedSpeed,
    "delta_sgd": DeltaSGD,
    "fedmr": FedMR,
    "fedasam": FedASAM,
    "fedlesam": FedLESAM,
    "fedsol": FedSOL,
    "feddecorr": FedDecorr,
    "feddisco": FedDisco,
    "fedntd": FedNTD,
    "fedlc": FedLC,
    "local_gc": LocalGC,
    "global_gc": GlobalGC,
    "gc_fed": GCFed,
    "fedgps": FedGPS,
    "fedgps_cf": FedGPSCF,
    "fedacd": FedACD,
    "fedacd_base": FedACDBase,
    "fedimpro": FedImpro,
    "mixup": Mixup,
    "fedrod": FedROD,
    "creff": CReFF,
    "fednh": FedNH,
    "ccvr": CCVR,
    "vhl": VHL,
    "nucfl": NUCFL,
    "spherefed": SphereFed,
}
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
        if one.needs_update and not other.sends_update:
            raise ValueError(
                f"{one.__name__} and {other.__name__} cannot be combined: the server needs the clients' updates, in "
                f"place of which {other.__name__} sends something else"
            )
        for excluded, reason in one.excludes.items():
            if issubclass(other, excluded):
                raise ValueError(f"{one.__name__} cannot be combined with {other.__name__}: {reason}")
        if one.needs_uniform and other.weights is not FedAvg.weights:
            raise ValueError(f"{other.__name__} cannot be combined with {one.__name__}: it needs uniform weights")
    shared = set(options_of(outer)) & set(options_of(base))
    if shared:
        raise ValueError(f"{outer.__name__} and {base.__name__} both have an option {', '.join(sorted(shared))}")
    return type(f"{outer.__name__}{base.__name__}", (outer, base), {})


def _find(name: str) -> type[FedAvg]:
    one_of("method", name, REGISTRY)
    return REGISTRY[name]
