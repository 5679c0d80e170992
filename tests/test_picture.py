"""The byte map as a picture: everything is there, at its scale, and nothing falls off the page."""

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.random_specs import spec_texts

from tqgen import manifest, seal
from tqgen.cli import run
from tqgen.layout import Field
from tqgen.layout.byte_map import Launch, entry_bytes
from tqgen.layout.resolve import resolve
from tqgen.picture import draw
from tqgen.picture.block import rows_of
from tqgen.picture.svg import width_of
from tqgen.spec import load_spec, parse_spec

SVG = "{http://www.w3.org/2000/svg}"


def layout_of(name):
    return resolve(load_spec(manifest.locate(name)))


def texts(drawn):
    return [element.text for element in ET.fromstring(drawn).iter(f"{SVG}text")]


@pytest.mark.parametrize("entry", manifest.shipped(), ids=lambda entry: entry.name)
def test_every_field_is_named_with_its_bytes(entry):
    layout = layout_of(entry.name)
    words = " | ".join(texts(draw(layout)))
    for field in layout.fields:
        assert field.name in words
        assert re.search(rf"\b{field.part.num_bytes} bytes: ", words)
    assert entry.name in words and layout.layout_id in words and f"{layout.slot_bytes} bytes" in words


def test_pictures_need_nothing_from_outside():
    drawn = draw(layout_of("mse3_v4"))
    assert seal.is_intact(drawn)
    assert drawn == draw(layout_of("mse3_v4"))
    assert re.findall(r"https?://[^\"]*", drawn) == ["http://www.w3.org/2000/svg"]
    assert "<script" not in drawn and "<image" not in drawn and "@import" not in drawn
    assert set(re.findall(r'href="(.)', drawn)) == {"#"}


def test_text_of_a_spec_is_escaped():
    text = manifest.locate("mse3_v4").read_text().replace("3-bit Lloyd-Max keys", "a <b> & 'c' \"d\" -->")
    assert "a <b> & 'c' \"d\" -->" in ET.fromstring(draw(resolve(parse_spec(text)))).find(f"{SVG}desc").text


def test_the_slot_is_to_scale():
    layout = layout_of("mse3_v4_aos")
    bars = {}
    for group in ET.fromstring(draw(layout)).iter(f"{SVG}g"):
        title = group.find(f"{SVG}title")
        if title is not None:
            bars[title.text.partition(",")[0]] = float(group.find(f"{SVG}rect").get("width"))
    assert set(bars) == {field.name for field in layout.fields}
    for field in layout.fields:
        share = bars[field.name] / sum(bars.values())
        assert share == pytest.approx(field.part.num_bytes / layout.slot_bytes, rel=1e-3)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(spec_texts(), st.integers(1, 20), st.integers(1, 9))
def test_rows_hold_every_byte_at_its_address(text, block_size, heads):
    layout = resolve(parse_spec(text))
    launch = Launch(block_size, heads, block_size - 1, heads - 1)
    for region in layout.regions:
        drawn = set()
        for rows in rows_of(region, launch):
            for index, _ in enumerate(rows.names):
                for cell in rows.cells:
                    start = rows.first_byte + index * rows.stride + cell.start
                    drawn.add((cell.entry, start, start + cell.end - cell.start))
        wanted = set()
        for entry in region.entries:
            for token in range(block_size):
                for head in range(heads):
                    forms = ((entry.base, 1), (entry.token_stride, token), (entry.head_stride, head))
                    at = sum(launch.evaluate(form) * times for form, times in forms)
                    if isinstance(entry, Field):
                        assert at == entry.address(token, head, block_size, heads)
                    wanted.add((entry, at, at + entry_bytes(entry)))
        assert drawn == wanted


LAUNCHES = [Launch(), Launch(1, 1, 0, 0), Launch(256, 64, 255, 63), Launch(7, 3, 2, 2)]


@settings(max_examples=80, deadline=None, derandomize=True)
@given(spec_texts(), st.sampled_from(LAUNCHES))
def test_nothing_falls_off_the_page(text, launch):
    root = ET.fromstring(draw(resolve(parse_spec(text)), launch))
    width, height = float(root.get("width")), float(root.get("height"))
    for element in root.iter():
        x, y = float(element.get("x") or 0), float(element.get("y") or 0)
        assert 0 <= x <= width and 0 <= y <= height
        if element.tag == f"{SVG}rect":
            assert float(element.get("width")) > 0 and float(element.get("height")) > 0
            assert x + float(element.get("width")) <= width + 0.1 and y + float(element.get("height")) <= height + 0.1
        if element.tag == f"{SVG}text":
            wide = width_of(element.text, float(element.get("font-size")))
            start = x - {"end": wide, "middle": wide / 2}.get(element.get("text-anchor"), 0)
            assert start >= -0.1 and start + wide <= width + 0.1, element.text


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["show", "mse3_v4", "--svg", "a/map.svg", "--heads", "2"]) == 0
    assert capsys.readouterr().out == "a/map.svg: written\n"
    assert "A block of 16 tokens and 2 heads: 3,776 bytes" in texts((tmp_path / "a" / "map.svg").read_text())
    assert run(["show", "mse3_v4", "--svg", "a/map.svg", "--heads", "3"]) == 0
    (tmp_path / "mine.svg").write_text("<svg/>")
    assert run(["show", "mse3_v4", "--svg", "mine.svg"]) == 1 and "TQ5004" in capsys.readouterr().err
    assert (tmp_path / "mine.svg").read_text() == "<svg/>"
    assert run(["show", "mse3_v4", "--svg", "x.svg", "--json"]) == 2
    assert run(["show", "mse3_v5", "--svg", "x.svg"]) == 2 and not (tmp_path / "x.svg").exists()
