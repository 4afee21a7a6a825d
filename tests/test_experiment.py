"""`Experiment`: what it refuses, and the digest that addresses its run."""

import dataclasses
import json
import re

import numpy as np
import pytest

from paperlib import Experiment, check, oneshot, revisions
from paperlib.data.partitions import PARTITIONS
from paperlib.experiment import DEFAULTS
from paperlib.methods import REGISTRY
from paperlib.networks import MODELS

NAMES = {
    "dataset": "digits, mnist, fmnist", "model": "mlp, cnn, vgg11", "partition": "iid, dirichlet, dirichlet_capped",
    "last_batch": "keep, pad", "weighting": "uniform, size", "method": "fedavg, fedavgm, fedadam, fedprox, scaffold",
}  # fmt: skip


@pytest.mark.parametrize("field", NAMES)
def test_unknown_name_is_refused_with_the_choices(field):
    with pytest.raises(ValueError, match=f"^unknown {field} 'nonsense'; .*{NAMES[field]}"):
        check(Experiment(**{field: "nonsense"}))


@pytest.mark.parametrize("field", NAMES)
@pytest.mark.parametrize("value", [None, 3, ["digits"]])
def test_name_that_is_no_string_is_refused(field, value):
    if field == "partition" and value == ["digits"]:  # indices are a list, too
        with pytest.raises(ValueError, match="partition: client 0 has 'digits', but must have a list of indices"):
            Experiment(partition=value)
        return
    with pytest.raises(ValueError, match=f"^{field} is {re.escape(repr(value))}, but must be a name"):
        check(Experiment(**{field: value}))


@pytest.mark.parametrize("field", ["clients", "sampled", "rounds", "local_epochs", "batch_size", "eval_every"])
@pytest.mark.parametrize("value", [0, -1, 1.5, 2.0, "3", None, True])
def test_count_is_a_whole_number_of_at_least_one(field, value):
    with pytest.raises(ValueError, match=f"^{field} is {value!r}, but must be a whole number of at least 1"):
        check(Experiment(**{field: value}))


@pytest.mark.parametrize("field", ["train_size", "test_size", "image_size", "local_steps"])
@pytest.mark.parametrize("value", [0, -5, 10.5, "all"])
def test_size_is_none_or_a_whole_number_of_at_least_one(field, value):
    with pytest.raises(ValueError, match=f"^{field} is {value!r}, but must be a whole number of at least 1"):
        check(Experiment(**{field: value}))
    assert getattr(Experiment(**{field: None}), field) is None


@pytest.mark.parametrize("field", ["seed", "partition_seed", "min_samples"])
@pytest.mark.parametrize("value", [-1, 0.5, None])
def test_seed_is_a_whole_number_of_at_least_zero(field, value):
    with pytest.raises(ValueError, match=f"^{field} is {value!r}, but must be a whole number of at least 0"):
        check(Experiment(**{field: value}))


@pytest.mark.parametrize("field", ["width", "lr", "alpha", "sample_share"])
@pytest.mark.parametrize("value", [0, -0.1, float("nan"), float("inf"), "0.1", True])
def test_rate_is_a_number_above_zero(field, value):
    with pytest.raises(ValueError, match=f"^{field} is {value!r}, but must be a number above 0"):
        check(Experiment(**{field: value}))


@pytest.mark.parametrize("field", ["momentum", "weight_decay", "image_noise", "image_rotation"])
@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), None])
def test_factor_is_a_number_of_at_least_zero(field, value):
    with pytest.raises(ValueError, match=f"^{field} is {value!r}, but must be a number at least 0"):
        check(Experiment(**{field: value}))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"momentum": 1.0}, "momentum is 1.0, but must be a number at least 0 and below 1"),
        ({"sample_share": 1.2}, "sample_share is 1.2, but must be a number above 0 and at most 1"),
        ({"augment": "yes"}, "unknown augment 'yes'; choose one of none, crop_flip, crop, reflect_flip, "),
        ({"augment": 1}, "augment is 1, but must be True, False or a name"),
        ({"lr_decay": 0}, "lr_decay is 0, but must be a number above 0"),
        ({"clip": 0}, "clip is 0, but must be a number above 0"),
        ({"image_rotation": 361}, "image_rotation is 361, but must be a number at least 0 and at most 360"),
        ({"local_steps": 10, "local_epochs": 5}, "local_epochs is 5, but must be 1 with local_steps=10"),
        ({"momentum_buffer": "lose"}, "unknown momentum_buffer 'lose'; choose one of reset, keep"),
        ({"measure": "cka"}, "measure is 'cka', but must be a sequence of names"),
        ({"measure": 5}, "measure is 5, but must be a sequence of names"),
        ({"measure": ("speed",)}, "unknown measure 'speed'; choose one of adaptability, weight_divergence, "),
        (
            {"measure": ("surrogate_divergence",)},
            "measure surrogate_divergence needs FedGPS with surrogate stylegan or",
        ),
        ({"measure": ("shift",)}, "measure shift needs FedGPS"),
        ({"clients": 5, "sampled": 6}, "sampled is 6, but there are only 5 clients"),
        ({"train_size": 99}, "train_size is 99, too few for 100 clients with at least 1 samples each"),
        ({"train_size": 999, "min_samples": 10}, "train_size is 999, too few for 100 clients with at least 10 samples"),
        ({"partition": "dirichlet_capped", "alpha": None}, "alpha is None, but the partition dirichlet_capped needs"),
        ({"method_options": 5}, "method_options is 5, but must map option names to values"),
        ({"method_options": None}, "method_options is None, but must map option names to values"),
        ({"method_options": {"mu": 0.1}}, "fedavg has no option 'mu'; its options are: none"),
        ({"method": "fedprox", "method_options": {"nu": 1}}, "fedprox has no option 'nu'; its options are: mu"),
        ({"method": "gc_fed", "method_options": {"base": "x"}}, "unknown method 'x'; choose one of fedavg, "),
        ({"method": "gc_fed", "method_options": {"base": "local_gc"}}, "GCFed cannot be wrapped around LocalGC"),
    ],
)
def test_impossible_values_are_refused_in_one_sentence(fields, sentence):
    with pytest.raises(ValueError, match="^" + re.escape(sentence)) as error:
        check(Experiment(**fields))
    assert "\n" not in str(error.value)


def test_replaced_experiment_is_checked_as_well():
    with pytest.raises(ValueError, match="lr is -1"):
        check(Experiment().replace(lr=-1))


@pytest.mark.parametrize(
    "changes",
    [
        {"lr": 1, "clip": np.float32(2), "rounds": np.int64(3)},
        {"client_models": ["lenet"], "measure": ["update_norm"], "augment": "crop_flip"},
        {"method": "fedprox", "method_options": {"mu": np.float64(0.5)}},
        {"partition": [[0, 2], [1]], "sampled": 1, "clients": 100},
    ],
)
def test_a_replaced_experiment_is_the_one_described_anew(changes):
    """Only what changes is checked and brought into form, and nothing of the old one stays, such as its digest."""
    assert SOME.digest
    fields = {field.name: getattr(SOME, field.name) for field in dataclasses.fields(SOME)}
    replaced, anew = SOME.replace(**changes), Experiment(**fields | changes)
    assert replaced == anew and replaced.digest == anew.digest != SOME.digest
    assert repr(replaced) == repr(anew)  # 1.0 and not 1, a tuple and not a list


def test_values_at_the_limits_are_accepted():
    e = Experiment(
        partition="iid", alpha=None, momentum=0, weight_decay=0, sample_share=1, clients=1, sampled=1, min_samples=0,
        train_size=1,
    )  # fmt: skip
    assert e.alpha is None


# -- the digest

SOME = Experiment(
    dataset="cifar10", model="cnn", partition="dirichlet_capped", alpha=0.05, clients=200, sampled=5, rounds=800,
    local_epochs=5, last_batch="pad", augment=True, weight_decay=1e-5, method="gc_fed",
    method_options={"border": 0.9, "vector_params": "skip"}, seed=2, partition_seed=2,
)  # fmt: skip


def test_digest_addresses_the_runs_that_are_stored_already():
    assert Experiment().digest == "5e5fbf8b2105e97e"
    assert SOME.digest == "0aec6b8ca7d7b753"


def test_defaults_never_change():
    # another default would change which runs a digest stands for
    assert DEFAULTS == {
        "dataset": "cifar10", "model": "cnn", "width": 1.0, "partition": "dirichlet", "alpha": 0.1, "clients": 100,
        "sampled": 10, "rounds": 100, "local_epochs": 1, "batch_size": 50, "last_batch": "keep", "augment": False,
        "lr": 0.01, "momentum": 0.9, "weight_decay": 0.0, "weighting": "uniform", "method": "fedavg",
        "method_options": {}, "seed": 0, "partition_seed": 0, "min_samples": 1, "sample_share": 1.0,
        "train_size": None, "test_size": None, "image_size": None, "eval_every": 1,
        "lr_decay": 1.0, "clip": None, "momentum_buffer": "reset", "measure": (),
        "precision": "float32", "client_models": (), "pixels": "standard", "evaluate_on": "test",
        "local_steps": None, "image_noise": 0.0, "image_rotation": 0.0,
    }  # fmt: skip


def test_digest_ignores_fields_at_their_default():
    assert Experiment(rounds=100, lr=0.01, method_options={}).digest == Experiment().digest
    assert SOME.replace(eval_every=1).digest == SOME.digest
    assert Experiment().changed() == {}
    assert Experiment(lr=0.5, alpha=2.0).changed() == {"lr": 0.5, "alpha": 2}


def test_whole_numbers_are_the_same_written_as_int_or_float():
    assert Experiment(alpha=1, lr=1) == Experiment(alpha=1.0, lr=1.0)
    assert Experiment(alpha=1, lr=1).digest == Experiment(alpha=1.0, lr=1.0).digest
    whole, decimal = ({"border": 1}, {"border": 1.0})
    assert SOME.replace(method_options=whole).digest == SOME.replace(method_options=decimal).digest


def test_order_of_the_options_does_not_matter():
    turned = SOME.replace(method_options=dict(reversed(SOME.method_options.items())))
    assert (turned, turned.digest, hash(turned)) == (SOME, SOME.digest, hash(SOME))


OTHER = {
    "dataset": "mnist", "model": "mlp", "width": 0.5, "partition": "iid", "alpha": 0.2, "clients": 101, "sampled": 9,
    "rounds": 99, "local_epochs": 2, "batch_size": 10, "last_batch": "pad", "augment": True, "lr": 0.1, "momentum": 0.0,
    "weight_decay": 0.1, "weighting": "size", "method": "gc_fed", "method_options": {"vector_params": "skip"},
    "seed": 1, "partition_seed": 1, "min_samples": 2, "sample_share": 0.5, "train_size": 1000, "test_size": 10,
    "image_size": 28, "eval_every": 2, "lr_decay": 0.9, "clip": 1.0, "momentum_buffer": "keep", "measure": ("cka",),
    "precision": "bfloat16", "pixels": "unit", "evaluate_on": "validation", "local_steps": 1, "image_noise": 0.1,
    "image_rotation": 90.0,
}  # fmt: skip


def test_every_field_changes_the_digest():
    base = Experiment(method="local_gc")
    digests = {base.replace(**{name: value}).digest for name, value in OTHER.items()}
    assert set(OTHER) == {f.name for f in dataclasses.fields(Experiment)} - {"client_models"}
    assert len(digests | {base.digest}) == len(OTHER) + 1
    one_shot = Experiment(method="dense", clients=1, sampled=1, rounds=1)
    assert one_shot.replace(client_models=("lenet",)).digest != one_shot.digest


# -- its other forms


@pytest.mark.parametrize("e", [Experiment(), SOME, Experiment(partition="iid", alpha=None, train_size=500)])
def test_json_round_trip_gives_an_equal_experiment(e):
    again = Experiment.from_json(e.to_json())
    assert (again, again.digest, hash(again)) == (e, e.digest, hash(e))
    assert set(json.loads(e.to_json())) == set(DEFAULTS)


def test_experiments_are_keys():
    runs = {Experiment(alpha=1): "first", SOME: "second"}
    assert runs[Experiment(alpha=1.0)] == "first"
    assert runs[Experiment.from_json(SOME.to_json())] == "second"
    assert Experiment(seed=1) not in runs


def test_experiment_cannot_be_changed():
    options = {"border": 0.5}
    e = SOME.replace(method_options=options)
    options["border"] = 0.1
    assert e.method_options == {"border": 0.5}
    with pytest.raises(dataclasses.FrozenInstanceError):
        e.lr = 1


def test_numpy_numbers_are_numbers():
    e = Experiment(alpha=np.float64(0.5), lr=np.float64(2))
    assert (e, e.digest) == (Experiment(alpha=0.5, lr=2), Experiment(alpha=0.5, lr=2).digest)


def test_experiment_introduces_itself():
    assert str(SOME) == "gc_fed on cifar10, dirichlet_capped(0.05), 5 of 200, seed 2"
    assert str(Experiment(partition="iid", alpha=None)) == "fedavg on cifar10, iid, 10 of 100, seed 0"


@pytest.mark.parametrize(
    ("method", "options", "sentence"),
    [
        ("fedprox", {"mu": "a"}, "mu of fedprox is 'a', which is not of the kind float"),
        ("fedlc", {"exclude_true": 1}, "exclude_true of fedlc is 1"),
        ("feddyn", {"clip": True}, "clip of feddyn is True"),
        ("gc_fed", {"mean": "Kw"}, "mean of GCFed is 'Kw', but must be Cout or"),
        ("gc_fed", {"border": 1.5}, "border of GCFed is 1.5"),
        ("scaffold", {"c_scale": "1/K"}, "c_scale of Scaffold is '1/K'"),
    ],
)
def test_impossible_method_options_are_refused_when_the_experiment_is_described(method, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        check(Experiment(method=method, method_options=options))
    Experiment(method="feddyn", method_options={"clip": None, "alpha": 1})  # None where declared, 1 for 1.0


def test_a_corrected_name_gives_its_runs_another_address_and_all_others_keep_theirs(monkeypatch):
    uses = [
        Experiment(method="fedprox"),
        Experiment(method="gc_fed", method_options={"base": "fedprox"}),
        Experiment(method="fedprox", model="resnet18"),
    ]
    others = [Experiment(), Experiment(method="fedntd"), Experiment(model="resnet18")]
    monkeypatch.setattr(revisions, "REVISIONS", {})
    before = [e.digest for e in (*uses, *others)]
    monkeypatch.setattr(revisions, "REVISIONS", {"fedprox": 1})
    after = [Experiment.from_json(e.to_json()).digest for e in (*uses, *others)]
    assert [old != new for old, new in zip(before, after, strict=True)] == [True] * 3 + [False] * 3


def test_every_revision_is_of_a_name_that_exists():
    assert set(revisions.REVISIONS) <= {*REGISTRY, *oneshot.REGISTRY, *MODELS, *PARTITIONS}
    assert len({*REGISTRY, *oneshot.REGISTRY, *MODELS, *PARTITIONS}) == sum(
        map(len, ({*REGISTRY, *oneshot.REGISTRY}, MODELS, PARTITIONS))
    )  # a name stands for one thing
