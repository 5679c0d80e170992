"""The version of the compiler, as generated files and `tqgen --version` state it."""

__version__ = "0.1.0"
