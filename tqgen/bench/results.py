"""What came of measuring a case, and the ratios that follow from it. Times are in microseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tqgen.bench.cases import Case

# What kernels are compared with.
UNFUSED = "unfused torch"
BF16_WRITE = "bf16 cache write"
BF16_ATTENTION = "bf16 attention"


@dataclass(frozen=True)
class Measurement:
    """A case of a layout on one GPU.

    `microseconds` is the median time of a launch in a CUDA graph; where `cold`, its inputs are not in the L2 cache.
    `with_launch` is the time of one call among many from Python, where it was measured. `against` holds the times of
    other ways to the same end, by name.
    """

    spec: str
    case: Case
    microseconds: float
    moved_bytes: int
    copy_bandwidth: float  # bytes a second, read and written
    cold: bool
    with_launch: float | None = None
    against: Mapping[str, float] = field(default_factory=dict)

    @property
    def floor(self) -> float:
        """The time in which the machine copies as many bytes."""
        return self.moved_bytes / self.copy_bandwidth * 1e6

    @property
    def share(self) -> float:
        """Of the copy bandwidth."""
        return self.floor / self.microseconds

    def ratio(self, name: str) -> float | None:
        """How many times faster than another way; None where that was not measured."""
        return self.against[name] / self.microseconds if name in self.against else None

    def to_json(self) -> dict[str, Any]:
        return {
            "spec": self.spec,
            **self.case.to_json(),
            "microseconds": round(self.microseconds, 3),
            "with_launch": None if self.with_launch is None else round(self.with_launch, 2),
            "moved_bytes": self.moved_bytes,
            "floor": round(self.floor, 3),
            "share_of_copy_bandwidth": round(self.share, 4),
            "cold": self.cold,
            "against": {name: round(time, 3) for name, time in self.against.items()},
            "times_faster": {name: round(time / self.microseconds, 3) for name, time in self.against.items()},
        }

    @staticmethod
    def from_json(data: Mapping[str, Any], copy_bandwidth: float) -> Measurement:
        """The measurement of which `to_json` gave this."""
        names = ("kernel", "tokens", "batch", "length", "space")
        return Measurement(
            spec=data["spec"],
            case=Case(**{name: data[name] for name in names if name in data}),
            microseconds=data["microseconds"],
            moved_bytes=data["moved_bytes"],
            copy_bandwidth=copy_bandwidth,
            cold=data["cold"],
            with_launch=data["with_launch"],
            against=data["against"],
        )


@dataclass(frozen=True)
class Machine:
    """Where a run took place."""

    device: str
    versions: Mapping[str, str]
    copy_bandwidth: float  # bytes a second, read and written, measured in the same run
    l2_bytes: int

    def to_json(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "versions": dict(self.versions),
            "copy_bandwidth": round(self.copy_bandwidth),
            "l2_bytes": self.l2_bytes,
        }

    def describe(self) -> str:
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return f"{self.device} ({versions}), copy bandwidth {self.copy_bandwidth / 1e12:.2f} TB/s"
