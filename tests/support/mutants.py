"""Faults, made one at a time and by rule: in the plan of a module, and in the text of one.

A mutant is a module's text that differs from the right one by one fault of a kind that people make: a number off by
one, a shift, mask, offset or stride, a comparison that is wrong for a tie, a guard that is missing, two operations
taken for each other. Its name says where the fault is in words that other changes of a module leave alone.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import dataclasses
import functools
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from tqgen import emit, reached
from tqgen.plan import ModulePlan
from tqgen.verify import LAUNCHERS

# The statements that a fault changes, by what they define: each as it is run, right and wrong.
Change = frozenset[tuple[str, str | None, str | None]]


@dataclass(frozen=True)
class Mutant:
    """A faulty module. `where` is a leaf of the plan or a function of the text, `what` the fault.

    `change` is what the fault comes to: modules that have equal statements have the same faults in them.
    """

    where: str
    what: str
    pieces: tuple[str, ...]
    change: Change

    @property
    def name(self) -> str:
        return f"{self.where}: {self.what}"

    @property
    def text(self) -> str:
        return "\n\n".join(self.pieces)


def kind(name: str) -> str:
    """The name of a mutant without the numbers of its statement: one fault of a template, whatever the layout."""
    where, _, fault = name.partition(": ")
    what, found, statement = fault.partition(" in `")
    if where.startswith("plan."):
        return re.sub(r"\[\d+\]", "[#]", name)
    if not re.fullmatch(r"-?[\d.e-]+ -> -?[\d.e-]+", what):
        what = re.sub(r"\d+", "#", what)
    return f"{where}: {what}{found}" + re.sub(r"\d+", "#", statement)


# faults of a plan

# Leaves that only people read, and names that a wrong letter of makes a module that does not load.
WORDS = {"name", "title", "region", "comment", "doc", "spec_file", "version", "layout_id", "byte_map", "facts"}
WORDS |= {"reading", "why", "codec", "macros", "text", "absent", "raw", "constraints"}
# What is fast, not what is right.
SPEED = {"warps", "stages", "programs_per_processor", "merge_many_rows", "tile", "tile_many_rows", "rows"}
SPEED |= {"address_modulus", "store_large_rows", "prefetch", "invariant_split", "query_chunk"}
SPEED |= {"smallest_exponent", "largest_exponent", "query_up", "weights_up"}
SPEED |= {"most_waves", "merge_splits", "invariant_merge", "steps_of_a_program", "programs_of_more_rows"}
SPEED |= {"values_ahead", "interpreted_rows", "is_kept"}


def plan_mutants(plan: ModulePlan, wanted: Collection[str] | None = None) -> Iterator[Mutant]:
    """A mutant for every fault of every leaf of a plan that changes the module; equal texts once.

    With `wanted` those of these names alone.
    """
    right = emit.draft(plan)
    seen = {right}
    for path, value, put, values in _leaves(plan, ""):
        for what, changed in _assembly_faults(value) if path.endswith(".assembly") else _faults(value):
            is_wanted = wanted is None or f"plan.{path}: {what}" in wanted
            if not is_wanted or (isinstance(value, str) and _same_index(value, changed, values)):
                continue
            try:
                text = emit.draft(put(changed))
            except Exception:  # no module comes of it
                continue
            if text not in seen:
                seen.add(text)
                if change := _change(right, text):
                    yield Mutant(f"plan.{path}", what, (text,), change)


Put = Callable[[Any], Any]


def _leaves(
    value: Any, path: str, put: Put = lambda changed: changed, values: int = 0
) -> Iterator[tuple[str, Any, Put, int]]:
    """Path and value of each leaf, what puts another value in its place and gives the whole, and its tile's size."""
    name = re.sub(r"\[\d+\]$", "", path).rpartition(".")[2]
    if name in WORDS | SPEED:
        return
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):

            def put_field(changed: Any, field: str = field.name) -> Any:
                return put(dataclasses.replace(value, **{field: changed}))

            size = getattr(value, "size", values)
            yield from _leaves(getattr(value, field.name), f"{path}.{field.name}".lstrip("."), put_field, size)
    elif isinstance(value, tuple) and len(value) < 9:
        for index, item in enumerate(value):

            def put_item(changed: Any, index: int = index) -> Any:
                return put((*value[:index], changed, *value[index + 1 :]))

            yield from _leaves(item, f"{path}[{index}]", put_item, values)
    else:
        yield path, value, put, values


def _same_index(one: str, other: str, size: int) -> bool:
    """Whether two expressions over one index are the same number for each of its values."""
    with contextlib.suppress(Exception):
        names = [{name: index for name in ("p", "lane", "position", "unit")} for index in range(size)]
        return size > 0 and all(eval(one, {}, given) == eval(other, {}, given) for given in names)
    return False


def _code_of(nodes: Collection[ast.stmt]) -> dict[str, str]:
    """What is run of statements, without comments and texts, by what they define; what defines nothing by number."""
    found = {}
    for number, node in enumerate(nodes):
        if _is_text(node):
            continue
        defines = node.targets[0] if isinstance(node, ast.Assign) else node
        name = str(getattr(defines, "name", getattr(defines, "id", number)))
        with contextlib.ExitStack() as stack:
            for inner in ast.walk(node):
                if isinstance(inner, (ast.FunctionDef, ast.ClassDef)) and _is_text(inner.body[0]):
                    stack.enter_context(_Changed(inner, "body", [ast.Pass(), *inner.body[1:]]))
            found[name] = ast.dump(node)
    return found


_statements = functools.lru_cache(maxsize=2)(reached.statements)


def _change(right: str, mutant: str) -> Change:
    """What differs between two modules, nothing where it is no code or the mutant cannot be read."""
    ours, theirs = right.split("\n"), mutant.split("\n")
    least = min(len(ours), len(theirs))
    same = next((at for at in range(least) if ours[at] != theirs[at]), least)
    same_at_end = next((at for at in range(least - same) if ours[-1 - at] != theirs[-1 - at]), least - same)
    touched = [one for one in _statements(right) if one.end > same and one.first < len(ours) - same_at_end]
    start = min([same, *(one.first for one in touched)])
    end = max([len(ours) - same_at_end, *(one.end for one in touched)])
    try:
        before, after = (
            _code_of(ast.parse("\n".join(lines)).body)
            for lines in (ours[start:end], theirs[start : end - len(ours) or None])
        )
    except SyntaxError:
        return frozenset()
    names = before.keys() | after.keys()
    changed = ((name, before.get(name), after.get(name)) for name in names)
    return frozenset((name, one, other) for name, one, other in changed if one != other)


@functools.lru_cache(maxsize=2)
def _read_by(text: str) -> dict[str, set[str]]:
    """For each launcher what it reads, calls and launches, itself and through what it calls."""
    reads = reached.reads_by_name(_statements(text))
    return {launcher: reached.reached_from({launcher}, reads) for launcher in LAUNCHERS}


def launchers_of(right: str, mutant: Mutant) -> tuple[str, ...]:
    """The launchers that run what a mutant has otherwise than the right text; all where nothing says which do."""
    changed = {name for name, _, _ in mutant.change}
    found = tuple(one for one, read in _read_by(right).items() if changed & read)
    # what no launcher reads is what a module says of itself, or what helps to call one
    return found or LAUNCHERS


NUMBER = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?(?:e-?\d+)?)(?![\w.])")


def _faults(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, bool):
        yield f"{value} -> {not value}", not value
    elif isinstance(value, int):
        changes = [value + 1, value - 1]
        if value > 1 and value & (value - 1) == 0:
            changes += [2 * value, value // 2]
        yield from ((f"{value} -> {changed}", changed) for changed in changes if changed >= 0)
    elif isinstance(value, tuple):
        for index in (0, len(value) // 2, len(value) - 1):
            for what, changed in _faults(value[index]):
                yield f"[{index}] {what}", (*value[:index], changed, *value[index + 1 :])
    elif isinstance(value, str):
        for found in NUMBER.finditer(value):
            number = found[1]
            changed = str(int(number) + 1) if number.isdigit() else repr(float(number) * 1.01)
            text = value[: found.start(1)] + changed + value[found.end(1) :]
            yield f"{value} -> {text}", text
        for one, other in (("<=", "<"), ("//", "%"), (" % ", " // "), (" + ", " - ")):
            if one in value and not (one == "<" and "<=" in value):
                yield f"{value} -> {value.replace(one, other, 1)}", value.replace(one, other, 1)


ASSEMBLY = {"and.b32": "or.b32", "or.b32": "and.b32", "shl.b32": "shr.u32", "shr.u32": "shl.b32", "add": "sub"}
HEXADECIMAL = re.compile(r"\b0x([0-9a-f]+)\b")


def _assembly_faults(assembly: str) -> Iterator[tuple[str, str]]:
    """One bit or digit of a constant, one distance of a shift, one operation for another."""
    for number, statement in enumerate(assembly.split(";")):
        changes = []
        for found in HEXADECIMAL.finditer(statement):
            flipped = f"0x{int(found[1], 16) ^ 1 << (number % (4 * len(found[1]))):0{len(found[1])}x}"
            changes.append(statement[: found.start()] + flipped + statement[found.end() :])
        for one, other in ASSEMBLY.items():
            if re.search(rf"\b{re.escape(one)}\b", statement):
                changes.append(statement.replace(one, other, 1))
        distance = re.search(r", (\d+)$", statement)
        if distance and "sh" in statement:
            changes.append(f"{statement[: distance.start()]}, {int(distance[1]) + 1}")
        for changed in changes:
            yield f"{statement.strip()} -> {changed.strip()}", assembly.replace(statement, changed, 1)


# faults of a text

SWAPS: dict[type, tuple[type, ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add,),
    ast.FloorDiv: (ast.Mod,),
    ast.Mod: (ast.FloorDiv,),
    ast.LShift: (ast.RShift,),
    ast.RShift: (ast.LShift,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.Lt: (ast.LtE,),
    ast.LtE: (ast.Lt,),
    ast.Gt: (ast.GtE,),
    ast.GtE: (ast.Gt,),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
}
CALLS = {"maximum": "minimum", "minimum": "maximum", "max": "min", "min": "max", "floor": "ceil", "int64": "int32"}
# Arguments of a launch that are for speed, or that only a compiler looks at.
NO_FAULT = {"num_warps", "num_stages", "enable_fp_fusion", "STAGES", "USE_PTX", "is_pure", "pack"}


def text_mutants(text: str, wanted: Collection[str] | None = None) -> Iterator[Mutant]:
    """A mutant for every fault of every statement of the kernels, and of the launches in the launchers.

    With `wanted` those of these names alone.
    """
    body = ast.parse(text).body
    pieces = [ast.unparse(node) for node in body]
    for number, function in enumerate(body):
        if not isinstance(function, ast.FunctionDef):
            continue
        is_kernel = any("jit" in ast.unparse(decorator) for decorator in function.decorator_list)
        before, after = pieces[:number], pieces[number + 1 :]
        right = _code_of([function])[function.name]
        times: dict[str, int] = {}
        for node, statement in list(_nodes(function, is_kernel)):
            line = ast.unparse(statement).splitlines()[0][:100]
            for what, fault in _faults_of(node):
                label = f"{what} in `{line}`"
                times[label] = times.get(label, 0) + 1
                numbered = f"{label} ({times[label]})" if times[label] > 1 else label
                if wanted is not None and f"{function.name}: {numbered}" not in wanted:
                    continue
                with fault:
                    changed, wrong = ast.unparse(function), _code_of([function])[function.name]
                if wrong != right:
                    change = frozenset({(function.name, right, wrong)})
                    yield Mutant(function.name, numbered, (*before, changed, *after), change)


def _nodes(function: ast.FunctionDef, is_kernel: bool) -> Iterator[tuple[ast.AST, ast.stmt]]:
    """The nodes of a function that may be at fault, each with its statement."""
    for statement in ast.walk(function):
        if not isinstance(statement, ast.stmt) or statement is function or _is_text(statement):
            continue
        inner = {child for part in ast.iter_child_nodes(statement) if isinstance(part, ast.stmt) for child in [part]}
        todo: list[ast.AST] = [statement]
        while todo:
            node = todo.pop()
            if node in inner or (isinstance(node, ast.keyword) and node.arg in NO_FAULT):
                continue
            if is_kernel or _is_launch(statement):
                yield node, statement
            todo += list(ast.iter_child_nodes(node))


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_launch(statement: ast.stmt) -> bool:
    """Whether a statement says what a kernel is launched with."""
    if not (isinstance(statement, (ast.Expr, ast.Assign)) and isinstance(statement.value, ast.Call)):
        return False
    called = ast.unparse(statement.value.func)
    return called == "_Launch" or "_kernel[" in called


class _Changed:
    """An attribute of a node that has another value inside the block."""

    def __init__(self, node: ast.AST, name: str, value: Any) -> None:
        self.node, self.name, self.value, self.kept = node, name, value, getattr(node, name)

    def __enter__(self) -> None:
        setattr(self.node, self.name, self.value)

    def __exit__(self, *_: object) -> None:
        setattr(self.node, self.name, self.kept)


def _faults_of(node: ast.AST) -> Iterator[tuple[str, _Changed]]:
    if isinstance(node, ast.Constant):
        yield from _numbers(node)
    elif isinstance(node, ast.BinOp):
        for other in SWAPS.get(type(node.op), ()):
            yield f"{type(node.op).__name__} -> {other.__name__}", _Changed(node, "op", other())
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        for other in SWAPS.get(type(node.ops[0]), ()):
            yield f"{type(node.ops[0]).__name__} -> {other.__name__}", _Changed(node, "ops", [other()])
    elif isinstance(node, ast.Attribute) and node.attr in CALLS and ast.unparse(node.value) == "tl":
        yield f"{node.attr} -> {CALLS[node.attr]}", _Changed(node, "attr", CALLS[node.attr])
    elif isinstance(node, ast.If) and node.test:
        negated = ast.UnaryOp(ast.Not(), copy.deepcopy(node.test))
        yield f"not ({ast.unparse(node.test)})", _Changed(node, "test", negated)
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "left out", _Changed(node, "value", ast.Constant(None))
    elif isinstance(node, ast.AugAssign):
        yield "left out", _Changed(node, "value", ast.Constant(0 if isinstance(node.op, (ast.Add, ast.Sub)) else 1))


def _numbers(node: ast.Constant) -> Iterator[tuple[str, _Changed]]:
    if isinstance(node.value, bool):
        yield f"{node.value} -> {not node.value}", _Changed(node, "value", not node.value)
    elif isinstance(node.value, int):
        for changed in (node.value + 1, node.value - 1):
            yield f"{node.value} -> {changed}", _Changed(node, "value", changed)
    elif isinstance(node.value, float):
        changed_float = node.value * 1.01 if node.value else 1.0
        yield f"{node.value} -> {changed_float}", _Changed(node, "value", changed_float)


def _calls(node: ast.Call) -> Iterator[tuple[str, _Changed]]:
    called = ast.unparse(node.func)
    masks = [keyword for keyword in node.keywords if keyword.arg == "mask"]
    if masks:
        rest = [keyword for keyword in node.keywords if keyword.arg not in ("mask", "other")]
        yield f"no mask {ast.unparse(masks[0].value)}", _Changed(node, "keywords", rest)
    if called == "tl.where" and len(node.args) == 3:
        condition, *branches = node.args
        for number, branch in enumerate(branches, start=1):
            others = [condition, branch, branch]
            yield f"tl.where always {('first', 'second')[number - 1]}", _Changed(node, "args", others)
