"""Named random streams: what is drawn depends on the name alone."""

import numpy as np
import pytest
import torch

from paperlib.random_streams import rng, torch_rng

NAME = {"seed": 3, "purpose": "batches", "round": 5, "client": 7}


def numpy_draw(**name) -> tuple:
    return tuple(rng(**name).integers(0, 2**63, 4))


def torch_draw(**name) -> tuple:
    return tuple(torch.randint(0, 2**62, (4,), generator=torch_rng(**name)).tolist())


@pytest.mark.parametrize("draw", [numpy_draw, torch_draw])
def test_same_name_gives_the_same_draw_whatever_happened_before(draw):
    first = draw(**NAME)
    np.random.seed(1)
    torch.manual_seed(1)
    draw(**NAME | {"client": 8})
    assert draw(**NAME) == first


@pytest.mark.parametrize("draw", [numpy_draw, torch_draw])
@pytest.mark.parametrize("change", [{"seed": 4}, {"purpose": "device draws"}, {"round": 6}, {"client": 8}])
def test_another_name_gives_another_draw(draw, change):
    assert draw(**NAME | change) != draw(**NAME)


@pytest.mark.parametrize("draw", [numpy_draw, torch_draw])
def test_no_two_of_many_names_share_a_draw(draw):
    draws = {draw(seed=s, purpose="batches", round=r, client=c) for s in range(3) for r in range(20) for c in range(20)}
    assert len(draws) == 3 * 20 * 20


def test_global_state_is_left_alone():
    np.random.seed(0)
    torch.manual_seed(0)
    numpy_draw(**NAME), torch_draw(**NAME)
    assert (np.random.random(), float(torch.rand(1))) == pytest.approx((0.5488135, 0.4962566))


def test_streams_are_those_of_the_stored_runs():
    assert rng(0, "partition").integers(0, 1000, 5).tolist() == [102, 962, 144, 451, 767]
    assert rng(1, "batches", 2, 3).permutation(6).tolist() == [4, 5, 3, 2, 0, 1]
    assert torch_rng(0, "initial parameters").initial_seed() == 664350175715794213
