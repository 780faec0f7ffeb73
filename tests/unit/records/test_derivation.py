from zapdb.expressions import Type, parse_expression
from zapdb.records import Computed, Constant, Derivation, SourceField, compose
from zapdb.records.derivation import inputs_of, subderivations
from zapdb.values import String

TEXT = Type(String())


def computed(text: str, **inputs: Derivation) -> Computed:
    return Computed(parse_expression(text), inputs, dict.fromkeys(inputs, TEXT), TEXT)


def test_composition_substitutes_what_the_first_step_made() -> None:
    constant = Constant("x")
    first: dict[int, Derivation] = {
        1: SourceField(1),
        5: computed("lower(a)", a=SourceField(2)),
        6: constant,
    }
    composed = compose(
        first, {1: SourceField(1), 7: computed("join(b, c)", b=SourceField(5), c=SourceField(6))}
    )
    assert composed[1] == SourceField(1)
    joined = composed[7]
    assert isinstance(joined, Computed)
    assert joined.inputs == {"b": first[5], "c": constant}
    assert inputs_of(joined) == {2}


def test_what_a_later_step_throws_away_is_gone() -> None:
    first: dict[int, Derivation] = {1: SourceField(1), 2: computed("lower(a)", a=SourceField(9))}
    composed = compose(first, {1: SourceField(1), 3: Constant(None)})
    assert frozenset().union(*map(inputs_of, composed.values())) == {1}


def test_shared_parts_stay_shared() -> None:
    shared = computed("lower(a)", a=SourceField(1))
    second = compose(
        {2: shared}, {3: computed("b", b=SourceField(2)), 4: computed("b", b=SourceField(2))}
    )
    three, four = second[3], second[4]
    assert isinstance(three, Computed)
    assert isinstance(four, Computed)
    assert three.inputs["b"] is four.inputs["b"] is shared
    within = computed("join(a, a)", a=shared)
    again = compose({1: SourceField(7)}, {5: within, 6: within})
    assert again[5] is again[6]


def test_parts_come_once_and_after_what_they_read() -> None:
    inner = computed("lower(a)", a=SourceField(1))
    left, right = computed("upper(a)", a=inner), computed("strip(a)", a=inner)
    outer = computed("join(a, b)", a=left, b=right, c=Constant("x"))
    ordered = [part for part in subderivations(outer) if isinstance(part, Computed)]
    assert {id(part) for part in ordered} == {id(part) for part in (inner, left, right, outer)}
    assert len(ordered) == 4
    assert ordered[0] is inner
    assert ordered[-1] is outer
    assert subderivations(SourceField(1)) == [SourceField(1)]


def test_long_and_shared_derivations_take_neither_stack_nor_time() -> None:
    derivation: Derivation = SourceField(1)
    for _ in range(5_000):
        derivation = computed("join(a, b)", a=derivation, b=derivation)
    assert inputs_of(derivation) == {1}
    assert len(subderivations(derivation)) == 5_001
