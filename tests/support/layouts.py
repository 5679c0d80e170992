"""Layouts for tests, from the parts of a spec as YAML in flow style."""

from tqgen.layout import Layout
from tqgen.layout.resolve import resolve
from tqgen.spec import parse_spec

NONE = "{codec: none}"


def layout_of(key: str = NONE, value: str = NONE, *, block: str = "aos", head_dim: int = 128) -> Layout:
    """The layout of two sides, as `{codec: uniform, bits: 4}`, in a block, as `aos` or `{regions: [..]}`."""
    text = f"tqgen: 1\nname: test\nhead_dim: {head_dim}\nkey: {key}\nvalue: {value}\nblock: {block}\n"
    return resolve(parse_spec(text, "test.yaml"))
