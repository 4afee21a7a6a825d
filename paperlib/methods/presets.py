"""Values of options that are None, by preset: the authors' code and the text of a paper differ in them."""

from math import inf
from typing import Any

FEDGPS: dict[str, dict[str, Any]] = {
    "authors": {
        "lambda_1": 1.0, "lambda_2": 0.1, "path_sign": 1, "path_norm": "layer_sum", "match_classes": False,
        "prototypes": "training", "clip": 10.0, "require_history": True, "surrogate": "stylegan",
    },
    "paper": {
        "lambda_1": 0.1, "lambda_2": 0.1, "path_sign": -1, "path_norm": "global", "match_classes": True,
        "prototypes": "fixed", "clip": 0.0, "require_history": False, "surrogate": "gaussian",
    },
}  # fmt: skip

FEDIMPRO: dict[str, dict[str, Any]] = {
    "authors": {"schedule": "ramp", "joint_bn": True, "beta_m": "authors", "n_fake": "authors", "s_max": 0.1},
    "paper": {"schedule": "constant", "joint_bn": False, "beta_m": 0.9, "n_fake": "batch", "s_max": inf},
}
