"""Offsets as forms in the block size and the number of KV heads.

A layout is resolved once, before anybody knows how many tokens a block holds or how many heads a model has. Its
offsets and strides are therefore polynomials in these two numbers, possibly rounded up to an alignment. A `Form` can
be evaluated (reference, launch checks), printed (byte maps) and written as source (generated kernels); all of them
read the same object.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

BLOCK_SIZE = "block_size"
NUM_KV_HEADS = "num_kv_heads"


@dataclass(frozen=True, order=True)
class RoundUp:
    """`inner` rounded up to a multiple of `multiple`: a factor whose value depends on the launch."""

    inner: Form
    multiple: int


Factor = str | RoundUp
Monomial = tuple[Factor, ...]


@dataclass(frozen=True, order=True)
class Form:
    """A sum of terms, each an integer times a product of `block_size`, `num_kv_heads` and rounded-up forms."""

    terms: tuple[tuple[Monomial, int], ...] = ()

    @staticmethod
    def constant(value: int) -> Form:
        return Form((((), value),)) if value else Form()

    @staticmethod
    def symbol(name: str) -> Form:
        return Form((((name,), 1),))

    @staticmethod
    def _collect(pairs: Iterable[tuple[Monomial, int]]) -> Form:
        total: dict[Monomial, int] = {}
        for monomial, coefficient in pairs:
            total[monomial] = total.get(monomial, 0) + coefficient
        kept = [(monomial, coefficient) for monomial, coefficient in total.items() if coefficient]
        return Form(tuple(sorted(kept, key=lambda term: (len(term[0]), str(term[0])))))

    def __add__(self, other: Form) -> Form:
        return Form._collect((*self.terms, *other.terms))

    def __mul__(self, other: Form) -> Form:
        return Form._collect(
            (tuple(sorted((*left, *right), key=str)), a * b) for left, a in self.terms for right, b in other.terms
        )

    def round_up(self, multiple: int) -> Form:
        """The form rounded up; unchanged where it is a multiple for every block size and head count."""
        if self.divisor() % multiple == 0 or not self.terms:
            return self
        if self.is_constant:
            return Form.constant(-(-self.evaluate(1, 1) // multiple) * multiple)
        return Form((((RoundUp(self, multiple),), 1),))

    @property
    def is_constant(self) -> bool:
        return all(monomial == () for monomial, _ in self.terms)

    def divisor(self, block_size: int = 1) -> int:
        """The largest number that is known to divide the form, whatever the launch; 0 for the zero form.

        With `block_size`: in launches whose block size is a multiple of it.
        """
        result = 0
        for monomial, coefficient in self.terms:
            known = coefficient
            for factor in monomial:
                if isinstance(factor, RoundUp):
                    known *= math.lcm(factor.multiple, math.gcd(factor.multiple, factor.inner.divisor(block_size)))
                elif factor == BLOCK_SIZE:
                    known *= block_size
            result = math.gcd(result, known)
        return result

    def evaluate(self, block_size: int, num_kv_heads: int) -> int:
        """The number for one launch, in bytes."""
        total = 0
        for monomial, coefficient in self.terms:
            product = coefficient
            for factor in monomial:
                if isinstance(factor, RoundUp):
                    inner = factor.inner.evaluate(block_size, num_kv_heads)
                    product *= -(-inner // factor.multiple) * factor.multiple
                else:
                    product *= block_size if factor == BLOCK_SIZE else num_kv_heads
            total += product
        return total

    def without_rounding(self) -> Form:
        """The form with every `RoundUp` replaced by what it rounds: the bytes that are used, without padding."""
        total = Form()
        for monomial, coefficient in self.terms:
            product = Form.constant(coefficient)
            for factor in monomial:
                product *= factor.inner.without_rounding() if isinstance(factor, RoundUp) else Form.symbol(factor)
            total += product
        return total

    def source(self, block_size: str = BLOCK_SIZE, num_kv_heads: str = NUM_KV_HEADS) -> str:
        """A Python expression over the two given names."""
        names = {BLOCK_SIZE: block_size, NUM_KV_HEADS: num_kv_heads}
        written = []
        for monomial, coefficient in self.terms:
            factors = []
            for factor in monomial:
                if isinstance(factor, RoundUp):
                    inner, n = factor.inner.source(block_size, num_kv_heads), factor.multiple
                    factors.append(f"(({inner} + {n - 1}) // {n} * {n})")
                else:
                    factors.append(names[factor])
            if coefficient != 1 or not factors:
                factors.append(str(coefficient))
            written.append(" * ".join(factors))
        return " + ".join(written) or "0"

    def __str__(self) -> str:
        """As a person reads it: `block_size*num_kv_heads*112`, `up16(block_size*6)`."""
        written = []
        for monomial, coefficient in self.terms:
            factors = [
                f"up{factor.multiple}({factor.inner})" if isinstance(factor, RoundUp) else factor for factor in monomial
            ]
            if coefficient != 1 or not factors:
                factors.append(str(coefficient))
            written.append("*".join(factors))
        return " + ".join(written) or "0"


ZERO = Form()
ONE = Form.constant(1)
SIZES = {"token": Form.symbol(BLOCK_SIZE), "head": Form.symbol(NUM_KV_HEADS)}
