"""Methods around methods, as in Table 7 of GC-Fed."""

import inspect
import itertools
import re

import pytest
import torch

from paperlib.methods import REGISTRY, FedAvg, build, combine
from paperlib.papers.gc_fed.setting import METHODS

BASES = ["fedprox", "fedlc", "fedntd", "feddecorr", "fedsol"]


@pytest.mark.parametrize("outer", ["gc_fed", "global_gc", "local_gc"])
@pytest.mark.parametrize(
    ("base", "neutral"),
    [("fedprox", "mu"), ("fedlc", "tau"), ("fedntd", "beta"), ("feddecorr", "beta"), ("fedsol", "rho")],
)
def test_around_a_neutral_method_is_the_outer_one_bit_for_bit(play, outer, base, neutral):
    _, combined, _ = play(outer, {"base": base, neutral: 0.0}, model="cnn", width=0.1)
    _, alone, _ = play(outer, model="cnn", width=0.1)
    assert torch.equal(combined.theta, alone.theta)


@pytest.mark.parametrize("base", BASES)
def test_centralization_comes_last(start, batch_of, elsewhere, base):
    """Up to the border it acts on the full gradient of the modified loss; above it nothing is centred."""
    skewed = {"model": "cnn", "width": 0.1, "partition": "dirichlet", "alpha": 0.3}
    combined, progress = start("gc_fed", {"base": base}, **skewed)
    alone, _ = start(base, **skewed)
    batch, theta = batch_of(combined, progress), elsewhere(progress)
    g, raw = (m.net.split(m.gradient(theta, batch, {}, {})) for m in (combined, alone))
    for name in g:
        if name.startswith("classifier"):
            assert torch.equal(g[name], raw[name])
        else:
            dims = tuple(range(1, g[name].ndim)) or (0,)
            torch.testing.assert_close(g[name], raw[name] - raw[name].mean(dims, keepdim=True), atol=1e-14, rtol=0)
            assert not torch.equal(g[name], raw[name])


@pytest.mark.parametrize(
    "base", sorted(set(REGISTRY) - {"fedavg", "local_gc", "global_gc", "gc_fed", "fedacg", "fednsam", "fedmr"})
)
def test_global_centralization_leaves_no_mean_in_the_step_of_any_base(play, start, base):
    needs = {"momentum": 0.0} if base == "delta_sgd" else {}
    _, progress, _ = play("global_gc", {"base": base}, rounds=2, **needs)
    method, initial = start("global_gc", {"base": base}, **needs)
    for name, step in method.net.split(progress.theta - initial.theta).items():
        if step.ndim == 0 or (base, name) == ("spherefed", "classifier.weight"):
            continue  # a scalar has no mean to lose, a fixed classifier takes no step
        assert step.mean(-1).abs().max() < 1e-15 and step.norm() > 1e-4


@pytest.mark.parametrize(("outer", "base"), [("feddecorr", "fedprox"), ("fedprox", "feddecorr")])
def test_penalties_add_up_in_either_order(start, batch_of, elsewhere, outer, base):
    combined, progress = start(outer, {"base": base, "mu": 0.4, "beta": 0.2})
    batch, theta = batch_of(combined, progress), elsewhere(progress)
    decorr, _ = start("feddecorr", {"beta": 0.2})
    expected = decorr.gradient(theta, batch, {}, {}) + 0.4 * (theta - progress.theta)
    torch.testing.assert_close(combined.gradient(theta, batch, {}, {}), expected, atol=1e-14, rtol=0)


def test_methods_that_combine_have_no_names_of_their_own_in_common():
    """A helper or an option of one would otherwise stand in for that of the other."""

    def names(method):
        return {name for kind in method.__mro__ for name in vars(kind)} - set(dir(FedAvg)) - {"__match_args__", "grid"}

    for (a, outer), (b, base) in itertools.combinations(REGISTRY.items(), 2):
        common_kinds = {kind for kind in outer.__mro__ if issubclass(base, kind)}
        common = names(outer) & names(base) - {name for kind in common_kinds for name in vars(kind)}
        try:
            combine(outer, base)
        except ValueError:
            continue
        assert not common, (a, b)


def test_every_sum_of_a_round_belongs_to_one_method():
    """The sums of two methods that combine would otherwise be one."""
    kinds = {kind for method in REGISTRY.values() for kind in method.__mro__ if "collect" in vars(kind)}
    names = [
        name
        for kind in kinds
        for name in set(re.findall(r'totals\.(?:add|sum|append)\("([^"]+)"', inspect.getsource(kind.collect)))
    ]
    assert {"delta", "a", "d_mu"} <= set(names) and len(names) == len(set(names))


def test_options_of_both_are_taken_and_others_refused():
    method = build("gc_fed", {"base": "fedprox", "mu": 0.3, "border": 0.5})
    assert (method.mu, method.border, method.mean) == (0.3, 0.5, "Cout")
    with pytest.raises(ValueError, match="gc_fed has no option 'rho'; its options are: .*mu"):
        build("gc_fed", {"base": "fedprox", "rho": 1.0})


@pytest.mark.parametrize(
    ("outer", "base", "message"),
    [
        ("fedlc", "fedntd", "FedLC and FedNTD both have an option tau"),
        ("fedprox", "fedprox", "one already contains the other"),
        ("gc_fed", "local_gc", "one already contains the other"),
        ("gc_fed", "fedproxy", "unknown method 'fedproxy'"),
        ("feddyn", "fedvarp", "FedDyn cannot be combined with FedVARP: its server needs the clients' updates"),
        ("fedvarp", "feddyn", "FedDyn cannot be combined with FedVARP: its server needs the clients' updates"),
        ("fedgps_cf", "fedvarp", "FedGPSCF cannot be combined with FedVARP"),
        ("vhl", "fedgps", "VHL cannot be wrapped around FedGPS, whose loss it would not see"),
        ("fedgps", "vhl", "FedGPS cannot be wrapped around VHL, whose loss it would not see"),
        ("creff", "ccvr", "CReFF and CCVR both have an option m"),
        ("ccvr", "spherefed", "both have an option calibrate_on"),
        ("fedlc", "spherefed", "SphereFed cannot be combined with FedLC: it minimises squares"),
        ("spherefed", "mixup", "SphereFed cannot be combined with Mixup: it minimises squares"),
    ],
)
def test_combinations_that_do_not_exist_are_refused(outer, base, message):
    with pytest.raises(ValueError, match=message):
        build(outer, {"base": base})


def test_states_of_two_methods_that_combine_have_different_names(start):
    """Otherwise one would overwrite the other's."""
    cheap = {"surrogate_images": 1}

    def states(name, **options):
        method, progress = start(name, options, momentum=0.0)
        return set(progress.server), set(method.client_init(0, progress.theta))

    alone = {name: states(name, **cheap if "fedgps" in name else {}) for name in REGISTRY}
    stateful = [name for name in REGISTRY if any(alone[name])]
    tried = 0
    for outer, base in itertools.permutations(stateful, 2):
        try:
            build(outer, {"base": base})
        except ValueError:
            continue
        together = states(outer, base=base, **cheap if "fedgps" in outer + base else {})
        for both, one, other in zip(together, alone[outer], alone[base], strict=True):
            assert both == one | other and not one & other
        tried += 1
    assert tried > 50


def test_every_method_of_the_papers_tables_exists_and_can_be_wrapped():
    for name, options in METHODS.values():
        build(name, options)
        if name not in ("local_gc", "global_gc", "gc_fed"):
            build("gc_fed", options | {"base": name})


@pytest.mark.parametrize("outer", ["fedgps", "fedimpro"])
def test_a_method_with_a_loss_of_its_own_refuses_a_base_that_changes_the_loss(outer):
    with pytest.raises(ValueError, match="cannot be wrapped around FedDecorr, whose loss it would not see"):
        build(outer, {"base": "feddecorr"})
    build(outer, {"base": "fedlc"})  # changes the loss of the logits, which both use


@pytest.mark.parametrize("outer", ["fedlc", "fedntd", "feddecorr", "fedprox", "gc_fed", "mixup"])
def test_fedgps_can_be_wrapped_although_it_has_more_outputs(play, outer):
    cheap = {"surrogate_batch": 8, "surrogate_images": 4}
    _, combined, _ = play(outer, {"base": "fedgps"} | cheap, rounds=2, partition="dirichlet", alpha=0.3)
    _, alone, _ = play("fedgps", cheap, rounds=2, partition="dirichlet", alpha=0.3)
    assert combined.finite and (combined.theta - alone.theta).norm() > 1e-5
