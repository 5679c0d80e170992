"""With `batch_invariant` a sequence has the same result, bit for bit, whatever else is in the batch."""

import json

import pytest
import torch
from support.kernels import load

from tqgen.layout.resolve import resolve
from tqgen.lower import lower
from tqgen.spec import parse_spec
from tqgen.verify import device

HEADS, HEAD_DIM, BLOCK = 1, 64, 128
KEY = {"codec": "mse", "bits": 4, "rotation": "hadamard"}
VALUE = {"codec": "uniform", "bits": 4}
SPLIT = 1024
LONG = SPLIT + 70  # two parts
# Without the option the order of sums follows the number of parts that the table has room for, and a merge takes
# several of many query rows at a time.
WIDE = 20 * SPLIT
MANY_ROWS = 4096


@pytest.fixture(scope="module")
def module():
    """A module with the sizes of parts and merges that engines get, which other tests make smaller."""
    data = {"tqgen": 1, "name": "by_hand", "head_dim": HEAD_DIM, "key": KEY, "value": VALUE, "block": "soa"}
    return load("by_hand", lower(resolve(parse_spec(json.dumps(data), "by_hand.yaml")), "by_hand.yaml"))


@pytest.fixture(scope="module")
def sequence(module):
    """A cache with LONG tokens in its first blocks."""
    draw = torch.Generator().manual_seed(1)
    cache = module.allocate(LONG // BLOCK + 1, BLOCK, HEADS, device=device())
    vectors = [torch.randn(LONG, HEADS, HEAD_DIM, generator=draw).to(device()) for _ in range(2)]
    module.store(*vectors, cache, torch.arange(LONG, device=device()))
    return cache


def attend(module, cache, query, others=(), room=LONG, **options):
    """The first sequence's output and logarithms; every sequence has the cache's blocks, again and again."""
    blocks = -(-room // BLOCK)
    lengths = torch.tensor([LONG, *others], dtype=torch.int32, device=device())
    table = (torch.arange(blocks, dtype=torch.int32, device=device()) % cache.shape[0]).repeat(len(lengths), 1)
    query = torch.cat([query, torch.ones_like(query).expand(len(others), *query.shape[1:])])
    output, lse = module.decode_attention(query, cache, table, lengths, return_lse=True, **options)
    return output[0], lse[0]


@pytest.mark.parametrize("group", [4, 20], ids=["few", "many"])
@pytest.mark.parametrize("rest", ["others", "wide"])
def test_rest_of_the_batch(module, sequence, group, rest):
    query = torch.randn(1, group, HEAD_DIM, generator=torch.Generator().manual_seed(2)).to(device())
    others, room = ((0, 5, LONG), LONG) if rest == "others" else ((), WIDE)
    alone = attend(module, sequence, query, batch_invariant=True)
    among = attend(module, sequence, query, others, room, batch_invariant=True)
    assert all(torch.equal(one, other) for one, other in zip(alone, among, strict=True))
    # Cut elsewhere the result is as right, but another one: the test could see a difference.
    free = attend(module, sequence, query, num_splits=3)
    assert not torch.equal(free[0], alone[0])
    assert torch.allclose(free[0], alone[0], atol=1e-3)


@pytest.mark.parametrize("group", [4, 20], ids=["few", "many"])
@pytest.mark.parametrize("others, room", [((0,) * MANY_ROWS, LONG), ((), WIDE)], ids=["crowd", "wide"])
def test_launches(module, sequence, group, others, room, monkeypatch):
    """On a GPU the order of a sum follows from the tile, which must be the same."""
    query = torch.zeros(1, group, HEAD_DIM, device=device())

    def tiles(others, room, **options):
        found = []

        class Recorded(module._Launch):
            def __call__(self, *tensors):
                found.append((self.kernel.__name__, self.constexprs, self.options))

        with monkeypatch.context() as patch:
            patch.setattr(module, "_Launch", Recorded)
            attend(module, sequence, query, others, room, **options)
        return found

    assert tiles((), LONG, batch_invariant=True) == tiles(others, room, batch_invariant=True)
    assert tiles((), LONG, num_splits=2) != tiles(others, room, num_splits=-(-room // SPLIT))
