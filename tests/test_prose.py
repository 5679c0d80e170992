"""Comments and docstrings of generated modules stay within the line's length, and say what they said."""

import pytest

from tqgen import emit, manifest
from tqgen.compiler import compile_spec
from tqgen.prose import filled

BEFORE = '''\
# A comment of one line that is too long.
x = "code that is too long stays as it is, always"
# A paragraph whose first line fits,
# and whose second line does not fit any more;
# its third does.
#
#     a table   of      which    lines are no prose


def f(a, b):
    """One line of a docstring that is too long."""


def g(a, b):
    """Short.

    a: an argument whose line is longer than the others,
        and goes on.
    b: another one, which is as long as the first one.
    c: short
    - an item
    """
'''
AFTER = '''\
# A comment of one line that is too
# long.
x = "code that is too long stays as it is, always"
# A paragraph whose first line fits,
# and whose second line does not fit
# any more; its third does.
#
#     a table   of      which    lines are no prose


def f(a, b):
    """One line of a docstring that
    is too long."""


def g(a, b):
    """Short.

    a: an argument whose line is
        longer than the others, and
        goes on.
    b: another one, which is as long
        as the first one.
    c: short
    - an item
    """
'''


def test_paragraphs_are_filled_from_the_line_that_is_too_long():
    assert filled(BEFORE, 36) == AFTER
    assert filled(AFTER, 50) == AFTER


@pytest.mark.parametrize("name", [entry.name for entry in manifest.shipped()])
def test_no_line_is_too_long(name):
    source = compile_spec(manifest.locate(name)).source
    assert max(len(line) for line in source.splitlines()) <= emit.LINE_LENGTH
