"""Two pretend GPUs for a CPU build of torch: ``python -m pytest -p tests.gpu.pretend tests/gpu``.

Tensors on them report ``cuda:0`` or ``cuda:1`` and carry the dispatch keys of CUDA, so that functorch, autocast and
autograd's device threads see a GPU, but hold a CPU tensor that computes. What a GPU refuses is refused: tensors of two
devices in one operation, ``.numpy()``, more memory than the device has. What our own rules refuse is refused as well:
random numbers drawn on the device. What makes the host wait (``item``, ``nonzero``, boolean masks, copies between the
devices) is counted per line of the package, and so are kernels, sums by atomic additions, and bytes.
``torch.cuda.graph`` records operations and replays them on the same memory; what may not be recorded raises.

Not covered: streams and races, a GPU's rounding; how many kernels an operation launches is an estimate (kernels.py).

This package must be imported before torch, in a process of its own: it registers a device guard (guard.cpp) that torch
looks up once. With a torch that was built for CUDA it does nothing, and the tests run on the GPU that there is.
"""

import ctypes
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TORCH = Path(next(iter(importlib.util.find_spec("torch").submodule_search_locations)))


def _register_guard() -> ctypes.PyDLL:
    """Compile guard.cpp and load it with the libraries of torch."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "guard.so"
        source = Path(__file__).with_name("guard.cpp")
        torch = [f"-I{TORCH / 'include'}", f"-L{TORCH / 'lib'}", "-lc10", "-ltorch_cpu"]
        subprocess.run(
            ["g++", "-O0", "-std=c++20", "-shared", "-fPIC", str(source), *torch, "-o", str(library)], check=True
        )
        for name in ("libc10.so", "libtorch_cpu.so"):
            ctypes.CDLL(str(TORCH / "lib" / name), ctypes.RTLD_GLOBAL)
        return ctypes.PyDLL(str(library))


BUILT_FOR_CUDA = (TORCH / "lib" / "libtorch_cuda.so").exists()
READY = "torch" not in sys.modules and not BUILT_FOR_CUDA and shutil.which("g++") is not None
GUARD = _register_guard() if READY else None
