"""Numbers in a generated module that are not plain say what they are, and what they say is so."""

import ast
import contextlib
import io
import json
import math
import re
import struct
import tokenize
import warnings

import pytest

from tqgen import emit, manifest, resources
from tqgen.layout.resolve import resolve
from tqgen.lower import lower
from tqgen.spec import parse_spec

GENERATED = resources.PACKAGE.parent / "generated"
SHIPPED = [entry.name for entry in manifest.shipped()]
# Sizes, strides, bits and counts follow from the layout, up to so much.
PLAIN = {0.0, 0.5, 1.0, 2.0}
LARGEST_PLAIN = 1024
FORMULA = re.compile(r"(?:sqrt|log2|ln|[\d(-])[\w.()*/+ -]*")
NAMES = {"sqrt": math.sqrt, "log2": math.log2, "ln": math.log, "e": math.e, "__builtins__": {}}


def side(codec, **parameters):
    return {"codec": codec, **parameters}


# What the shipped specs have not: other widths, groups, formats, symmetric and saturated numbers, other dimensions.
OTHERS = [
    (128, side("mse", bits=2, rotation="hadamard", norm_correction="load"), side("mse", bits=4, codebook="lloyd_max")),
    (64, side("mse", bits=1, codebook="lloyd_max"), side("fp8", format="e5m2", scale={"dtype": "fp16"}, group=16)),
    (100, side("mse", bits=3, norm_correction="store"), side("uniform", bits=5, group=4, rounding="half_even")),
    (
        128,
        side("mse", bits=6, codebook="lloyd_max", rotation="matrix"),
        side("raw", dtype="fp16", non_finite="saturate"),
    ),
    (96, side("uniform", bits=4, symmetric=True, quantize_with="stored"), side("raw", dtype="bf16")),
    (128, side("uniform", bits=3, symmetric=True, rounding="half_away"), side("uniform", bits=8)),
    (256, side("fp8", format="e4m3", non_finite="saturate"), side("uniform", bits=2, non_finite="saturate")),
    (128, side("mse", bits=4, rotation="signed_hadamard", non_finite="saturate"), side("uniform", bits=1)),
    (
        128,
        side("uniform", bits=4, non_finite="saturate", quantize_with="stored"),
        side("mse", bits=4, rotation="matrix"),
    ),
    (64, side("uniform", bits=6, zero={"dtype": "bf16"}), side("fp8", scale={"dtype": "fp32"}, quantize_with="stored")),
]


def value_of(text):
    """The number that a formula is, or None where it is none."""
    while text:
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return abs(float(eval(text, NAMES)))
        text = text[:-1].rstrip()
    return None


def same(one, other):
    return one == other or abs(one - other) <= 1e-6 * max(one, other)


def numbers_of(text):
    """What a text says: the numbers and formulas in it."""
    found = []
    for start in range(len(text)):
        if (start == 0 or not (text[start - 1].isalnum() or text[start - 1] in "._")) and (
            match := FORMULA.match(text, start)
        ):
            found.append(value_of(match[0]))
    return [one for one in found if one is not None]


def is_plain(text):
    if text.lower().startswith("0x"):
        return set(text[2:].lower()) == {"f"}
    return int(text) <= LARGEST_PLAIN if text.isdigit() else float(text) in PLAIN


def statements(text):
    """First and last line of every simple statement, and the docstring of the function that it is in."""
    found = []

    def walk(node, docstring):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            docstring = ast.get_docstring(node) or ""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt) and not hasattr(child, "body"):
                found.append((child.lineno, child.end_lineno, docstring))
            elif isinstance(child, (ast.If, ast.While)):
                found.append((child.lineno, child.test.end_lineno, docstring))
            walk(child, docstring)

    walk(ast.parse(text), "")
    return found


def unsaid(text):
    """Lines whose numbers nobody explains, and comments that begin with a formula of none of their line's numbers."""
    lines = text.split("\n")
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    comments = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    numbers = {}
    for token in tokens:
        if token.type == tokenize.NUMBER:
            numbers.setdefault(token.start[0], []).append(token.string)
    found = []
    for first, last, docstring in statements(text):
        if lines[first - 1].lstrip().startswith(("LAYOUT", '"""')):
            continue
        above = first - 1
        while lines[above - 1].lstrip().startswith("#"):
            above -= 1
        has_comment = above < first - 1
        in_tuple = last > first + 2 and any(n in comments for n in range(first + 1, last))  # each line has its own
        given = [(n, number) for n in range(first, last + 1) for number in numbers.get(n, ())]
        for line, number in given:
            said = line in comments if in_tuple else any(n in comments for n in range(first, last + 1)) or has_comment
            value = abs(float(ast.literal_eval(number)))
            named = re.search(rf"\b\w+=-?{re.escape(number)}\b", lines[line - 1])
            if (
                not is_plain(number)
                and not said
                and not named
                and not any(same(value, one) for one in numbers_of(docstring))
            ):
                found.append(f"{line}: {number} in `{lines[line - 1].strip()}`")
        for line in range(first, last + 1):
            formula = re.match(r"(?:-?sqrt|-?ln|log2|-?\d)[^:;,]*", comments.get(line, ""))
            if formula and (value := value_of(formula[0])) is not None:
                here = [abs(float(ast.literal_eval(number))) for n, number in given if n == line]
                patterns = [
                    abs(struct.unpack("<e", struct.pack("<H", int(number) & 0xFFFF))[0])
                    for number in map(int, filter(lambda one: one < 2**32, here))
                ]
                if not any(same(value, one) for one in here + patterns):
                    found.append(f"{line}: `{formula[0]}` is none of `{lines[line - 1].strip()}`")
    return found


def unsaid_of_assembly(text):
    """Functions whose assembly has selectors, masks or bits of numbers of which their docstring says nothing."""
    told = {"prmt": "`prmt`", "lop3": "`lop3`", "dp4a": "`dp4a`", "and.b32": "Masks", "0f3": "fp32 bits"}
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            docstring, code = ast.get_docstring(node), " ".join(map(ast.unparse, node.body[1:]))
            if "inline_asm_elementwise" not in code:
                continue
            found += [f"{node.name}: {sign}" for sign, word in told.items() if sign in code and word not in docstring]
    return found


@pytest.mark.parametrize("name", SHIPPED)
def test_numbers_of_shipped_modules(name):
    text = (GENERATED / f"{name}.py").read_text(encoding="utf-8")
    found = unsaid(text) + unsaid_of_assembly(text)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("number", range(len(OTHERS)))
def test_numbers_of_other_modules(number):
    head_dim, key, value = OTHERS[number]
    data = {"tqgen": 1, "name": "saying", "head_dim": head_dim, "key": key, "value": value}
    layout = resolve(parse_spec(json.dumps(data), "saying.yaml"))
    text = emit.emit(lower(layout, "saying.yaml"))
    found = unsaid(text) + unsaid_of_assembly(text)
    assert not found, "\n".join(found)
