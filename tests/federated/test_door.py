"""What comes in with a method of one's own is checked: its class, what its hooks return, what they leave behind."""

import inspect

import numpy as np
import pytest
import torch

from paperlib import Experiment, oneshot, run
from paperlib.checks import LONGEST_NAME
from paperlib.federated.simulator import simulate
from paperlib.methods import PACKAGE, REGISTRY, FedAvg
from paperlib.oneshot import OneShot
from paperlib.runs.prepare import dataset_of, prepare
from paperlib.runs.traffic import CHEAP, own_options
from paperlib.workers import worker_pool

E = Experiment(
    dataset="digits", train_size=100, test_size=20, model="mlp", width=0.1, clients=2, sampled=1, rounds=2,
    batch_size=25, partition="iid", alpha=None, momentum=0.0,
)  # fmt: skip


@pytest.fixture(scope="module")
def digits():
    return dataset_of(E)


@pytest.mark.parametrize("name", PACKAGE)
def test_methods_of_the_package_pass_and_their_heirs_are_watched(name, digits, pool, monkeypatch):
    options = own_options(name, CHEAP)
    e = E.replace(model="cnn", width=0.125, method=name, method_options=options, clients=3, sampled=2)
    assert "end" not in vars(prepare(e, digits)[0])
    monkeypatch.setitem(REGISTRY, "mine", type("Mine", (REGISTRY[name],), {}))
    method, progress = prepare(e.replace(method="mine"), digits)
    assert len(list(simulate(method, progress, pool))) == 2 and progress.finite
    assert "end" in vars(method) and "gradient" not in vars(method)  # a step is checked once


def own(hook, change):
    """A method that changes what FedAvg's hook returns."""

    def changed(self, *args):
        return change(getattr(FedAvg, hook)(self, *args))

    changed.__signature__ = inspect.signature(getattr(FedAvg, hook))
    return type("Mine", (FedAvg,), {hook: changed})


MODELS = {
    "a scalar": lambda v: v.sum(), "one number": lambda v: v[:1], "a column": lambda v: v[:, None],
    "a row": lambda v: v[None], "too long": lambda v: torch.cat([v, v]), "float64": lambda v: v.double(),
    "float16": lambda v: v.half(), "bfloat16": lambda v: v.bfloat16(), "float8": lambda v: v.to(torch.float8_e4m3fn),
    "int64": lambda v: v.long(), "complex": lambda v: v + 0j, "truths": lambda v: v > 0,
    "sparse": lambda v: v.to_sparse(), "another device": lambda v: v.to("meta"),
    "with a gradient": lambda v: v.detach().clone().requires_grad_(), "NumPy": lambda v: v.detach().numpy(),
    "a list": lambda v: v.tolist(), "nothing": lambda v: None, "a number": lambda v: 0.0, "a dict": lambda v: {"v": v},
}  # fmt: skip
TENSORS = {
    **{name: MODELS[name] for name in ("bfloat16", "float8", "complex", "sparse", "another device", "with a gradient")},
    **{name: MODELS[name] for name in ("NumPy", "a list", "nothing", "a number", "a dict")},
}
NAMES = (1, None, "", "__metadata__", "a/b", "a\nb", "a\u202eb", "x" * (LONGEST_NAME + 1), b"a")
VECTOR = torch.ones(3)
WRONG = [
    *((hook, change) for hook in ("send", "begin", "gradient", "local_step", "finish") for change in MODELS.values()),
    *(("aggregate", lambda r, f=f: (f(r[0]), r[1])) for f in MODELS.values()),
    *(("end", lambda r, f=f: ({"delta": f(r[0]["delta"])}, r[1])) for f in MODELS.values()),
    *(("end", lambda r, f=f: (r[0] | {"more": f(VECTOR)}, r[1])) for f in TENSORS.values()),
    *(("end", lambda r, f=f: (r[0], {"c": f(VECTOR)})) for f in TENSORS.values()),
    *(("end", lambda r, n=n: (r[0] | {n: VECTOR}, r[1])) for n in (*NAMES, "buffers")),
    *(("end", lambda r, n=n: (r[0], {n: VECTOR})) for n in NAMES),
    *(("aggregate", lambda r, f=f: (r[0], {"c": f(VECTOR)})) for f in TENSORS.values()),
    *(("aggregate", lambda r, n=n: (r[0], {n: VECTOR})) for n in NAMES),
    *((hook, lambda r, f=f: {"c": f(VECTOR)}) for hook in ("server_init", "client_init", "broadcast")
      for f in TENSORS.values()),
    *((hook, lambda r, n=n: {n: VECTOR}) for hook in ("server_init", "client_init", "broadcast") for n in NAMES),
    *((hook, lambda r, v=v: v) for hook in ("server_init", "client_init", "broadcast")
      for v in (None, [], VECTOR, 1.0)),
    *((hook, lambda r, v=v: v) for hook in ("end", "aggregate") for v in (None, {}, VECTOR, (VECTOR,), (VECTOR,) * 3)),
    *(("weights", lambda r, v=v: v) for v in (None, 1.0, [], [1.0, 1.0], [float("nan")], ["1"], torch.ones(1), [None])),
    *(("weight", lambda r, v=v: v) for v in (None, "1", float("nan"), float("inf"), torch.ones(()), [1.0])),
    *((hook, lambda r: r if r is not None else 1.0) for hook in ("begin_epoch", "collect")),
    *((hook, lambda r, f=f: f(r)) for hook in ("loss", "logit_loss")
      for f in (float, lambda v: v[None], lambda v: v.expand(3), lambda v: None, lambda v: v > 0)),
    ("loss", lambda r: r.detach()),
    *(("logits", lambda r, f=f: f(r)) for f in (lambda v: v[0], lambda v: v.long(), lambda v: v.tolist())),
    *(("outputs", lambda r, v=v: v) for v in (None, 0, 10.0, "10", True)),
    ("setup", lambda r: vars(r).pop("context") and r),
]  # fmt: skip


@pytest.mark.parametrize(("hook", "change"), WRONG)
def test_a_wrong_result_is_refused_in_a_sentence_that_names_method_and_hook(hook, change, digits, monkeypatch):
    monkeypatch.setitem(REGISTRY, "mine", own(hook, change))
    with worker_pool(1) as pool, pytest.raises(ValueError, match=rf"^{hook} of method mine .*") as error:
        list(simulate(*prepare(E.replace(method="mine"), digits), pool))
    assert "\n" not in str(error.value) and len(str(error.value)) < 400


@pytest.mark.parametrize("hook", ["keep_when_absent", "graph_key"])
@pytest.mark.parametrize("value", [None, 1, [], {1: VECTOR}, {"c": 1.0}, {"a/b": VECTOR}, VECTOR])
def test_hooks_that_not_every_run_calls_are_checked_alike(hook, value, digits, monkeypatch):
    monkeypatch.setitem(REGISTRY, "mine", own(hook, lambda _: value))
    method, _ = prepare(E.replace(method="mine"), digits)
    with pytest.raises(ValueError, match=f"^{hook} of method mine "):
        getattr(method, hook)({})


def test_a_tensor_keeps_its_shape_and_type_from_round_to_round(digits, monkeypatch, pool):
    class Mine(FedAvg):
        def aggregate(self, server, theta, totals):
            return super().aggregate(server, theta, totals)[0], {"c": torch.ones(1 + len(server))}

    monkeypatch.setitem(REGISTRY, "mine", Mine)
    with pytest.raises(ValueError, match=r"aggregate of method mine .* as c .* 1 dimensions, \[1\], torch"):
        list(simulate(*prepare(E.replace(method="mine"), digits), pool))


def test_an_upload_without_what_is_collected_is_named(digits, monkeypatch, pool):
    monkeypatch.setitem(REGISTRY, "mine", own("end", lambda r: ({"update": r[0]["delta"]}, r[1])))
    with pytest.raises(ValueError, match="collect of method mine reads 'delta', which end did not upload"):
        list(simulate(*prepare(E.replace(method="mine"), digits), pool))


LEFT = {
    "gradient mode": lambda: torch.set_grad_enabled(False),
    "number of threads": lambda: torch.set_num_threads(2),
    "default dtype": lambda: torch.set_default_dtype(torch.float64),
    "default device": lambda: torch.set_default_device("meta"),
    "deterministic mode": lambda: torch.use_deterministic_algorithms(True),
    "anomaly detection": lambda: torch.autograd.set_detect_anomaly(True),
}


@pytest.mark.parametrize("hook", ["begin", "end", "aggregate", "local_step", "weights"])
@pytest.mark.parametrize("what", LEFT)
def test_what_a_hook_leaves_behind_is_refused_and_put_back(what, hook, digits, monkeypatch):
    monkeypatch.setitem(REGISTRY, "mine", own(hook, lambda r: (LEFT[what](), r)[1]))
    states = lambda: (torch.get_default_dtype(), torch.get_default_device(), torch.is_anomaly_enabled())  # noqa: E731
    before = states(), torch.get_num_threads(), torch.is_grad_enabled(), torch.are_deterministic_algorithms_enabled()
    with worker_pool(1) as pool, pytest.raises(ValueError, match=rf"^{hook} of method mine leaves torch's {what} at"):
        list(simulate(*prepare(E.replace(method="mine"), digits), pool))
    after = states(), torch.get_num_threads(), torch.is_grad_enabled(), torch.are_deterministic_algorithms_enabled()
    assert before == after


def test_a_later_step_that_changes_torch_is_noticed_at_the_end_of_the_visit(digits, monkeypatch, pool):
    class Mine(FedAvg):
        def local_step(self, theta, g, shared, own, optimizer):
            if optimizer.steps == 1:
                torch.set_default_dtype(torch.float64)
            return super().local_step(theta, g, shared, own, optimizer)

    monkeypatch.setitem(REGISTRY, "mine", Mine)
    with pytest.raises(ValueError, match="a local step of method mine leaves torch's default dtype at torch.float64"):
        list(simulate(*prepare(E.replace(method="mine"), digits), pool))
    assert torch.get_default_dtype() == torch.float32


# -- classes


def of(**functions):
    return type("Mine", (FedAvg,), functions)


CLASSES = [
    ("fedavg", of(), "fedavg is a method of paperlib: register .* under another name"),
    ("dense", of(), "dense is a method of paperlib"),
    ("a\nb", of(), r"the name of a method is 'a\\nb', but must be a name of at most 72 printable characters"),
    ("a\u202eb", of(), "the name of a method is"),
    ("x" * 73, of(), "the name of a method is"),
    ("", of(), "the name of a method is"),
    (3, of(), "the name of a method is 3"),
    ("mine", lambda: FedAvg(), "must be a class that derives from FedAvg"),
    ("mine", FedAvg(), "must be a class that derives from FedAvg"),
    ("mine", None, "must be a class that derives from FedAvg"),
    ("mine", OneShot, "must be a class that derives from FedAvg"),
    ("mine", of(__annotations__={"mu": float}), "option mu of method mine has no default"),
    ("mine", of(aggregat=lambda self, server, theta, totals: None), "nothing calls aggregat .* mean 'aggregate'"),
    ("mine", of(local_steps=lambda self: None), "nothing calls local_steps of method mine .did you mean 'local_step'"),
    ("mine", of(Begin=lambda self: None), "nothing calls Begin of method mine .did you mean 'begin'"),
    (
        "mine",
        of(aggregate=lambda self, server, theta: None),
        r"aggregate of method mine .* called with \(self, server, ",
    ),
    ("mine", of(weight=0.5), "weight of method mine is 0.5, but must be a function that can be called with"),
]


@pytest.mark.parametrize(("name", "kind", "sentence"), CLASSES)
@pytest.mark.parametrize("way", ["item", "update", "setdefault"])
def test_a_class_that_cannot_work_is_refused_where_it_is_registered(name, kind, sentence, way):
    before = dict(REGISTRY)
    with pytest.raises(ValueError, match=sentence) as error:
        if way == "item" or name == "fedavg":  # which setdefault leaves alone
            REGISTRY[name] = kind
        else:
            REGISTRY.update({name: kind}) if way == "update" else REGISTRY.setdefault(name, kind)
    assert dict(REGISTRY) == before and "\n" not in str(error.value)


def test_functions_that_a_method_calls_itself_may_resemble_hooks(monkeypatch):
    class Mine(FedAvg):
        def weighted(self, p):
            return 2 * p

        def weight(self, p, upload):
            return self.weighted(p)

    monkeypatch.setitem(REGISTRY, "mine", Mine)
    assert REGISTRY["mine"] is Mine


@pytest.mark.parametrize("wrong", [{"round": 1.0}, {"test_accuracy": 1.0}, {1: 1.0}, {"a\nb": 1.0}, {"x": "1"}, None])
def test_a_one_shot_method_records_numbers_by_free_names(wrong, monkeypatch, store):
    class Mine(OneShot):
        def epoch(self, ensemble, progress, round, t):
            return wrong

    monkeypatch.setitem(oneshot.REGISTRY, "mine", Mine)
    with pytest.raises(
        ValueError, match="^epoch of method mine returned .* but must return numbers by name, other than"
    ):
        run(E.replace(method="mine", sampled=2, rounds=1), store=store)


def test_names_that_are_arrays_of_numpy_are_refused():
    with pytest.raises(ValueError, match="dataset is"):
        Experiment(dataset=np.array("digits"))
