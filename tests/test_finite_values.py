"""Every number that an experiment takes can be computed with in float32, and means the same when it is read again."""

import dataclasses
import json
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paperlib import Experiment, check, run
from paperlib.checks import LARGEST
from paperlib.experiment import FLOATS, HINTS
from paperlib.methods import REGISTRY, build
from paperlib.oneshot import REGISTRY as ONE_SHOT

BEYOND = [3.5e38, 1e39, 1e300, 10**39]


def numbers(method: type) -> list[str]:
    """The options of a method that may be numbers with a fraction."""
    kinds: dict[str, Any] = {f.name: f.type for f in dataclasses.fields(method) if f.init}
    return [name for name, kind in kinds.items() if float in (kind, *get_args(kind))]


OPTIONS = [(name, option) for name, method in {**REGISTRY, **ONE_SHOT}.items() for option in numbers(method)]


@pytest.mark.parametrize("value", BEYOND)
@pytest.mark.parametrize("field", FLOATS)
def test_a_field_beyond_float32_is_refused(field, value, record_property):
    with pytest.raises(ValueError, match=f"^{field} is {str(value)[:4].replace('+', '.')}.*(at most|below)") as error:
        Experiment(**{field: value})
    assert "\n" not in str(error.value)
    record_property("bad inputs", 1)


def one(method: str, **options: Any) -> Experiment:
    cohort = {"clients": 3, "sampled": 3} if method in ONE_SHOT else {}
    e = Experiment(method=method, method_options=options, **cohort)
    check(e)
    return e


@pytest.mark.parametrize(("method", "option"), OPTIONS)
def test_an_option_beyond_float32_is_refused(method, option, record_property):
    for value in (3.5e38, 1e300, -1e300, float("inf"), float("nan"), 10**39):
        if (option, value) == ("s_max", float("inf")):
            continue  # which means that there is no limit
        with pytest.raises(ValueError, match=option) as error:
            one(method, **{option: value})
        assert "\n" not in str(error.value)
        record_property("bad inputs", 1)


@pytest.mark.parametrize(("method", "option"), [pair for pair in OPTIONS if pair[0] in REGISTRY])
@pytest.mark.parametrize("value", [LARGEST, 1e30, 1e-45])
def test_an_option_at_the_end_of_float32_is_refused_or_its_run_comes_to_an_end(tiny, tmp_path, method, option, value):
    try:
        plain = {"momentum": 0} if method == "delta_sgd" else {}
        # Five thousand images would take a minute to draw, and no number depends on how many there are.
        few = {"surrogate_images": 4} if hasattr(REGISTRY[method], "surrogate_images") else {}
        options = few | {option: value}
        e = tiny.replace(rounds=1, train_size=60, test_size=20, method=method, method_options=options, **plain)
        check(e)
    except ValueError as refused:
        assert option in str(refused)
        return
    assert run(e, store=tmp_path, workers=1).summary["failed"] in (True, False)


@pytest.mark.parametrize("field", ["lr", "weight_decay", "clip", "lr_decay", "alpha"])
@pytest.mark.parametrize("value", [LARGEST, 1e30, 1e20, 10**20, 1e-45])
def test_a_field_at_the_end_of_float32_is_refused_or_its_run_comes_to_an_end(tiny, tmp_path, field, value):
    try:
        e = tiny.replace(rounds=2, **{field: value})
        result = run(e, store=tmp_path, workers=1)
    except ValueError as refused:
        assert field in str(refused) or "Dirichlet" in str(refused)
        return
    assert result.summary["failed"] in (True, False)


@pytest.mark.parametrize(
    ("method", "option"),
    [("fedimpro", "n_fake"), ("creff", "m"), ("creff", "draw_size"), ("ccvr", "m"), ("vhl", "surrogate_batch"),
     ("vhl", "surrogate_images"), ("fedgps", "surrogate_batch"), ("dense", "batch"), ("dense", "latent")],
)  # fmt: skip
def test_more_than_any_memory_holds_is_refused(method, option, record_property):
    with pytest.raises(ValueError, match=f"{option} of .* but must be .*at most 1000000"):
        one(method, **{option: 10**12})
    record_property("bad inputs", 1)


# -- an experiment that is written and read again

REALS = st.floats(1e-30, 1e30) | st.integers(1, 10**6) | st.sampled_from([1e20, 1e16, 1e15, 2.0, 1, 2**53, 1e22])
FREE = {name: REALS for name in ("alpha", "lr", "weight_decay", "clip", "image_noise")} | {
    "width": st.floats(0.01, 100) | st.integers(1, 100),
    "momentum": st.floats(0, 0.99) | st.just(0),
    "sample_share": st.floats(0.01, 1) | st.just(1),
    "seed": st.integers(0, 2**63 - 1),
    "rounds": st.integers(1, 10**6),
    "augment": st.booleans() | st.sampled_from(["none", "crop_flip", "crop"]),
    "measure": st.sampled_from([(), ("weight_divergence",), ["adaptability", "weight_divergence"]]),
    "test_size": st.none() | st.integers(1, 10**9),
}


@settings(max_examples=300, deadline=None)
@given(st.fixed_dictionaries({}, optional=FREE), st.sampled_from(OPTIONS), REALS)
def test_an_experiment_that_is_read_again_is_the_same_in_value_type_and_digest(fields, place, value):
    method, option = place
    fields = fields | ({"clients": 3, "sampled": 3, "measure": ()} if method in ONE_SHOT else {})
    try:
        e = Experiment(method=method, method_options={option: value}, **fields)
        check(e)
    except ValueError:  # the option has limits of its own
        e = Experiment(**fields)
    again = Experiment.from_json(e.to_json())
    assert again == e and again.digest == e.digest and repr(again) == repr(e)
    assert again.to_json() == e.to_json()
    assert all(type(getattr(again, name)) is type(getattr(e, name)) for name in HINTS)
    assert all(isinstance(getattr(e, name), float | None) for name in FLOATS)
    changed = Experiment(**{name: json.loads(json.dumps(value)) for name, value in e.changed().items()})
    assert changed == e and changed.digest == e.digest  # also as the digest writes it, whole floats as ints
    if method in REGISTRY and changed.method == method:
        assert repr(build(method, changed.method_options)) == repr(build(method, e.method_options))


@pytest.mark.parametrize(("method", "option"), OPTIONS)
def test_a_whole_number_in_an_option_is_what_the_option_declares(method, option):
    try:
        e, other = one(method, **{option: 1}), one(method, **{option: 1.0})
    except ValueError:
        return
    assert e == other and e.digest == other.digest
    if method in REGISTRY:
        assert isinstance(getattr(build(method, {option: 1}), option), float)
