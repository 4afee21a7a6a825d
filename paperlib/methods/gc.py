"""Gradient centralization in federated learning: LocalGC, GlobalGC and GC-Fed.

Seo et al. 2025, "GC-Fed: Gradient Centralized Federated Learning with Partial Client Participation", Algorithm 1.
"""

from torch import Tensor

from paperlib.federated.context import Batch, Context
from paperlib.federated.method import FedAvg, State
from paperlib.federated.uploads import Totals
from paperlib.options import option

# Table 8: one mean per ... -> the dimensions of a convolution weight [C_out, C_in, K_h, K_w] it is taken over.
MEANS = {"Cout": (1, 2, 3), "Cout*Cin": (2, 3), "Cout*Kw*Kh": (1,), "Cout*Cin*Kh": (2,), "Cin*Kw*Kh": (0,)}
# The stage at which the paper's classifier begins, where it is not the last layer (section 4.1).
CLASSIFIER = {"vgg11": "fc1"}


class Centralized(FedAvg):
    """The projection P onto the hyperplane orthogonal to the all-ones vector, per output channel.

    mean: which one is subtracted from a convolution weight (Table 8); a linear weight loses its mean per output.
    vector_params: "center" subtracts from a bias or norm parameter the mean of all its entries, as in the runs the
        paper reports; "skip" leaves it alone, as in the paper's text.
    """

    mean: str = option("Cout", choices=tuple(MEANS))
    vector_params: str = option("center", choices=("center", "skip"))

    def center(self, vector: Tensor, tensors: int | None = None) -> Tensor:
        """P vector for the first ``tensors`` parameter tensors (default all), in place.  [P] -> [P]"""
        for value in list(self.net.split(vector).values())[:tensors]:
            if value.ndim > 1:
                value -= value.mean(dim=MEANS[self.mean] if value.ndim == 4 else 1, keepdim=True)
            elif value.ndim and self.vector_params == "center":  # a scalar would be left with nothing
                value -= value.mean()
        return vector


class LocalGC(Centralized):
    """Every local gradient is centralized up to the border (Eq. 2), before weight decay and momentum.

    border: "all"; "classifier", the paper's border: the last linear layer, VGG11's three; the name of the first stage
        that is left out; or lambda in [0, 1], the share of parameter tensors that is centralized.
    """

    border: str | float = option("all", at_least=0, at_most=1)

    def setup(self, context: Context) -> FedAvg:
        super().setup(context)
        self.local_tensors = self._tensors_before_border()
        return self

    def gradient(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        return self.center(super().gradient(theta, batch, shared, own), self.local_tensors)

    def _tensors_before_border(self) -> int:
        tensors = self.net.tensors
        if self.border == "all":
            return len(tensors)
        if isinstance(self.border, str):
            stage = CLASSIFIER.get(self.net.name, "classifier") if self.border == "classifier" else self.border
            return sum(tensor.stage < self.net.index(stage) for tensor in tensors)
        return int(len(tensors) * self.border + 1e-9)


class GlobalGC(Centralized):
    """The averaged update is centralized once, by the server (Definition 2)."""

    def aggregate(self, server: State, theta: Tensor, totals: Totals) -> tuple[Tensor, State]:
        new, server = super().aggregate(server, theta, totals)
        return theta + self.center(new - theta), server


class GCFed(LocalGC, GlobalGC):
    """LocalGC on the feature layers, then GlobalGC, which thereby acts on the classifier (Algorithm 1)."""

    border: str | float = option("classifier", at_least=0, at_most=1)
