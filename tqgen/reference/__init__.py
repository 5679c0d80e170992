"""The numpy reference: store, unpack and attention from a layout and its codecs, and nothing else.

It shares no code with the lowering, so that it cannot share a mistake. Vectors are float64 arrays of the exact inputs;
what fp32 arithmetic may give instead of the exact result is stated as a `Span`. Run-time arrays that only some layouts
have go by the names of the generated launchers: `key_rotation`, `value_rotation` [D, D], `key_center`, `value_center`
[H, D].
"""

from __future__ import annotations

import math

import numpy as np

from tqgen.codecs.base import Span
from tqgen.layout import Layout, Part, Side
from tqgen.numerics import floats, packing, rotations
from tqgen.reference import cache_bytes, exact_attention, transform


def side_of(layout: Layout, name: str) -> Side:
    """The side called `key` or `value`."""
    return {"key": layout.key, "value": layout.value}[name]


def encode(
    layout: Layout,
    side: str,
    vectors: np.ndarray,
    *,
    rotation: np.ndarray | None = None,
    center: np.ndarray | None = None,
    division_ulps: float = 0.0,
) -> dict[str, Span]:
    """What may be stored for `vectors` [N, H, D]: per part, codes [N, H, D] or metadata [N, H, count].

    `division_ulps` widens the spans for kernels whose divisions are not correctly rounded, by units in the last place.
    """
    chosen = side_of(layout, side)
    if vectors.shape[-1:] != (chosen.head_dim,):
        raise ValueError(f"{side} is {list(vectors.shape)}, expected [tokens, heads, {chosen.head_dim}]")
    seen = transform.forward(chosen, vectors, rotation=rotation, center=center)
    return dict(chosen.codec.encode(chosen, seen.vectors, seen.error, seen.norm, division_ulps=division_ulps))


def part_bytes(layout: Layout, side: str, part: Part, values: np.ndarray) -> np.ndarray:
    """The bytes [N, H, num_bytes] of a part: of codes [N, H, D], or of metadata [N, H, count] rounded to its dtype."""
    chosen = side_of(layout, side)
    if part.dtype is None:
        return packing.pack(values, part.bits, chosen.parameters.packing)
    saturate = chosen.parameters.non_finite == "saturate"
    return packing.pack(floats.to_bits(values, part.dtype, saturate=saturate), part.bits)


def store(
    layout: Layout,
    cache: np.ndarray,
    key: np.ndarray | None,
    value: np.ndarray | None,
    slot_mapping: np.ndarray,
    **run_time: np.ndarray | None,
) -> np.ndarray:
    """Write the exact parts of `key` and `value` [N, H, D] to `cache`, in place, and return it.

    `slot_mapping` [N] names the slot of each token; negative ones store nothing.
    """
    slots = np.asarray(slot_mapping, dtype=np.int64)
    kept = slots >= 0
    arguments = _by_side(layout, run_time)
    for side in layout.sides:
        vectors = {"key": key, "value": value}[side.name]
        if vectors is None:
            raise ValueError(f"{side.name} is not given, and this layout stores it")
        given = arguments[side.name]
        exact = np.asarray(vectors, dtype=np.float64)[kept]
        spans = encode(layout, side.name, exact, rotation=given["rotation"], center=given["center"])
        for part in side.parts:
            data = part_bytes(layout, side.name, part, spans[part.name].exact)
            cache_bytes.scatter(layout, cache, layout.field(f"{side.name}.{part.name}"), slots[kept], data)
    return cache


def read_bits(layout: Layout, cache: np.ndarray, slot_mapping: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    """Per stored side and part the integers [N, H, count] of the slots [N]: codes, or bit patterns of metadata.

    Negative slots read as zeros.
    """
    slots = np.asarray(slot_mapping, dtype=np.int64)
    kept = slots >= 0
    result: dict[str, dict[str, np.ndarray]] = {}
    for side in layout.sides:
        result[side.name] = {}
        for part in side.parts:
            data = cache_bytes.gather(layout, cache, layout.field(f"{side.name}.{part.name}"), slots[kept])
            arrangement = side.parameters.packing if part.dtype is None else "linear"
            bits = np.zeros((len(slots), cache.shape[2], part.count), dtype=np.int64)
            bits[kept] = packing.unpack(data, part.count, part.bits, arrangement)
            result[side.name][part.name] = bits
    return result


def read_parts(layout: Layout, cache: np.ndarray, slot_mapping: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    """Per stored side and part the codes [N, H, D] (int64) or metadata [N, H, count] (float64) of the slots [N].

    Negative slots read as zeros.
    """
    result = read_bits(layout, cache, slot_mapping)
    for side in layout.sides:
        for part in side.parts:
            if part.dtype is not None:
                result[side.name][part.name] = floats.from_bits(result[side.name][part.name], part.dtype)
    return result


def unpack(
    layout: Layout,
    cache: np.ndarray,
    slot_mapping: np.ndarray,
    *,
    space: str = "model",
    dtype: str = "fp16",
    **run_time: np.ndarray | None,
) -> dict[str, Span]:
    """Per stored side the vectors [N, H, D] of the slots [N], as numbers of `dtype`; zeros for negative slots.

    `space` is `rotated` (what the codec decodes) or `model` (rotated back, and the centre added).
    """
    _check_space(space)
    empty = np.asarray(slot_mapping) < 0
    arguments = _by_side(layout, run_time)
    result = {}
    for name, parts in read_parts(layout, cache, slot_mapping).items():
        side = side_of(layout, name)
        span = side.codec.decode_span(side, parts)
        if space == "rotated":
            span = Span(*(floats.round_to(end, dtype) for end in span.ends))
        else:
            span = transform.backward(side, span, dtype, **arguments[name])
        result[name] = Span(*(np.where(empty[:, None, None], 0.0, end) for end in span.ends))
    return result


def decoded_vectors(
    layout: Layout,
    cache: np.ndarray,
    slot_mapping: np.ndarray,
    side: str,
    *,
    space: str = "model",
    rotation: np.ndarray | None = None,
    center: np.ndarray | None = None,
) -> np.ndarray:
    """The vectors [N, H, D] that a side of the slots [N] stands for, in float64 and never rounded.

    In `model` space they are rotated back, and `center` [H, D] is added if it is given.
    """
    chosen = side_of(layout, side)
    decoded = chosen.codec.decode(chosen, read_parts(layout, cache, slot_mapping)[side])
    if space == "rotated" or chosen.rotation.kind == "none":
        model = decoded
    else:
        with np.errstate(invalid="ignore"):
            model = decoded @ rotations.matrix(chosen.rotation, chosen.head_dim, rotation).T
    return model if center is None else model + np.asarray(center, dtype=np.float64)


def attention(
    layout: Layout,
    query: np.ndarray,
    cache: np.ndarray,
    block_table: np.ndarray,
    seq_lens: np.ndarray,
    softmax_scale: float | None = None,
    *,
    value_space: str = "model",
    sinks: np.ndarray | None = None,
    window: int | None = None,
    softcap: float | None = None,
    key_rotation: np.ndarray | None = None,
    value_rotation: np.ndarray | None = None,
    key_center: np.ndarray | None = None,
    value_center: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Attention in float64 over what the cache stands for.

    query [B, Hq, D], or [B, T, Hq, D] for the last T positions of each sequence; block_table [B, P]; seq_lens [B].
    Returns the output, in the shape of the query but for the value's head dimension, and the natural logarithm of the
    sum of exponentials [B, Hq] or [B, T, Hq]; `exact_attention.attend` describes `sinks`, `window` and `softcap`.
    `softmax_scale` is 1 / sqrt(head_dim) by default. `value_space="rotated"` leaves out the values' inverse rotation
    and centre. Keys stay centred, as in kernels, unless `key_center` is given: it does not change a softmax, but it
    does change what `sinks` and `softcap` do, and the logarithm.
    """
    if not (layout.key.is_stored and layout.value.is_stored):
        raise ValueError("attention needs keys and values, and this layout does not store both")
    _check_space(value_space)
    if value_space == "model":
        transform.check_run_time(layout.value, value_rotation, value_center)
    else:
        value_center = None
    block_size = cache.shape[1]
    scale = 1 / math.sqrt(layout.key.head_dim) if softmax_scale is None else softmax_scale
    outputs, logarithms = [], []
    batch = zip(query if query.ndim == 4 else query[:, None], block_table, seq_lens, strict=True)
    for rows, table, length in batch:
        positions = np.arange(int(length))
        slots = np.asarray(table).astype(np.int64)[positions // block_size] * block_size + positions % block_size
        keys = decoded_vectors(layout, cache, slots, "key", rotation=key_rotation, center=key_center)
        values = decoded_vectors(
            layout, cache, slots, "value", space=value_space, rotation=value_rotation, center=value_center
        )
        output, logarithm = exact_attention.attend(
            rows, keys, values, scale, sinks=sinks, window=window, softcap=softcap
        )
        outputs.append(output)
        logarithms.append(logarithm)
    output, logarithm = np.stack(outputs), np.stack(logarithms)
    return (output, logarithm) if query.ndim == 4 else (output[:, 0], logarithm[:, 0])


def _check_space(space: str) -> None:
    if space not in ("model", "rotated"):
        raise ValueError(f"no space is called `{space}`; there are `model` and `rotated`")


def _by_side(layout: Layout, run_time: dict[str, np.ndarray | None]) -> dict[str, dict[str, np.ndarray | None]]:
    """`key_rotation=..` and so on as the `rotation` and `center` of each stored side."""
    known = {f"{side}_{what}" for side in ("key", "value") for what in ("rotation", "center")}
    if unknown := sorted(set(run_time) - known):
        raise TypeError(f"no argument is called {', '.join(unknown)}")
    return {
        side.name: {what: run_time.get(f"{side.name}_{what}") for what in ("rotation", "center")}
        for side in layout.sides
    }
