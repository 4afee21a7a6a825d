"""Reference implementations of the methods in plain PyTorch, to compare with the papers' algorithms and as an oracle.

Each is one loop with modules, autograd and `torch.optim.SGD` in float64, written from the paper, or from public code if
it says so. It shares only the batches and the random draws with the package. `CASES` lists the compared runs;
`difference` compares one with its reference.
"""

from tests.references.cases import CASES, Case, difference

__all__ = ["CASES", "Case", "difference"]
