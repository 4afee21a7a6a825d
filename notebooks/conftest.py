"""Give every worker a store of its own: a notebook that waits for a run of another says so, which is no stored output."""

import os

if (worker := os.environ.get("PYTEST_XDIST_WORKER")) and (runs := os.environ.get("PAPERLIB_RUNS")):
    os.environ["PAPERLIB_RUNS"] = os.path.join(runs, worker)
