"""The golden vectors as objects: what was encoded, by which layout, and what came out."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from support.layouts import layout_of
from tqgen.layout import Layout
from tqgen.numerics import floats

FOLDER = Path(__file__).parents[1] / "golden"
TURBOQUANT = ("turboquant_d128_bf16", "turboquant_d128_fp16", "turboquant_d64_real_bf16")
DTYPES = {"bfloat16": "bf16", "float16": "fp16"}


@cache
def arrays(file: str) -> dict[str, np.ndarray]:
    with np.load(FOLDER / f"{file}.npz") as loaded:
        return dict(loaded)


def names(file: str) -> list[str]:
    """The cases of a file."""
    return sorted({name.split("/")[0] for name in arrays(file)})


@dataclass(frozen=True)
class Case:
    """One case; `case["cache"]` is the array of a part, `numbers` decodes bit patterns."""

    file: str
    name: str
    meta: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, part: str) -> np.ndarray:
        return arrays(self.file)[f"{self.name}/{part}"]

    @property
    def dtype(self) -> str:
        return DTYPES[self.meta["dtype"]]

    def numbers(self, part: str, dtype: str | None = None) -> np.ndarray:
        """The float64 numbers of bit patterns of `dtype`, by default the case's."""
        return floats.from_bits(self[part], dtype or self.dtype)

    @property
    def key(self) -> str:
        return side_text(self.meta.get("key", "none"), self.meta["norm_correction"], "hadamard")

    @property
    def value(self) -> str:
        return side_text(self.meta["value"], self.meta["norm_correction"], "matrix")

    def layout(self) -> Layout:
        """The layout that wrote the case, of the slot size that the case names."""
        block = self.meta["arrangement"]
        if reserved := self.meta.get("key_packed_size"):
            fields = f"[{{reserved: {reserved}}}, value.codes, value.norm]"
            region = f"{{name: data, order: [token, head, field], fields: {fields}}}"
            block = f"{{regions: [{region}], slot_bytes: {self.meta['slot_bytes']}}}"
        layout = layout_of(self.key, self.value, block=block, head_dim=int(self.meta["head_dim"]))
        assert layout.slot_bytes == int(self.meta["slot_bytes"])
        return layout


def side_text(codec: str, norm_correction: str, rotation: str) -> str:
    """A side of a spec from its short name: `fp8_e4m3`, `mse3`, `uniform4`, `none`."""
    if codec == "none":
        return "{codec: none}"
    if codec == "fp8_e4m3":
        return "{codec: fp8}"
    name, bits = codec[:-1], codec[-1]
    if name == "uniform":
        return f"{{codec: uniform, bits: {bits}}}"
    return f"{{codec: mse, bits: {bits}, codebook: vllm, rotation: {rotation}, norm_correction: {norm_correction}}}"


def case(file: str, name: str) -> Case:
    meta = dict(pair.split("=") for pair in str(arrays(file)[f"{name}/meta"]).split())
    return Case(file, name, meta)
