"""The commands, their arguments and options, as typer knows them. Each calls the file of its name in `commands`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tqgen.cli.command import Command
from tqgen.commands import completion
from tqgen.commands.console import Console
from tqgen.commands.usage import USAGE, UsageError, below, choose, parse_overrides
from tqgen.version import __version__

app = typer.Typer(
    name="tqgen",
    help="A compiler for the memory layout of quantised KV caches.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
command = partial(app.command, cls=Command)
console = Console()
# Commands return what is to be done, so that it is done outside of typer, which answers some exceptions in its own way.
Work = Callable[[], int]

ONE_SPEC = "A spec file, or the name of a shipped spec."
Specs = Annotated[
    list[str],
    typer.Argument(metavar="SPEC...", help="Spec files, or names of shipped specs.", autocompletion=completion.specs),
]
Overrides = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="Replace a value of the spec, as in head_dim=64.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print data for tools instead of text.")]


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    error_format: Annotated[
        str, typer.Option(metavar="text|json", help="How diagnostics are written to stderr; json: one object a line.")
    ] = "text",
) -> None:
    """A compiler for the memory layout of quantised KV caches."""
    if version:
        print(f"tqgen {__version__}")
        raise typer.Exit(0)
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(USAGE)


@command()
def build(
    specs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SPEC...]",
            help="Spec files, or names of shipped specs; default all.",
            autocompletion=completion.specs,
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Folder for the modules; default generated/.")
    ] = None,
    set_: Overrides = [],  # noqa: B006
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail where a build would.")] = False,
) -> Work:
    """Write one Triton module for each spec.

    Modules go into generated/ of the source tree for its own specs, otherwise into ./generated.
    """
    from tqgen.commands.build import build as work

    return partial(work, console, specs or [], output, parse_overrides(set_), check)


@command()
def check(specs: Specs, set_: Overrides = []) -> Work:  # noqa: B006
    """Say whether specs can be built, with the templates of their codecs; nothing is written."""
    from tqgen.commands.check import check as work

    return partial(work, specs, parse_overrides(set_))


@command()
def show(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help=ONE_SPEC, autocompletion=completion.specs)],
    stage: Annotated[
        str,
        typer.Option(
            metavar="spec|layout|plan|source",
            help="What to print; layout is the byte map.",
            autocompletion=lambda: ["spec", "layout", "plan", "source"],
        ),
    ] = "layout",
    as_json: AsJson = False,
    set_: Overrides = [],  # noqa: B006
    block_size: Annotated[
        int, typer.Option(metavar="N", min=1, help="Tokens in a block, for the addresses of the byte map.")
    ] = 16,
    heads: Annotated[int, typer.Option(metavar="N", min=1, help="KV heads, for the addresses of the byte map.")] = 8,
    token: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Offset in the block of the addressed token; default 5.")
    ] = None,
    head: Annotated[int | None, typer.Option(metavar="N", min=0, help="The addressed head; default 1.")] = None,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the byte map into an SVG file instead of printing it.")
    ] = None,
) -> Work:
    """Print the byte map of a spec, or another stage, or draw it."""
    from tqgen.commands.show import STAGES, picture
    from tqgen.commands.show import show as work
    from tqgen.layout.byte_map import Launch

    choose("--stage", stage, STAGES)
    default = Launch()
    token = below("--token", token, default.token, block_size, "tokens in a block")
    head = below("--head", head, default.head, heads, "heads")
    launch = Launch(block_size, heads, token, head)
    if svg is not None:
        if as_json or stage != "layout":
            raise UsageError("TQ4101", "`--svg` draws the byte map, and goes with neither `--stage` nor `--json`")
        return partial(picture, spec, svg, parse_overrides(set_), launch)
    return partial(work, spec, stage, as_json, parse_overrides(set_), launch)


@command()
def verify(
    specs: Specs,
    set_: Overrides = [],  # noqa: B006
    cell: Annotated[
        list[str], typer.Option("--cell", metavar="ID", help="Run this cell of the matrix alone; can be repeated.")
    ] = [],  # noqa: B006
    as_json: AsJson = False,
) -> Work:
    """Run generated kernels and compare them with numpy.

    On the GPU where there is one, otherwise in Triton's interpreter.
    """
    from tqgen.commands.verify import verify as work

    return partial(work, console, specs, parse_overrides(set_), cell, as_json)


@command()
def bench(
    specs: Specs,
    kernel: Annotated[
        list[str],
        typer.Option(
            "--kernel",
            metavar="store|unpack|decode",
            help="Measure this kernel alone; can be repeated; default all.",
            autocompletion=lambda: ["store", "unpack", "decode"],
        ),
    ] = [],  # noqa: B006
    tokens: Annotated[
        str | None,
        typer.Option(
            metavar="N,...", help="Numbers of tokens that are stored and unpacked; default from one to 65536."
        ),
    ] = None,
    batches: Annotated[
        str | None,
        typer.Option(
            metavar="BxN,...",
            help="Sequences and their tokens that are attended to, as 32x8192; default five such sizes.",
        ),
    ] = None,
    heads: Annotated[int, typer.Option(metavar="N", min=1, max=1024, help="KV heads.")] = 8,
    query_heads: Annotated[
        int, typer.Option(metavar="N", min=1, max=16384, help="Query heads, a multiple of the KV heads.")
    ] = 32,
    block_size: Annotated[int, typer.Option(metavar="N", min=1, max=65536, help="Tokens in a block.")] = 16,
    dtype: Annotated[str, typer.Option(metavar="fp16|bf16|fp32", help="Of inputs and outputs.")] = "bf16",
    as_json: AsJson = False,
    chart: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the measurements into an SVG file.")] = None,
    set_: Overrides = [],  # noqa: B006
) -> Work:
    """Measure kernels on the GPU: time, bytes, share of the copy bandwidth, against PyTorch and bf16.

    Without a GPU, print what the kernels compile to.
    """
    from tqgen.bench import cases
    from tqgen.commands.bench import Request, sizes
    from tqgen.commands.bench import bench as work
    from tqgen.layout import ITEM_BYTES

    for one in kernel:
        choose("--kernel", one, cases.KERNELS)
    choose("--dtype", dtype, list(ITEM_BYTES))
    if query_heads % heads:
        message = f"{query_heads} query heads are no multiple of {heads} KV heads"
        raise UsageError("TQ4112", message, help="give both `--heads` and `--query-heads`")
    request = Request(
        kernels=tuple(dict.fromkeys(kernel)),
        tokens=sizes("--tokens", tokens, cases.parse_tokens),
        batches=sizes("--batches", batches, cases.parse_batches),
        setting=cases.Setting(heads, query_heads, block_size, dtype),
        as_json=as_json,
        chart=chart,
    )
    return partial(work, specs, parse_overrides(set_), request)


@command(name="list")
def list_(as_json: AsJson = False) -> Work:
    """Print the specs that are shipped."""
    from tqgen.commands.listing import listing

    return partial(listing, as_json)


@command()
def diff(
    old: Annotated[str, typer.Argument(metavar="OLD", help=ONE_SPEC, autocompletion=completion.specs)],
    new: Annotated[
        str, typer.Argument(metavar="NEW", help="What to compare it with.", autocompletion=completion.specs)
    ],
    as_json: AsJson = False,
    set_: Annotated[
        list[str], typer.Option("--set", metavar="KEY=VALUE", help="Replace a value of NEW, as in key.bits=4.")
    ] = [],  # noqa: B006
) -> Work:
    """Print what differs between two layouts: moved fields, numerics, launchers.

    The exit status is 0 where nothing does, names and comments apart, and 1 otherwise.
    """
    from tqgen.commands.diff import diff as work

    return partial(work, [old, new], parse_overrides(set_), as_json)


@command()
def breaking(
    against: Annotated[
        str, typer.Option(metavar="REF|FOLDER", help="A git revision, or a folder of specs or generated modules.")
    ],
    specs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SPEC...]",
            help="Spec files, folders, or names of shipped specs; default all.",
            autocompletion=completion.specs,
        ),
    ] = None,
    as_json: AsJson = False,
) -> Work:
    """Say whether layouts are what they were under their names.

    Compares with a git revision or a folder, by category: LAYOUT (where bytes stand), NUMERICS (what they mean) and API
    (what callers rely on).
    """
    from tqgen.commands.breaking import breaking as work

    return partial(work, console, specs or [], against, as_json)


@command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the layout; NAME.yaml is written.")],
    key: Annotated[str, typer.Option(metavar="CODEC", help="Codec of the keys.")] = "mse",
    key_bits: Annotated[
        int | None, typer.Option(metavar="1..8", min=1, max=8, help="Width of their codes; default 4.")
    ] = None,
    value: Annotated[str, typer.Option(metavar="CODEC", help="Codec of the values.")] = "uniform",
    value_bits: Annotated[
        int | None, typer.Option(metavar="1..8", min=1, max=8, help="Width of their codes; default 4.")
    ] = None,
    arrangement: Annotated[
        str, typer.Option(metavar="soa|aos|head-major|planes", help="Where in a block the parts stand.")
    ] = "soa",
    head_dim: Annotated[int, typer.Option(metavar="N", min=1, help="Elements of one vector.")] = 128,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder of the spec.")] = Path("."),
) -> Work:
    """Write a commented spec to start from."""
    from tqgen.codecs import CODECS
    from tqgen.commands.new import new as work
    from tqgen.spec.starter import ARRANGEMENTS, Choice

    for option, codec in (("--key", key), ("--value", value)):
        choose(option, codec, list(CODECS))
    choose("--arrangement", arrangement, list(ARRANGEMENTS))
    return partial(work, name, Choice(key, key_bits), Choice(value, value_bits), arrangement, head_dim, output)


@command()
def schema(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it here instead of printing it.")
    ] = None,
) -> Work:
    """Print the JSON Schema of specs, for editors.

    A spec names it with a first line as `# yaml-language-server: $schema=tqgen.schema.json`.
    """
    from tqgen.commands.schema import schema as work

    return partial(work, output)


@command()
def explain(
    code: Annotated[
        str | None,
        typer.Argument(metavar="[CODE]", help="As in error[TQ3107]; default all.", autocompletion=completion.codes),
    ] = None,
) -> Work:
    """Print what a diagnostic means, and what to do."""
    from tqgen.commands.explain import explain as work

    return partial(work, code)
