"""Tensors whose memory does not hold their numbers, which every launcher must refuse."""

from __future__ import annotations

import warnings

import torch


def without_numbers(tensor: torch.Tensor) -> list[tuple[str, type[Exception], torch.Tensor]]:
    """Tensors like this one whose memory does not hold their numbers; kernels would read what lies there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nested tensors are a prototype
        nested = torch.nested.as_nested_tensor([tensor[:1], tensor])
    zeros = torch._efficientzerotensor(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    return [
        ("a view that torch negates", ValueError, torch._neg_view(tensor)),
        ("a sparse tensor", TypeError, tensor.to_sparse()),
        ("a nested tensor", TypeError, nested),
        ("a tensor that torch takes for zeros", TypeError, zeros),
    ]
