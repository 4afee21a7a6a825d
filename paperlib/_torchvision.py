"""torchvision, beside a CPU-only torch as well.

Linux wheels of torchvision on the Python index are built against CUDA torch. Beside a CPU-only torch their
compiled operators do not load, and `import torchvision` stops at "operator torchvision::nms does not exist".
No such operator is used in this project, so it is enough that their schemas exist.
"""

import importlib
import sys
from types import ModuleType

import torch

_schemas: torch.library.Library | None = None  # a schema lives as long as the library that defined it


def torchvision() -> ModuleType:
    """The package torchvision, imported; a later `import torchvision` anywhere in the process works as well.

    Raises whatever `import torchvision` raises, except the missing `torchvision::nms`, which is mended.
    """
    global _schemas
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::nms does not exist" not in str(error):
            raise
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]  # what the stopped import left behind
    _schemas = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        _schemas.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return importlib.import_module("torchvision")
