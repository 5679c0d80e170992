"""tqgen: a compiler for the memory layout of quantised KV caches.

A spec in YAML says how keys and values are encoded and where every byte of a cache block stands; tqgen turns it into
one self-contained module of Triton kernels, and checks that module against numpy.
"""

from tqgen.version import __version__

__all__ = ["__version__"]
