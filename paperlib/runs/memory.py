"""The memory of this process, on every system."""

import sys

try:
    import resource
except ModuleNotFoundError:  # Windows
    resource = None  # type: ignore[assignment]


def peak_memory_mb() -> float:
    """The most memory (in MiB) that this process has held so far."""
    if resource is None:
        import psutil  # which only Windows needs

        return float(psutil.Process().memory_info().peak_wset) / 2**20
    unit = 1 if sys.platform == "darwin" else 2**10  # bytes of one unit of ru_maxrss
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
