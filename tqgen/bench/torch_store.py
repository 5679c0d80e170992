"""The store as one writes it in PyTorch: cast, norm, matrix product, look-up of codes, packing, write; one launch each.

It writes the bytes of an array of slots [slots, heads, slot bytes] in the order of the layout's fields, which is what
`block: aos` means, and as many bytes as any other arrangement has. Slots must not be negative. Needs torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from tqgen import codebooks
from tqgen.codecs.mse import CORRECTION_GUARD, NORM_GUARD
from tqgen.layout import Layout, Side
from tqgen.numerics import rotations
from tqgen.numerics.packing import order, unit
from tqgen.verify.trial import DTYPES

FP8 = {"e4m3": (torch.float8_e4m3fn, 448.0), "e5m2": (torch.float8_e5m2, 57344.0)}
Parts = dict[str, torch.Tensor]  # codes [.., D] int32 or bytes, others [.., count]


class TorchStore:
    """The store of a layout; `run_time` holds `<side>_rotation` and `<side>_center` where the layout takes them."""

    def __init__(self, layout: Layout, device: torch.device, run_time: Mapping[str, torch.Tensor]) -> None:
        self.fields = sorted(layout.fields, key=lambda field: field.address(0, 0, 1, 1))
        self.sides = [_Side(side, device, run_time) for side in layout.sides]
        self.row_bytes = sum(field.part.num_bytes for field in self.fields)

    def rows(self, vectors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The bytes of vectors [tokens, heads, head_dim] of each side: uint8 [tokens, heads, row_bytes]."""
        stored = {side.side.name: side.stored(vectors[side.side.name]) for side in self.sides}
        return torch.cat([stored[field.side][field.part.name] for field in self.fields], dim=-1)

    def __call__(self, vectors: Mapping[str, torch.Tensor], slots: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        """Write to `slots`, uint8 [num_slots, heads, row_bytes]."""
        slots.index_put_((slot_mapping,), self.rows(vectors))


class _Side:
    def __init__(self, side: Side, device: torch.device, run_time: Mapping[str, torch.Tensor]) -> None:
        self.side, self.parameters = side, side.parameters
        self.center = run_time.get(f"{side.name}_center")
        self.rotation = run_time.get(f"{side.name}_rotation")
        if side.rotation.is_hadamard:
            matrix = rotations.matrix(side.rotation, side.head_dim)
            self.rotation = torch.from_numpy(matrix).to(device=device, dtype=torch.float32)
        parameters: Any = side.parameters
        if side.codec.name == "mse":
            table = codebooks.load(parameters.codebook, parameters.bits)
            sigma = side.head_dim**-0.5
            self.edges, self.levels = (
                torch.tensor([number * sigma for number in numbers], dtype=torch.float32, device=device)
                for numbers in (table.edges, table.levels)
            )
        codes = side.part("codes")
        self.order = None
        if parameters.packing != "linear":
            self.order = torch.from_numpy(order(codes.count, codes.bits, parameters.packing)).to(device)
        self.per_unit = unit(codes.bits) if codes.bits <= 8 else 1
        self.shifts = torch.arange(self.per_unit, device=device, dtype=torch.int64) * codes.bits
        self.byte_shifts = torch.arange(codes.bits * self.per_unit // 8, device=device, dtype=torch.int64) * 8

    def stored(self, vectors: torch.Tensor) -> Parts:
        """The bytes of every part, uint8 [.., num_bytes]."""
        x = vectors.float()
        if self.center is not None:
            x = x - self.center
        parts: Parts = getattr(self, f"_{self.side.codec.name}")(x)
        found = {}
        for part in self.side.parts:
            numbers = parts[part.name]
            if part.name == "codes" and part.bits <= 8 and numbers.dtype != torch.uint8:
                found[part.name] = self._packed(numbers)[..., : part.num_bytes]
            else:
                found[part.name] = numbers.contiguous().view(torch.uint8)
        return found

    def _rotated(self, x: torch.Tensor) -> torch.Tensor:
        return x if self.rotation is None else x @ self.rotation

    def _mse(self, x: torch.Tensor) -> Parts:
        norm = x.norm(dim=-1, keepdim=True)
        direction = self._rotated(x / (norm + NORM_GUARD))
        codes = torch.bucketize(direction, self.edges, out_int32=True, right=self.parameters.tie == "up")
        if self.parameters.norm_correction == "store":
            norm = norm / (self.levels[codes].square().sum(-1, keepdim=True) + CORRECTION_GUARD).sqrt()
        return {"codes": codes, "norm": norm.to(DTYPES[self.parameters.norm.dtype])}

    def _uniform(self, x: torch.Tensor) -> Parts:
        parameters, bits = self.parameters, self.parameters.bits
        groups = self._rotated(x).unflatten(-1, (self.side.part("scale").count, -1))
        if parameters.symmetric:
            lowest, highest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
            zero = None
            scale = groups.abs().amax(-1) / highest
        else:
            lowest, highest = 0, 2**bits - 1
            zero = groups.amin(-1)
            scale = (groups.amax(-1) - zero) / highest
        scale = scale.clamp_min(parameters.scale_floor)
        parts = {"scale": scale.to(DTYPES[parameters.scale.dtype])}
        if zero is not None:
            parts["zero"] = zero.to(DTYPES[parameters.zero.dtype])
        if parameters.quantize_with == "stored":
            scale = parts["scale"].float().clamp_min(parameters.scale_floor)
            zero = None if zero is None else parts["zero"].float()
        steps = (groups if zero is None else groups - zero[..., None]) / scale[..., None]
        if parameters.rounding == "half_even":
            steps = steps.round()
        elif parameters.rounding == "half_up":
            steps = (steps + 0.5).floor()
        else:
            steps = steps.sign() * (steps.abs() + 0.5).floor()
        codes = steps.clamp(lowest, highest).to(torch.int32) & (2**bits - 1)
        return {**parts, "codes": codes.flatten(-2)}

    def _fp8(self, x: torch.Tensor) -> Parts:
        dtype, largest = FP8[self.parameters.format]
        x = self._rotated(x)
        parts: Parts = {}
        if self.side.has("scale"):
            groups = x.unflatten(-1, (self.side.part("scale").count, -1))
            scale = (groups.abs().amax(-1) / largest).clamp_min(self.parameters.scale_floor)
            parts["scale"] = scale.to(DTYPES[self.parameters.scale.dtype])
            if self.parameters.quantize_with == "stored":
                scale = parts["scale"].float().clamp_min(self.parameters.scale_floor)
            x = (groups / scale[..., None]).flatten(-2)
        parts["codes"] = x.clamp(-largest, largest).to(dtype).view(torch.uint8)
        return parts

    def _raw(self, x: torch.Tensor) -> Parts:
        return {"codes": self._rotated(x).to(DTYPES[self.parameters.dtype])}

    def _packed(self, codes: torch.Tensor) -> torch.Tensor:
        """Codes, int32 [.., D], as bytes."""
        if self.order is not None:
            codes = codes[..., self.order]
        bits = self.side.part("codes").bits
        if bits == 8:
            return codes.to(torch.uint8)
        if bits == 4 and codes.shape[-1] % 2 == 0:
            return (codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8)
        missing = -codes.shape[-1] % self.per_unit
        if missing:
            codes = torch.nn.functional.pad(codes, (0, missing))
        words = (codes.unflatten(-1, (-1, self.per_unit)).long() << self.shifts).sum(-1, keepdim=True)
        return (words >> self.byte_shifts).to(torch.uint8).flatten(-2)
