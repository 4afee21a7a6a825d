"""Give every worker a store of its own: a notebook that waits for another's run says so, and no stored output does."""

import os

if (worker := os.environ.get("PYTEST_XDIST_WORKER")) and (runs := os.environ.get("PAPERLIB_RUNS")):
    os.environ["PAPERLIB_RUNS"] = os.path.join(runs, worker)
