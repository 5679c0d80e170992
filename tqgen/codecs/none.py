"""Codec `none`: this side is not stored."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tqgen.codecs.base import Codec, SideParameters
from tqgen.layout import Part


class NoneParameters(SideParameters):
    """A side that the cache does not hold."""

    codec: Literal["none"] = Field(description="this side is not stored")


class NoneCodec(Codec):
    """No parts."""

    name = "none"
    Parameters = NoneParameters

    def parts(self, parameters: NoneParameters, head_dim: int) -> tuple[Part, ...]:
        return ()


CODEC = NoneCodec()
