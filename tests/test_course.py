"""The notebooks of the course: what stands in them runs, and their self-checks tell right answers from wrong ones."""

import ast
import json
import re
import sys

import checks
import method_checks  # noqa: F401  (registers the exercises of METHODS)
import pytest

from paperlib.paths import NOTEBOOKS

COURSE = sorted((NOTEBOOKS / "course").glob("*.ipynb"))
METHODS = {  # one notebook per paper explains its method -> the name of its exercises
    NOTEBOOKS / "gc_fed/proposed_method.ipynb": "GC-Fed",
    NOTEBOOKS / "fedacd/workflow.ipynb": "FedACD",
    NOTEBOOKS / "fedgps/method.ipynb": "FedGPS",
    NOTEBOOKS / "fedhydra/framework.ipynb": "FedHydra",
    NOTEBOOKS / "fedimpro/method.ipynb": "FedImpro",
}
NUMBERED = {path: f"{path.stem[0]}." for path in COURSE} | {path: f"{name} " for path, name in METHODS.items()}
HINT_THEN_SOLUTION = re.compile(
    r"<details><summary>Hint</summary>\n\n.+?\n\n</details>\n\n"
    r"<details><summary>Solution</summary>\n\n.+\n\n</details>",
    re.S,
)
SHORT = {
    "rounds": 2,
    "seeds": 1,
    "steps": 3,
    "epochs": 2,
    "generator_steps": 2,
}  # in place of what the cell of parameters says

# Exercise -> wrong answers that somebody may well give, as expressions in the notebook's names.
WRONG = {
    "1.1": ["lambda thetas, sizes: thetas.mean(0)", "lambda thetas, sizes: sizes.float() @ thetas"],
    "1.2": ["lambda n, batch_size, local_epochs: local_epochs * n // batch_size", "12"],
    "1.3": ["lambda rounds, sampled, parameters: rounds * sampled * parameters", "lambda *a: a[0] * 10 * a[2] * 4"],
    "2.1": [
        "lambda thetas, weights: (thetas - thetas.mean(0)).norm(dim=1).mean()",
        "lambda thetas, weights: (thetas - weights @ thetas).norm() / 3",
    ],
    "2.2": ["lambda updates: updates.norm(dim=1).mean() / updates.mean(0).norm()", "lambda updates: updates.mean(0)"],
    "2.3": ["lambda before, after: (before - after).mean()", "lambda before, after: (before - after).abs().mean()"],
    "2.4": [
        "lambda errors, counts: 100 * (1 - errors.mean())",
        "lambda errors, counts: 100 * (1 - (counts / counts.sum()).sum(0) @ errors)",
        "lambda errors, counts: (1 - counts / counts.sum(1, keepdim=True) @ errors).mean()",
    ],
    "3.1": ["lambda g, w, w_t, mu: g - mu * (w - w_t)", "lambda g, w, w_t, mu: mu * (w - w_t)"],
    "3.2": [
        "lambda c_k, c, w_t, w_k, steps, lr: (w_t - w_k) / (steps * lr)",
        "lambda c_k, c, w_t, w_k, steps, lr: c_k - c + (w_k - w_t) / (steps * lr)",
        "lambda c_k, c, w_t, w_k, steps, lr: c - c_k + (w_t - w_k) / (steps * lr)",
    ],
    "3.3": ["lambda G: G - G.mean(0)", "lambda G: G - G.mean()", "lambda G: G - G.mean(1)"],
    "3.4": ["lambda w_t, a, b, mu: (a + b) / 2", "lambda w_t, a, b, mu: ((a + b) / 2 + mu * w_t)"],
    "4.1": ["lambda p, y: -p[y].log()", "lambda p, y: (p * (p * (len(p) - 1) / (1 - p[y])).log()).sum()"],
    "4.2": [
        "lambda P, counts, delta: shift_matrix(P, counts, delta).T",
        "lambda P, counts, delta: (P.log() - P.log().T)",
        "lambda P, counts, delta: P.log()",
    ],
    "4.3": ["lambda mean, m, own: mean - own", "lambda mean, m, own: mean - own / m"],
    "5.1": [
        "lambda n, mu, sigma: (mu.mean(0), sigma.mean(0))",
        "lambda n, mu, sigma: ((n @ mu) / n.sum(), ((n - 1)[:, None, None] * sigma).sum(0) / (n.sum() - 1))",
        "lambda n, mu, sigma: mu.mean(0)",
    ],
    "5.2": ["lambda C, D: C * D", "lambda C, D: C * (D + D**2)", "lambda C, D: 2 * D"],
    "5.3": [
        "lambda counts: (counts <= 1).nonzero().tolist()",
        "lambda counts: (counts.T == 1).nonzero().tolist()",
        "lambda counts: int((counts == 1).sum())",
    ],
    "6.1": [
        "lambda losses: ((losses.amax(2) - losses.amin(2)) / losses.amin(2))",
        "lambda losses: ((losses.amax(2) - losses.amin(2)) / losses.amax(2)).T",
    ],
    "6.2": [
        "lambda logits, y, U_r, U_c: torch.einsum('kbj,jk,bk->bj', logits, U_r, U_c[y])",
        "lambda logits, y, U_r, U_c: logits.mean(0)",
        "aggregation.averaged",
    ],
    "6.3": ["lambda logits: logits.mean(0).softmax(1)", "lambda logits: logits.softmax(0).mean(0)"],
    "GC-Fed 1": ["lambda m: torch.eye(m) - 1", "lambda m: torch.full((m, m), 1 / m)", "lambda m: torch.eye(m)"],
    "GC-Fed 2": [
        "lambda G: G - G.mean()",
        "lambda G: G - G.mean((2, 3), keepdim=True)",
        "lambda G: G - G.mean(0)",
    ],
    "GC-Fed 3": [
        "lambda G: (G - G.mean(1, keepdim=True)).square().sum() / G.square().sum()",
        "lambda G: G.mean(1).square().sum() / G.square().sum()",
    ],
    "FedACD 1": [
        "lambda p_y, C: float(torch.log(torch.tensor(C - 1.0)))",
        "lambda p_y, C: 1 - p_y",
        "lambda p_y, C: 0.0",
    ],
    "FedACD 2": [
        "lambda p, y: -p[y].log()",
        "lambda p, y: (p * (p / p.mean()).log()).sum()",
    ],
    "FedACD 3": [
        "lambda models, kl: torch.sigmoid(1 / kl) @ models",
        "lambda models, kl: models.mean(0)",
        "lambda models, kl: (1 / kl) / (1 / kl).sum() @ models",
        "lambda models, kl: (kl / kl.sum()) @ models",
    ],
    "FedGPS 1": [
        "lambda mean, m, own, lambda_g: lambda_g * mean / mean.norm()",
        "lambda mean, m, own, lambda_g: lambda_g * (mean if own is None else (m * mean - own) / (m - 1))",
    ],
    "FedGPS 2": [
        "lambda theta, gradient, e, lr: theta + e - lr * gradient(theta + e)",
        "lambda theta, gradient, e, lr: theta - lr * gradient(theta)",
        "lambda theta, gradient, e, lr: theta + lr * gradient(theta + e)",
    ],
    "FedGPS 3": [
        "lambda z, y, C: torch.stack([z[y == c].sum(0) for c in range(C)])",
        "lambda z, y, C: torch.stack([z[y == c].sum(0) for c in range(C)]) / len(z)",
        "lambda z, y, C: z.mean(0)",
    ],
    "FedHydra 1": [
        "lambda U: (U / U.sum(0), U / U.sum(1, keepdim=True))",
        "lambda U: (U / U.sum(), U / U.sum())",
        "lambda U: (U / U.sum(1, keepdim=True), U)",
    ],
    "FedHydra 2": [
        "lambda logits, y, U_r, U_c: U_r[y] @ logits",
        "lambda logits, y, U_r, U_c: (U_c.T * logits).sum(0)",
        "lambda logits, y, U_r, U_c: logits.mean(0)",
    ],
    "FedHydra 3": ["lambda m, c: 1 / m", "lambda m, c: 1.0", "lambda m, c: m / c"],
    "FedImpro 1": [
        "lambda mu, s, h, beta: ((1 - beta) * mu + beta * h.mean(0), s)",
        "lambda mu, s, h, beta: (beta * mu + (1 - beta) * h.mean(0), beta * s + (1 - beta) * h.var(0))",
        "lambda mu, s, h, beta: (h.mean(0), h.std(0))",
    ],
    "FedImpro 2": ["lambda mu, s, z, y: mu[y] + z", "lambda mu, s, z, y: mu[y] + s[y] ** 2 * z", "lambda *a: a[0]"],
    "FedImpro 3": [
        "lambda round, epochs, ramp: round * epochs / ramp",
        "lambda round, epochs, ramp: (round - 1) / ramp",
    ],
}


def cells(path):
    return [
        (cell["cell_type"], "".join(cell["source"]), cell["metadata"]) for cell in json.loads(path.read_text())["cells"]
    ]


def checks_of(source):
    """Return the calls of check in a cell: exercise -> expression."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    found = [call for call in calls if ast.unparse(call.func) == "check"]
    return {call.args[0].value: call for call in found}


@pytest.mark.parametrize("path", NUMBERED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_notebook_runs_and_its_checks_accept_its_solutions_and_refuse_wrong_answers(path, monkeypatch, tmp_path):
    """In another folder, too, as papermill starts a kernel where it is called."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder != str(NOTEBOOKS / "course")])
    for module in ("checks", "method_checks", "worked"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    names, waiting, solved = {"__name__": "course"}, {}, []
    for kind, source, metadata in cells(path):
        if kind == "code":
            assert not waiting, f"{waiting} has no solution"
            if re.search(r"\bpaper\.|^f\d+\.", source):  # its tables and figures are tested elsewhere
                continue
            exec(compile(source, path.name, "exec"), names)
            if "parameters" in metadata.get("tags", ()):
                names |= {name: value for name, value in SHORT.items() if name in names}
            waiting = checks_of(source)
            for number, call in waiting.items():
                assert eval(ast.unparse(call), names).right is None, f"{number} is not open"
        elif waiting and "<details>" in source:
            assert HINT_THEN_SOLUTION.fullmatch(source), source
            (solution,) = re.findall(r"```python\n(.*?)```", source, re.S)
            exec(solution, names)
            for number, call in waiting.items():
                verdict = eval(ast.unparse(call), names)
                assert verdict.right is True, verdict
                for wrong in WRONG[number]:
                    verdict = checks.check(number, eval(wrong, names))
                    assert verdict.right is False, (wrong, verdict)
                solved.append(number)
            waiting = {}
    assert solved == sorted(number for number in checks.CHECKS if number.startswith(NUMBERED[path]))
    assert len(solved) >= 2 + (path in METHODS)


def test_every_exercise_stands_in_a_notebook():
    assert {re.match(r".+?[. ]", number)[0] for number in checks.CHECKS} == set(NUMBERED.values())


def test_the_page_for_lecturers_has_marks_for_every_exercise_of_the_course():
    page = (NOTEBOOKS.parent / "docs/lecturers.md").read_text(encoding="utf-8")
    marks = re.findall(r"^\| (\d[.\d]*(?:, prediction)?) \| .+ \| (\d) \|$", page, re.MULTILINE)
    asked = [number for number in checks.CHECKS if number[0].isdigit()] + [f"{n}, prediction" for n in range(1, 7)]
    assert sorted(exercise for exercise, _ in marks) == sorted(asked)
    assert f"That makes {sum(int(mark) for _, mark in marks)} marks." in page


def test_a_function_that_stops_is_told_where():
    def broken(thetas, sizes):
        return thetas / "2"

    verdict = checks.check("1.1", broken)
    assert verdict.right is False and "TypeError" in verdict.words


def test_an_unknown_exercise_is_refused():
    with pytest.raises(ValueError, match="'9.9'.*1.1"):
        checks.check("9.9", 1)


def test_a_watched_round_is_that_of_the_run(tmp_path):
    from paperlib import run

    e = checks.SETTING.replace(rounds=2)
    watched = checks.watch(e, 2)
    assert (watched.after == run(e, store=tmp_path).parameters).all()
    assert (watched.after - watched.start - watched.updates.mean(0)).abs().max() < 1e-6


@pytest.mark.parametrize("path", COURSE, ids=lambda path: path.stem)
def test_every_figure_of_a_notebook_is_stored_as_a_picture(path):
    notebook = json.loads(path.read_text())
    outputs = [output["data"] for cell in notebook["cells"] for output in cell.get("outputs", ()) if "data" in output]
    figures = [data for data in outputs if "<Drawing" in "".join(data.get("text/plain", ""))]
    assert len(figures) >= 3 and all("image/png" in data for data in figures)
