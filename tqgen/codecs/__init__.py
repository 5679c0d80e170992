"""The codecs, found by the presence of their files.

Every module of this folder but `base` and those that start with an underscore is a codec and defines `CODEC`. Importing
this package imports no numpy: what the arithmetic needs is imported where it is used.
"""

from __future__ import annotations

import importlib
import pkgutil
import traceback
from pathlib import Path

from tqgen.codecs.base import Codec, SideParameters
from tqgen.diagnostics import Diagnostic, Place, SpecError


class CodecFault(SpecError):
    """A codec's file that cannot be imported, or that gives no codec."""

    def __init__(self, name: str, message: str, place: Place | None = None, help: str = "") -> None:
        place = place or Place(f"tqgen/codecs/{name}.py")
        super().__init__([Diagnostic("TQ6001", message, place, help=help)])


def _discover() -> dict[str, Codec]:
    """The codecs by name; CodecFault where one of their files is at fault."""
    found = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        if module.name == "base" or module.name.startswith("_"):
            continue
        try:
            imported = importlib.import_module(f"{__name__}.{module.name}")
        except Exception as error:
            raise _not_imported(module.name, error) from error
        codec = getattr(imported, "CODEC", None)
        if not isinstance(codec, Codec):
            message = "the file defines no `CODEC`" if codec is None else "`CODEC` is no codec"
            raise CodecFault(module.name, message, help="end it with `CODEC = MyCodec()`, of a class that is a `Codec`")
        _check(module.name, codec)
        found[codec.name] = codec
    return found


def _check(file: str, codec: Codec) -> None:
    parameters = getattr(codec, "Parameters", None)
    if not (isinstance(parameters, type) and issubclass(parameters, SideParameters)):
        raise CodecFault(file, "the codec has no `Parameters`", help="give its class a subclass of `SideParameters`")
    if getattr(codec, "name", None) != file:
        message = f"the codec is called `{getattr(codec, 'name', '')}`, and its file `{file}.py`"
        raise CodecFault(file, message, help=f'write `name = "{file}"` in its class')
    for key, info in parameters.model_fields.items():
        if not info.description:  # which the spec reference, the schema and `tqgen new` print
            message = f"the key `{key}` of codec `{codec.name}` has no description"
            raise CodecFault(file, message, help=f'write `{key}: ... = Field(description="...")`')


def _not_imported(name: str, error: Exception) -> CodecFault:
    """What to say of an exception at import, with the last line of the codec's own file that was reached."""
    message = f"the codec's file cannot be imported: {type(error).__name__}: {error}"
    file = f"tqgen/codecs/{name}.py"
    if isinstance(error, SyntaxError) and Path(error.filename or "").name == f"{name}.py":
        text = (error.text or "").rstrip()
        message = f"the codec's file is no Python: {error.msg}"
        return CodecFault(name, message, Place(file, error.lineno or 1, error.offset or 1, 1, text))
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).name == f"{name}.py" and frame.line:
            return CodecFault(name, message, Place(file, frame.lineno or 1, 1, len(frame.line), frame.line))
    return CodecFault(name, message)


CODECS: dict[str, Codec] = _discover()
