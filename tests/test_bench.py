"""`tqgen bench`: what is measured and counted, and how it is shown. Times are stand-ins: there need not be a GPU."""

import importlib.util
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from support.kernels import kernels_of

from tqgen import manifest, verify
from tqgen.bench import cases, chart, kernels, run, table, timing
from tqgen.bench.cases import Case, Setting
from tqgen.bench.results import Machine, Measurement
from tqgen.cli import run as command
from tqgen.compiler import compile_spec
from tqgen.layout.resolve import resolve
from tqgen.spec import load_spec

ROOT = Path(__file__).parent.parent
HERE = Machine("a GPU", {"torch": "2.11"}, copy_bandwidth=4e12, l2_bytes=8_000)
SMALL = Setting(num_kv_heads=2, num_query_heads=4, block_size=4)

RAW = '"head_dim": 16, "key": {"codec": "raw", "dtype": "fp16"}, "value": {"codec": "raw", "dtype": "fp16"}'
REGION = '{"name": "all", "order": ["token", "head", "field"], "fields": ["key.codes", "value.codes"]}'


def layout_of(name):
    return resolve(load_spec(manifest.locate(name), {}))


def test_bytes_that_must_move():
    """By hand: mse4_v4 stores 134 bytes for two vectors of 128; a slot takes 8."""
    layout, setting = layout_of("mse4_v4"), Setting()
    assert cases.moved_bytes(layout, Case("store", tokens=1000), setting) == 1000 * (8 * (134 + 512) + 8)
    assert cases.moved_bytes(layout, Case("unpack", tokens=3), Setting(dtype="fp32")) == 3 * (8 * (134 + 1024) + 8)
    assert cases.moved_bytes(layout, Case("decode", batch=32, length=8192), setting) == 32 * 8192 * 8 * 134
    padded = kernels_of(
        f'{{"tqgen": 1, "name": "padded", {RAW}, "block": {{"regions": [{REGION}], "slot_bytes": 200}}}}'
    )
    assert cases.stored_bytes(padded.layout) == 64 and padded.layout.slot_bytes == 200  # padding is not moved


def test_cases():
    both, one, plain = layout_of("mse3_v4"), layout_of("none_vmse3"), layout_of("fp8_v4")
    kinds = [(case.kernel, case.space) for case in cases.cases_of(both, cases.KERNELS, (5,), ((1, 7), (2, 9)))]
    assert kinds == [("store", ""), ("unpack", "rotated"), ("unpack", "model"), ("decode", ""), ("decode", "")]
    assert {case.kernel for case in cases.cases_of(one, cases.KERNELS)} == {"store", "unpack"}
    assert {case.space for case in cases.cases_of(plain, cases.KERNELS)} == {""}
    assert {case.tokens for case in cases.cases_of(plain, ("store",))} == set(cases.TOKENS["store"])


@pytest.mark.parametrize("text", ["", "0", "x", "1,", "-1", "1.5", "99999999", "1,,2", "1" * 30])
def test_bad_numbers_of_tokens(text):
    with pytest.raises(ValueError, match="no number of tokens"):
        cases.parse_tokens(text)


@pytest.mark.parametrize("text", ["", "3", "3x", "x3", "3x4x5", "0x4", "3x0", "100000x100000", "3 by 4"])
def test_bad_batches(text):
    with pytest.raises(ValueError):
        cases.parse_batches(text)


def test_good_sizes():
    assert cases.parse_tokens("1, 1024") == (1, 1024)
    assert cases.parse_batches("1x32768, 32 x 8192") == ((1, 32768), (32, 8192))


def measurement(spec="mse4_v4", case=None, microseconds=20.0, **changed):
    case = case or Case("store", tokens=1024)
    given = {"moved_bytes": 40_000_000, "copy_bandwidth": 4e12, "cold": True, "with_launch": 30.0}
    given["against"] = {"bf16 attention": 50.0} if case.kernel == "decode" else {"unfused torch": 100.0}
    return Measurement(spec, case, microseconds, **{**given, **changed})


def test_ratios():
    one = measurement()
    assert one.floor == pytest.approx(10.0) and one.share == pytest.approx(0.5)
    assert one.ratio("unfused torch") == pytest.approx(5.0) and one.ratio("other") is None
    again = Measurement.from_json(json.loads(json.dumps(one.to_json())), one.copy_bandwidth)
    assert again == one
    assert Measurement.from_json(measurement(case=Case("decode", batch=2, length=3)).to_json(), 4e12).case.length == 3


def test_the_table_says_what_was_measured():
    ones = [measurement(), measurement(case=Case("store", tokens=65536), microseconds=1234.5, with_launch=None)]
    ones += [measurement(case=Case("decode", batch=32, length=8192), with_launch=None)]
    title, names, first, second, _, decode, *_ = lines = table.text_of(ones)
    assert (title, decode) == ("store", "decode")
    assert names.split("  ")[-1].strip() == "faster" and "unfused torch" in names
    assert first.split() == ["1,024", "20.0", "us", "30.0", "us", "40", "MB", "50%", "2.00x", "100", "us", "5.00x"]
    assert second.split() == ["65,536", "1,234", "us", "-", "40", "MB", "1%", "123.45x", "100", "us", "0.08x"]
    assert len(names) == len(first) == len(second)
    assert any("32 x 8,192" in line and "2.50x" in line for line in lines)
    rows = table.markdown([table.header("store", ["unfused torch"]), table.row(ones[0], ["unfused torch"])])
    assert len({line.count("|") for line in rows}) == 1 and rows[1].startswith("| ---")


def test_the_chart_has_a_bar_for_each_measurement():
    sizes = (1, 1024, 65536)
    ones = [measurement(f"spec{n}", Case("store", tokens=size)) for n in range(12) for size in sizes]
    ones += [measurement(f"spec{n}", Case("decode", batch=1, length=5), microseconds=25.0) for n in range(12)]
    text = chart.svg_of(ones, HERE)
    root = ET.fromstring(text)
    bars = [bar for bar in root.iter("{http://www.w3.org/2000/svg}rect") if len(bar)]
    assert len(bars) == len(ones)
    heights = {bar[0].text.split(": ")[1]: float(bar.get("height")) for bar in bars}
    # half of the copy bandwidth under a ceiling of 1.08, and twice as fast as bf16 under one of 2.16
    assert heights["20.0 us, 0.50"] == pytest.approx(chart.PANEL * 0.5 / 1.08, abs=0.01)
    assert heights["25.0 us, 2.00"] == pytest.approx(chart.PANEL * 2 / 2.16, abs=0.01)
    assert HERE.describe() in text and "spec11" in text


@pytest.fixture
def timed(monkeypatch):
    """Calls are made, and take ten microseconds."""
    calls = []

    def once(given):
        for call in given:
            call()
        calls.append(len(given))
        return 10.0

    monkeypatch.setattr(kernels, "MOST_SETS", 3)
    for name in ("in_graph", "from_python"):
        monkeypatch.setattr(timing, name, once)
    return calls


@pytest.mark.parametrize(
    "sides",
    [
        '"key": {"codec": "mse", "bits": 4, "rotation": "hadamard"}, "value": {"codec": "uniform", "bits": 4}',
        '"key": {"codec": "none"}, "value": {"codec": "mse", "bits": 3, "rotation": "matrix", "center": true}',
        '"key": {"codec": "fp8"}, "value": {"codec": "raw", "dtype": "bf16", "head_dim": 32}',
    ],
)
def test_every_case_is_run(sides, timed):
    if verify.device().type != "cpu":
        pytest.skip("stands for a GPU where there is none")
    made = kernels_of(f'{{"tqgen": 1, "name": "timed", "head_dim": 16, {sides}}}')
    wanted = cases.cases_of(made.layout, cases.KERNELS, (3, 40), ((2, 7),))
    found = list(run.measure(made.layout, made.module, wanted, SMALL, verify.device(), HERE))
    assert [case for case, _ in found] == list(wanted)
    for case, one in found:
        assert isinstance(one, Measurement), one
        moved = cases.moved_bytes(made.layout, case, SMALL)
        assert one.case == case and one.moved_bytes == moved and one.microseconds == one.with_launch == 10.0
        assert one.cold == (moved * 2 >= 2 * HERE.l2_bytes)
        if case.kernel == "store":
            assert set(one.against) == {"unfused torch", "bf16 cache write"}
    assert len(timed) >= 2 * len(wanted) and max(timed) > 1


def test_what_does_not_fit_the_memory_is_said(timed, monkeypatch):
    def full(subject, case):
        raise torch.OutOfMemoryError("full")

    monkeypatch.setitem(kernels._MAKERS, "store", full)
    made = kernels_of(
        '{"tqgen": 1, "name": "timed", "head_dim": 16, "key": {"codec": "fp8"}, "value": {"codec": "fp8"}}'
    )
    wanted = cases.cases_of(made.layout, ("store", "unpack"), (3,))
    (_, missed), (_, measured) = run.measure(made.layout, made.module, wanted, SMALL, verify.device(), HERE)
    assert missed == "not enough memory" and isinstance(measured, Measurement)


def bench(*arguments, **environment):
    """The command in a process where Triton does not interpret and no GPU is seen."""
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    words = [sys.executable, "-m", "tqgen", "bench", *arguments]
    given = {**kept, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(words, capture_output=True, text=True, timeout=300, env=given)


def test_without_a_gpu_instructions_are_counted():
    done = bench("mse4_v4", "none_vmse3", "--kernel", "store", "--kernel", "decode", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    launches = [(one["spec"], one["launch"]) for one in report["compiled"]]
    stores = ["store, few tokens", "store, many tokens"]
    assert launches == [
        *(("mse4_v4", launch) for launch in (*stores, "decode attention", "merge of splits")),
        *(("none_vmse3", launch) for launch in stores),
    ]
    assert report["machine"] is None and all(one["registers"] > 0 for one in report["compiled"])
    assert all(one["per_element"] > 0 for one in report["compiled"] if one["launch"] != "merge of splits")


def test_without_a_gpu_it_says_so():
    done = bench("mse4_v4_hm", "--kernel", "unpack")
    first, *_ = done.stdout.splitlines()
    assert done.returncode == 0 and first.startswith("there is no GPU here, so nothing is timed")
    layout = compile_spec(manifest.locate("mse4_v4_hm")).layout
    assert f"mse4_v4_hm, layout {layout.layout_id}" in done.stdout
    assert "unpack, rotated space" in done.stdout and "value.codes 16" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["mse4_v4", "--tokens", "1,x"], "TQ4112", "`--tokens`: `x` is no number of tokens"),
        (["mse4_v4", "--batches", "32"], "TQ4112", "`--batches`: `32` is no batch"),
        (["mse4_v4", "--heads", "3"], "TQ4112", "32 query heads are no multiple of 3 KV heads"),
        (["mse4_v4", "--kernel", "stor"], "TQ4101", "`stor` is no value of `--kernel`"),
        (["mse4_v4", "--dtype", "fp8"], "TQ4101", "`fp8` is no value of `--dtype`"),
        (["mse4_v4", "--json", "--chart", "x.svg"], "TQ4101", "`--chart`"),
        (["mse4_v5"], "TQ4001", "did you mean"),
    ],
)
def test_bad_calls(arguments, code, said, capsys, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert command(["bench", *arguments]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error[{code}]") and said in err


def test_what_cannot_be_measured_is_refused(capsys, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for arguments, code, said in (
        (["mse4_v4", "--chart", "x.svg"], "TQ4113", "no GPU here"),
        (["mse4_v4_aligned", "--block-size", "1", "--heads", "1"], "TQ4112", "does not fit blocks of 1 tokens"),
        (["none_vmse3", "--kernel", "decode"], "TQ4112", "stores values alone"),
    ):
        assert command(["bench", *arguments]) == 2
        err = capsys.readouterr().err
        assert err.startswith(f"error[{code}]") and said in err, err
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert command(["bench", "mse4_v4"]) == 2
    assert capsys.readouterr().err.startswith("error[TQ4114]")


def script(name):
    """A module of `benchmarks/`."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_script_merges_and_renders(tmp_path, monkeypatch):
    speed = script("speed")

    def entry(name, microseconds, case):
        one = measurement(name, case, microseconds)
        return {**one.to_json(), "copy_bandwidth": one.copy_bandwidth}

    store, decode = Case("store", tokens=65536), Case("decode", batch=32, length=8192)
    old = [entry("b", 20.0, store), entry("b", 30.0, decode), entry("a", 40.0, store)]
    kept = speed.merged(old, [entry("b", 10.0, store)])
    assert [(one["spec"], one["microseconds"]) for one in kept] == [("a", 40.0), ("b", 10.0), ("b", 30.0)]
    report = {"machine": HERE.to_json(), "setting": vars(Setting()), "measurements": kept}
    (tmp_path / "speed.json").write_text(json.dumps(report))
    monkeypatch.setattr(sys, "argv", ["speed.py", str(tmp_path), "--render"])
    speed.main()
    text = (tmp_path / "speed.md").read_text()
    assert HERE.describe() in text and "## store, 65,536 tokens" in text and "## decode, 32 x 8,192" in text
    assert "| b | 10.0 us | 30.0 us | 40 MB | 100% | 1.00x | 100 us | 10.00x |" in text
    assert ET.fromstring((tmp_path / "speed.svg").read_text()) is not None
    assert {speed.small(case).kernel for case in speed.cases_of(layout_of("mse4_v4"))} == set(cases.KERNELS)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("mse4_v4", ("", ""), "nothing"),
        ("mse4_v4", ("16, 8) * 2.0)", "16, 8) * 8.0)"), "stored bytes"),
        ("none_vmse3", ("", ""), "nothing"),
    ],
)
def test_modules_side_by_side_are_compared(name, change, said, tmp_path, monkeypatch):
    side_by_side = script("side_by_side")
    monkeypatch.setattr(side_by_side, "COMPARED", 32)
    baseline, path = ROOT / "generated" / f"{name}.py", tmp_path / "changed.py"
    text = baseline.read_text()
    assert change[0] in text
    path.write_text(text.replace(*change, 1))
    layout, device = side_by_side.layout_of(side_by_side.Candidate.parse(f"old={path}"), None), torch.device("cpu")
    setting = cases.Setting()
    pair = (side_by_side.Candidate.parse(f"a={one}") for one in (baseline, path))
    first, other = (one.subject(layout, setting, device) for one in pair)
    found = side_by_side.differences(first, other)
    assert found.endswith(said), found
    if said != "nothing":
        with pytest.raises(ValueError, match="stores layout"):
            side_by_side.Candidate.parse(str(path)).subject(layout_of("mse3_v4"), setting, device)


def test_the_table_side_by_side():
    rows = [{"kernel": "store", "size": "1,024", "microseconds": {"old": 10.0, "new": 5.0}}]
    lines = script("side_by_side").text_of("x", {"old": "", "new": "nothing", "worse": "RuntimeError: no"}, rows)
    assert lines[-1] == "| store | 1,024 | 10.0 us | 5.00 us, 2.00x | - |"
    assert "| worse | RuntimeError: no |" in lines


class FakeEvent:
    """Stands for `torch.cuda.Event`: time passes with the calls that are made between two of them."""

    clock = 0.0  # milliseconds

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self.at = FakeEvent.clock

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return end.at - self.at


class FakeGraph:
    """Stands for `torch.cuda.CUDAGraph`: a replay takes as long as what was captured."""

    def __enter__(self):
        self.began = FakeEvent.clock

    def __exit__(self, *_):
        self.took = FakeEvent.clock - self.began

    def replay(self):
        FakeEvent.clock += self.took

    def reset(self):
        self.took = None


@pytest.fixture
def clock(monkeypatch):
    """A GPU that takes 0.03 milliseconds for each call; the clock of Python is the same."""

    def call(*_, **__):
        FakeEvent.clock += 0.03

    fakes = {"Event": FakeEvent, "CUDAGraph": FakeGraph, "graph": lambda graph: graph, "synchronize": lambda: None}
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(timing.time, "perf_counter", lambda: FakeEvent.clock / 1e3)
    return call


@pytest.mark.parametrize("count", [1, 3, 50])
def test_times_are_those_of_one_call_in_microseconds(clock, count):
    assert timing.in_graph([clock] * count) == pytest.approx(30)
    assert timing.from_python([clock] * count) == pytest.approx(30)


def test_the_copy_bandwidth_counts_what_is_read_and_written(clock, monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (8000, 0))
    monkeypatch.setattr(torch, "zeros", lambda count, **_: SimpleNamespace(copy_=clock, count=count))
    monkeypatch.setattr(torch, "neg", clock)
    # a quarter of what is free, 2,000 bytes, read and written in 30 microseconds
    assert timing.copy_bandwidth() == pytest.approx(4000 / 30e-6)


@pytest.mark.parametrize(
    ("one", "l2_bytes", "count", "cold"), [(100, 1000, 21, True), (3000, 1000, 2, True), (9, 1000, 32, False)]
)
def test_inputs_exceed_the_cache_together(one, l2_bytes, count, cold):
    assert kernels.sets(one, l2_bytes) == (count, cold)
