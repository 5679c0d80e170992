"""The targets that kernels are compiled for, and what they have."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024


@dataclass(frozen=True)
class Target:
    """A GPU architecture. `shared_bytes` is the largest shared memory of one program, by the vendor's tables."""

    name: str
    backend: str  # cuda | hip
    architecture: int | str
    warp_size: int
    shared_bytes: int
    hardware_fp8: bool  # converts fp32 to OCP fp8 in one rounding
    ptx_capability: int  # compute capability whose PTX kernels may use; 0 where there is no PTX

    @property
    def is_nvidia(self) -> bool:
        return self.backend == "cuda"


TARGETS = {
    target.name: target
    for target in (
        Target("sm_80", "cuda", 80, 32, 163 * KIB, hardware_fp8=False, ptx_capability=80),
        Target("sm_90", "cuda", 90, 32, 227 * KIB, hardware_fp8=True, ptx_capability=90),
        Target("sm_100", "cuda", 100, 32, 227 * KIB, hardware_fp8=True, ptx_capability=100),
        Target("gfx942", "hip", "gfx942", 64, 64 * KIB, hardware_fp8=False, ptx_capability=0),
    )
}
