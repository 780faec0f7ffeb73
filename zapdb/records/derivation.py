"""How the fields of a target shape come from those of a source shape, as data.

A derivation is an input (a source field as it is), a constant, or an expression over further
derivations. One migration gives each field of a table a derivation over the fields before it; the
derivations of a whole path are composed by substitution, so that what a later step throws away is
never computed, and a field that nothing touched stays an input, however many steps lie between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zapdb.expressions import Expression, Type


@dataclass(frozen=True, slots=True)
class Input:
    """The source field of this number, unchanged."""

    number: int


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A checked value, or None."""

    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class Computed:
    """`expression` over named derivations; `types` gives each name's type, `type` the result's."""

    expression: Expression
    inputs: Mapping[str, Derivation]
    types: Mapping[str, Type]
    type: Type


Derivation = Input | Constant | Computed

Derivations = Mapping[int, Derivation]
"""By number, for every field of the target: those of the key are always inputs."""


def compose(first: Derivations, second: Derivations) -> dict[int, Derivation]:
    """What `second` makes of the fields that `first` makes; shared parts stay shared."""
    done: dict[int, Derivation] = {}

    def substitute(derivation: Derivation) -> Derivation:
        match derivation:
            case Input(number):
                return first[number]
            case Constant():
                return derivation
            case Computed(expression, inputs, types, kind):
                if id(derivation) not in done:
                    replaced = {name: substitute(part) for name, part in inputs.items()}
                    done[id(derivation)] = Computed(expression, replaced, types, kind)
                return done[id(derivation)]

    return {number: substitute(derivation) for number, derivation in second.items()}


def inputs_of(derivation: Derivation) -> frozenset[int]:
    """The numbers of the source fields that the derivation reads."""
    parts: list[Derivation] = [derivation]
    for computed in computed_in(derivation):
        parts += computed.inputs.values()
    return frozenset(part.number for part in parts if isinstance(part, Input))


def computed_in(derivation: Derivation) -> list[Computed]:
    """The expressions in a derivation, each once and after those that it reads.

    A derivation is as deep as the chain is long, and its parts are shared: so no recursion, and no
    part is visited by more than one way.
    """
    ordered: dict[int, Computed] = {}
    waiting: list[Derivation] = [derivation]
    while waiting:
        part = waiting[-1]
        needed: list[Derivation] = []
        if isinstance(part, Computed) and id(part) not in ordered:
            needed += (
                inner
                for inner in part.inputs.values()
                if isinstance(inner, Computed) and id(inner) not in ordered
            )
            if not needed:
                ordered[id(part)] = part
        if needed:
            waiting += needed
        else:
            waiting.pop()
    return list(ordered.values())
