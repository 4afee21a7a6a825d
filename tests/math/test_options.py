"""What the values of options may be."""

import math

import pytest

from paperlib.methods import FedAvg, combine
from paperlib.methods.fedprox import FedProx
from paperlib.options import option


class Bounded(FedAvg):
    """A method with an option of every sort."""

    share: float = option(0.5, above=0, at_most=1)
    way: str = option("there", choices=("there", "back"))
    size: int | str | None = option(None, choices=("all",), at_least=1)


@pytest.mark.parametrize("options", [{"share": 1}, {"way": "back"}, {"size": "all"}, {"size": 1}, {"size": None}])
def test_values_within_the_limits_and_choices_are_taken(options):
    assert {name: getattr(Bounded(**options), name) for name in options} == options


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"share": 0}, "share of Bounded is 0, but must be above 0 and at most 1"),
        ({"share": math.nan}, "share of Bounded is nan, but must be above 0 and at most 1"),
        ({"way": "up"}, "way of Bounded is 'up', but must be there or back"),
        ({"size": 0}, "size of Bounded is 0, but must be all or at least 1"),
        ({"size": "some"}, "size of Bounded is 'some', but must be all or at least 1"),
    ],
)
def test_other_values_are_refused(options, sentence):
    for method in (Bounded, combine(FedProx, Bounded)):
        with pytest.raises(ValueError, match=f"^{sentence.replace('Bounded', method.__name__)}$"):
            method(**options)
