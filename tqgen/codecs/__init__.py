"""The codecs, found by the presence of their files.

Every module of this folder but `base` and those that start with an underscore is a codec and defines `CODEC`. Importing
this package imports no numpy: what the arithmetic needs is imported where it is used.
"""

from __future__ import annotations

import importlib
import pkgutil

from tqgen.codecs.base import Codec


def _discover() -> dict[str, Codec]:
    found = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        if module.name == "base" or module.name.startswith("_"):
            continue
        codec: Codec = importlib.import_module(f"{__name__}.{module.name}").CODEC
        for key, info in codec.Parameters.model_fields.items():
            if not info.description:  # which the spec reference, the schema and `tqgen new` print
                raise TypeError(f"codec {codec.name}: the key `{key}` has no description")
        found[codec.name] = codec
    return found


CODECS: dict[str, Codec] = _discover()
