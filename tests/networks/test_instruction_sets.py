"""Networks on processors that lack the instructions of the one at hand."""

import os
import subprocess
import sys
from pathlib import Path

from paperlib.networks import MODELS


def test_narrow_resnets_have_the_right_gradients_on_processors_without_avx512():
    """oneDNN's gradient of a strided 1x1 convolution wrote past its memory there, and the process died of it."""
    program = Path(__file__).with_name("narrow_resnets.py")
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    end = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True)
    assert end.returncode == 0, end.stderr
    assert {line.split()[0] for line in end.stdout.splitlines()} == {name for name in MODELS if "resnet" in name}
