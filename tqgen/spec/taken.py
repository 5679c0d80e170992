"""Names that a generated module cannot have: where its folder is on Python's path it would hide what others import."""

from __future__ import annotations

import sys

# What the standard library of another Python from 3.10 on has and this one may lack, so that a spec that is legal here
# is legal everywhere.
# fmt: off
OF_OTHER_PYTHONS = frozenset(
    [
        "aifc", "annotationlib", "asynchat", "asyncore", "audioop", "binhex", "cgi", "cgitb", "chunk",
        "compression", "crypt", "distutils", "imghdr", "imp", "lib2to3", "mailcap", "msilib", "nis", "nntplib",
        "ossaudiodev", "pipes", "smtpd", "sndhdr", "spwd", "sunau", "telnetlib", "tomllib", "uu", "xdrlib",
    ]
)
# torch, triton and what they import or need, and tqgen and what it needs
OF_PACKAGES = frozenset(
    [
        "black", "cuda", "filelock", "fsspec", "functorch", "jinja2", "markupsafe", "mpmath", "networkx",
        "numpy", "nvidia", "packaging", "pydantic", "pydantic_core", "ruamel", "setuptools", "sympy", "torch",
        "torchgen", "tqgen", "triton", "typer", "typing_extensions",
    ]
)
# fmt: on
TAKEN = sys.stdlib_module_names | OF_OTHER_PYTHONS | OF_PACKAGES


def is_taken(name: str) -> bool:
    """Whether a module of this name would hide another, or be one that Python itself looks for."""
    return name in TAKEN or name.startswith("__")


def free_name(name: str) -> str:
    """A name that is not taken, for one that is."""
    return f"{name.strip('_') or 'my'}_cache"
