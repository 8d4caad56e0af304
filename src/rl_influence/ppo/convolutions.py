"""Small images through convolutions by hand, in numpy: a part of the accelerator in `kernels`."""

from __future__ import annotations

import math

import numpy as np
from torch import nn


def is_convolutional(features: nn.Module) -> bool:
    """Whether `Convolutions` computes what this module does, as far as types and shapes tell."""
    layers = [*features] if type(features) is nn.Sequential else []
    convolutions, rest = layers[:-3:2], layers[-3:]
    return (
        len(layers) > 3
        and [type(layer) for layer in layers[1:-3:2]] == [nn.ReLU] * len(convolutions)
        and [type(layer) for layer in rest] == [nn.Flatten, nn.Linear, nn.ReLU]
        and (rest[0].start_dim, rest[0].end_dim) == (1, -1)
        and rest[1].bias is not None
        and all(map(_is_small, convolutions))
    )


def _is_small(layer: nn.Module) -> bool:
    """A convolution without stride, padding and the like; those of larger images are torch's business."""
    return (
        type(layer) is nn.Conv2d
        and layer.bias is not None
        and layer.padding_mode == "zeros"
        and ((layer.stride, layer.padding, layer.dilation, layer.groups) == ((1, 1), (0, 0), (1, 1), 1))
    )


class Convolutions:
    """Small images through convolutions with ReLU, and one linear layer with ReLU; channels last throughout."""

    def __init__(self, features: nn.Sequential, channels_last: bool, weights: dict[str, np.ndarray]):
        self.channels_last = channels_last
        self.names = [f"features.{i}" for i in range(len(features)) if f"features.{i}.weight" in weights]
        self.layers = [(weights[f"{name}.weight"], weights[f"{name}.bias"]) for name in self.names]
        self.sizes = [weight.shape[2:] for weight, _ in self.layers[:-1]]

    def encode(self, images: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """The first layer's patches, which do not change while it trains."""
        scaled = images.astype(dtype) / 255
        return _patches(scaled if self.channels_last else scaled.transpose(0, 2, 3, 1), self.sizes[0])

    def forward(self, patches: np.ndarray) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
        """Features (n, n_features), and each layer's inputs (rows, inputs) and activations."""
        tape = []
        for depth, (weight, bias) in enumerate(self.layers[:-1]):
            patches = _patches(tape[-1][1], self.sizes[depth]) if depth else patches
            rows = patches.reshape(-1, patches.shape[-1])
            tape.append((rows, _relu(rows @ _matrix(weight).T, bias).reshape(*patches.shape[:3], len(bias))))
        weight, bias = self.layers[-1]
        flat = tape[-1][1].transpose(0, 3, 1, 2).reshape(len(patches), len(weight.T))  # in torch's order
        return _relu(flat @ weight.T, bias), [*tape, (flat, None)]

    def backward(
        self, tape: list[tuple], features: np.ndarray, by_features: np.ndarray, out: dict[str, np.ndarray]
    ) -> None:
        """Writes the gradients to `out`, from the derivative by the features."""
        by_output = by_features * (features > 0)
        for depth in range(len(self.layers) - 1, -1, -1):
            name, weight, rows = self.names[depth], self.layers[depth][0], tape[depth][0]
            by_weight = by_output.T @ rows
            if weight.ndim == 4:
                by_weight = by_weight.reshape(len(weight), *weight.shape[2:], -1).transpose(0, 3, 1, 2)
            out[f"{name}.weight"][...] = by_weight
            by_output.sum(0, out=out[f"{name}.bias"])
            if depth:
                activations = tape[depth - 1][1]
                n, height, width, channels = activations.shape
                if depth == len(self.layers) - 1:
                    by_input = (by_output @ weight).reshape(n, channels, height, width).transpose(0, 2, 3, 1)
                else:
                    by_input = _fold(by_output @ _matrix(weight), activations.shape, self.sizes[depth])
                by_output = (by_input * (activations > 0)).reshape(-1, channels)

    def tangent(self, tape: list[tuple], features: np.ndarray, direction: dict[str, np.ndarray]) -> np.ndarray:
        """Derivative of the features along a direction of the parameters; names that are missing stand still."""
        moved = np.zeros(())
        for depth, (name, (weight, _)) in enumerate(zip(self.names, self.layers, strict=True)):
            rows, activations = tape[depth]
            last = activations is None
            change = np.zeros((len(rows), len(weight)), rows.dtype)
            if depth:
                below = moved.transpose(0, 3, 1, 2) if last else _patches(moved, self.sizes[depth])
                change += below.reshape(rows.shape) @ _matrix(weight).T
            if f"{name}.weight" in direction:
                change += rows @ _matrix(direction[f"{name}.weight"]).T
            change += direction.get(f"{name}.bias", 0)
            reached = features if last else activations
            moved = change.reshape(reached.shape) * (reached > 0)
        return moved


def _relu(outputs: np.ndarray, bias: np.ndarray) -> np.ndarray:
    outputs += bias
    return np.maximum(outputs, 0, out=outputs)


def _matrix(weight: np.ndarray) -> np.ndarray:
    """A layer's weight as a matrix (outputs, inputs), its inputs in the order of `_patches`."""
    return weight if weight.ndim == 2 else weight.transpose(0, 2, 3, 1).reshape(len(weight), -1)


def _patches(images: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Images (n, height, width, channels) -> what a convolution sees at each place, (n, ..., ..., area * channels)."""
    windows = np.lib.stride_tricks.sliding_window_view(images, size, axis=(1, 2)).transpose(0, 1, 2, 4, 5, 3)
    return windows.reshape(*windows.shape[:3], math.prod(windows.shape[3:]))


def _fold(by_patches: np.ndarray, shape: tuple[int, ...], size: tuple[int, int]) -> np.ndarray:
    """Derivative by the images of `shape` from that by their patches."""
    n, height, width, channels = shape
    (h, w), by_images = size, np.zeros(shape, by_patches.dtype)
    by_patches = by_patches.reshape(n, height - h + 1, width - w + 1, h, w, channels)
    for i in range(h):
        for j in range(w):
            by_images[:, i : height - h + 1 + i, j : width - w + 1 + j] += by_patches[:, :, :, i, j]
    return by_images
