"""How the fields of a target schema come from the fields of a source schema, as data.

A derivation is an unchanged source field, a constant, a restored archived value, an expression over
other derivations, or a value recast from one version of a declared type to another. One migration
gives each field of a table a derivation over the fields before it. The derivations of several
migrations are composed by substitution. So a value that a later step drops is never computed, and a
field that no step changes stays an input, however many steps lie between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from zapdb.expressions import Expression, Type
from zapdb.records.layout import Slot
from zapdb.values import ValueType

NO_ARCHIVES: Final[Mapping[Slot, Any]] = {}


@dataclass(frozen=True, slots=True)
class SourceField:
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


@dataclass(frozen=True, slots=True, eq=False)
class Restored:
    """The archived value of a dropped field, `otherwise` if the archive has none. The number of its
    slot is the field's cell, which is what the archive goes by."""

    slot: Slot
    otherwise: Derivation


@dataclass(frozen=True, slots=True, eq=False)
class Recast:
    """A value of the type `source` as one of `target`, two versions of types that are declared.

    `recast` is pure and total, and takes and gives checked values, never None. With `keeps_bytes`,
    the value is encoded as it was: only names within it are others.
    """

    value: Derivation
    recast: Callable[[Any], Any]
    source: ValueType
    target: ValueType
    keeps_bytes: bool


Derivation = SourceField | Constant | Restored | Computed | Recast

Derivations = Mapping[int, Derivation]
"""By number, for every field of the target; the fields of the key are always inputs."""

Archives = Mapping[Slot, Derivation]
"""What is archived on the way, by the slot of the dropped field, whose number is its cell."""


@dataclass(frozen=True, slots=True)
class ConversionPlan:
    """How a table's records are converted between two schemas: the fields, and what is archived."""

    derivations: Derivations
    archives: Archives = field(default_factory=dict)
    otherwise: Archives = field(default_factory=dict)
    """What some archived values would be without a row: these are archived only if they differ."""

    def then(self, following: ConversionPlan) -> ConversionPlan:
        """This plan and then that one, as one."""
        archives = compose_archives(
            self.derivations, self.archives, following.derivations, following.archives
        )
        substitute = _substitution(self.derivations, self.archives)
        otherwise = {slot: one for slot, one in self.otherwise.items() if slot in archives}
        otherwise |= {slot: substitute(one) for slot, one in following.otherwise.items()}
        return ConversionPlan(
            compose(self.derivations, following.derivations, self.archives), archives, otherwise
        )

    def by_cells(self, restored: Mapping[int, int], archived: Mapping[int, int]) -> ConversionPlan:
        """The same plan, where slots of the archive have the numbers of fields so far: `restored`
        are the cells of fields that were archived before, and `archived` of those that are after
        it, by the fields' numbers."""
        done: dict[int, Derivation] = {}

        def substitute(derivation: Derivation) -> Derivation:
            if isinstance(derivation, SourceField | Constant):
                return derivation
            if id(derivation) not in done:
                made = _with_parts(derivation, substitute)
                if isinstance(made, Restored):
                    made = replace(made, slot=made.slot.numbered(restored[made.slot.number]))
                done[id(derivation)] = made
            return done[id(derivation)]

        return ConversionPlan(
            {number: substitute(derivation) for number, derivation in self.derivations.items()},
            {
                slot.numbered(archived[slot.number]): substitute(derivation)
                for slot, derivation in self.archives.items()
            },
        )

    def copies(self, number: int) -> bool:
        """Whether the bytes of this field stay as they are."""
        return copied_from(self.derivations[number]) == number

    def keeps_all(self, fields: Collection[int]) -> bool:
        """Whether these source fields all stay what they are, in the record or archived, and
        nothing is restored: then there is one record that it makes another one of."""
        made = [*self.derivations.values(), *self.archives.values()]
        kept = {copied_from(derivation) for derivation in made}
        return kept >= {*fields} and not any(map(restored_in, self.derivations.values()))

    @property
    def is_identity(self) -> bool:
        """Whether the bytes of all fields stay as they are, and nothing is archived."""
        return not self.archives and all(
            copied_from(derivation) == number for number, derivation in self.derivations.items()
        )


def compose(
    first: Derivations, second: Derivations, archives: Archives = NO_ARCHIVES
) -> dict[int, Derivation]:
    """What `second` makes of the fields that `first` makes; shared parts stay shared.

    A value that the first path archives and the second takes back never leaves the record.
    """
    substitute = _substitution(first, archives)
    return {number: substitute(derivation) for number, derivation in second.items()}


def compose_archives(
    first: Derivations, archives: Archives, second: Derivations, following: Archives
) -> dict[Slot, Derivation]:
    """What two paths together archive: less what the second one takes back."""
    substitute = _substitution(first, archives)
    taken = {restored.slot for d in second.values() for restored in restored_in(d)}
    kept = {slot: derivation for slot, derivation in archives.items() if slot not in taken}
    return kept | {slot: substitute(derivation) for slot, derivation in following.items()}


def _substitution(first: Derivations, archives: Archives) -> Callable[[Derivation], Derivation]:
    done: dict[int, Derivation] = {}

    def substitute(derivation: Derivation) -> Derivation:
        match derivation:
            case SourceField(number):
                return first[number]
            case Constant():
                return derivation
            case Restored(slot) if slot in archives:
                return archives[slot]
        if id(derivation) not in done:
            done[id(derivation)] = _with_parts(derivation, substitute)
        return done[id(derivation)]

    return substitute


def _with_parts(
    whole: Restored | Recast | Computed, change: Callable[[Derivation], Derivation]
) -> Derivation:
    """The same derivation of other parts."""
    match whole:
        case Restored():
            return replace(whole, otherwise=change(whole.otherwise))
        case Recast():
            return replace(whole, value=change(whole.value))
        case Computed():
            inputs = {name: change(part) for name, part in whole.inputs.items()}
            return replace(whole, inputs=inputs)


def copied_from(derivation: Derivation) -> int | None:
    """The number of the source field whose bytes the derivation passes on as they are."""
    while isinstance(derivation, Recast) and derivation.keeps_bytes:
        derivation = derivation.value
    return derivation.number if isinstance(derivation, SourceField) else None


def inputs_of(derivation: Derivation) -> frozenset[int]:
    """The numbers of the source fields that the derivation reads."""
    if isinstance(derivation, SourceField):  # most are
        return frozenset((derivation.number,))
    return frozenset(
        part.number for part in subderivations(derivation) if isinstance(part, SourceField)
    )


def inputs_made_of(derivation: Derivation, kept: Collection[int]) -> frozenset[int]:
    """The numbers of the source fields of which the value is made again when they change: those
    that it reads, but not in the place of an archived value, unless that is one of the cells of
    `kept`, which are made again themselves."""
    found, waiting = set[int](), [derivation]
    seen = set[int]()
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, SourceField):
            found.add(part.number)
        elif not isinstance(part, Restored) or part.slot.number in kept:
            waiting += _read_by(part)
    return frozenset(found)


def restored_in(derivation: Derivation) -> list[Restored]:
    """Return the archived values that a derivation restores."""
    if isinstance(derivation, SourceField):  # most are
        return []
    return [part for part in subderivations(derivation) if isinstance(part, Restored)]


def read_by_expressions(derivation: Derivation) -> list[Derivation]:
    """Return the parts of a derivation that its expressions read, themselves or by other parts."""
    found: dict[int, Derivation] = {}
    for part in reversed(subderivations(derivation)):
        if isinstance(part, Computed) or id(part) in found:
            found |= {id(inner): inner for inner in _read_by(part)}
    return list(found.values())


def subderivations(derivation: Derivation) -> list[Derivation]:
    """Return a derivation's parts and itself, each once and after the parts that it reads.

    A derivation is as deep as the chain is long, and its parts are shared. So there is no
    recursion, and each part is visited only once.
    """
    ordered: dict[int, Derivation] = {}
    waiting: list[Derivation] = [derivation]
    while waiting:
        part = waiting[-1]
        needed = [inner for inner in _read_by(part) if id(inner) not in ordered]
        if needed and id(part) not in ordered:
            waiting += needed
        else:
            ordered[id(waiting.pop())] = part
    return list(ordered.values())


def _read_by(derivation: Derivation) -> Iterable[Derivation]:
    match derivation:
        case Computed(_, inputs):
            return inputs.values()
        case Restored(_, otherwise):
            return (otherwise,)
        case Recast(value):
            return (value,)
        case SourceField() | Constant():
            return ()
