"""Convolutions of a stack of clients, forward and backward: grouped convolution against a batched product of matrices.

    python benchmarks/stacked_layers.py

Time per client over that of one client after the other, on the GPU if there is one. The engine uses what wins.
"""

import statistics

import torch
from gpu import seconds
from torch import Tensor, nn

from paperlib.networks.layers import Conv2d

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CLIENTS, BATCH, REPETITIONS = (40 if DEVICE == "cuda" else 5), 50, 5
LAYERS = {  # inputs, outputs, kernel, size of the image
    "CNN, first": (3, 32, 5, 32),
    "CNN, second": (32, 64, 5, 16),
    "ResNet-18, stage 1": (64, 64, 3, 32),
    "ResNet-18, stage 4": (512, 512, 3, 4),
}


class Product(Conv2d):
    """The product of matrices on every device."""

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x)


def gradients(layer: nn.Module, w: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    """Of the sum of squares of the output, by weights and images."""

    def loss(w: Tensor, x: Tensor) -> Tensor:
        return torch.func.functional_call(layer, {"weight": w}, (x,)).square().sum()

    return torch.func.grad(loss, argnums=(0, 1))(w, x)


def main() -> None:
    torch.set_num_threads(1)
    for name, (inputs, outputs, kernel, size) in LAYERS.items():
        plain = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False, device=DEVICE)
        ours = Product(inputs, outputs, kernel, padding=kernel // 2, bias=False, device=DEVICE)
        w = torch.randn(CLIENTS, *plain.weight.shape, device=DEVICE)
        x = torch.randn(CLIENTS, BATCH, inputs, size, size, device=DEVICE)

        def grouped(plain: nn.Module = plain, w: Tensor = w, x: Tensor = x) -> None:
            torch.vmap(lambda w, x: gradients(plain, w, x))(w, x)

        def product(ours: nn.Module = ours, w: Tensor = w, x: Tensor = x) -> None:
            torch.vmap(lambda w, x: gradients(ours, w, x))(w, x)

        def single(plain: nn.Module = plain, w: Tensor = w, x: Tensor = x) -> None:
            for one, images in zip(w, x, strict=True):
                gradients(plain, one, images)

        works = {"single": single, "grouped": grouped, "product": product}
        times = {key: [seconds(work) for _ in range(REPETITIONS + 1)][1:] for key, work in works.items()}
        median = {key: statistics.median(values) for key, values in times.items()}
        print(
            f"{name:20} grouped {median['grouped'] / median['single']:.2f}"
            f"  product {median['product'] / median['single']:.2f}   ({DEVICE}, {CLIENTS} clients)"
        )


if __name__ == "__main__":
    main()
