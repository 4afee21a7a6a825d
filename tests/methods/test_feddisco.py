import math

import pytest
import torch

from paperlib.methods import build


def with_counts(method, counts):
    method.context.counts = torch.tensor(counts)
    method.context.sizes = method.context.counts.sum(1)
    return method


@pytest.mark.parametrize("normalize", [True, False])
def test_weights_match_a_hand_computation(start, normalize):
    method, _ = start("feddisco", {"a": 0.3, "b": 0.2, "normalize": normalize}, weighting="size")
    with_counts(method, [[10, 0, 0, 0], [5, 5, 5, 5], [3, 3, 0, 0], [1, 2, 3, 4]])
    cohort = [0, 1, 3]
    shares = [[1.0], [0.25] * 4, [0.1, 0.2, 0.3, 0.4]]
    d = [sum(q * math.log(q / 0.25) for q in of) for of in shares]
    assert d[:2] == [math.log(4), 0.0]
    if normalize:
        d = [value / sum(d) for value in d]
    raw = [max(0.0, n / 40 - 0.3 * value + 0.2) for n, value in zip((10, 20, 10), d, strict=True)]
    expected = [value / sum(raw) for value in raw]
    assert method.weights(cohort) == pytest.approx(expected, abs=1e-15)
    assert expected[0] < expected[2] < expected[1]


def test_weights_start_from_those_of_the_experiment(start):
    counts = [[6, 2, 0, 0], [60, 20, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]
    uniform, size = (with_counts(start("feddisco", weighting=name)[0], counts) for name in ("uniform", "size"))
    assert uniform.weights([0, 1]) == [0.5, 0.5]
    assert size.weights([0, 1]) != pytest.approx([0.5, 0.5], abs=0.1)


def test_where_nobody_is_left_the_weights_are_the_plain_ones(start):
    method, _ = start("feddisco", {"a": 5.0, "b": 0.0}, weighting="size")
    with_counts(method, [[1, 0, 0, 0], [0, 3, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]])
    assert method.weights([0, 1]) == [0.25, 0.75]


@pytest.mark.parametrize("other", ["fedvarp", "fedgps", "fedmr"])
def test_methods_that_need_uniform_weights_are_refused(other):
    for outer, base in (("feddisco", other), (other, "feddisco")):
        with pytest.raises(ValueError, match="FedDisco cannot be combined with .*: it needs uniform weights"):
            build(outer, {"base": base})


def test_a_negative_a_is_refused(start):
    with pytest.raises(ValueError, match="a of FedDisco is -1"):
        start("feddisco", {"a": -1})
