"""Types of expressions: every expression has one type, known when its file is loaded.

The expected type matters only for enums: if an enum is expected, a string literal is the member of
that name, and `member(text, else=…)` the member that a text names. An enum is expected next to
another value of it (in a comparison, a branch, `coalesce`, `else=`, among the items of a list), and
of the whole expression if its field is an enum.

A field is of its type without `optional` where the tests before it say that it is not null (see
`narrowing`). To test it for null there all the same is no error: "never null" is said of what is
so by the declared types alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, assert_never

from zapdb.errors import suggest
from zapdb.expressions.arithmetic import FAILED, decimal_operation, saturate
from zapdb.expressions.functions import (
    BOOLEAN,
    FUNCTIONS,
    INTEGER,
    STRING,
    Function,
    is_constant,
    widen,
)
from zapdb.expressions.tokens import ExpressionError
from zapdb.expressions.tree import (
    Arithmetic,
    ArithmeticOperator,
    Call,
    Compare,
    ComparisonOperator,
    Conditional,
    Expression,
    IsNull,
    Literal,
    Logic,
    LogicalNot,
    LogicalOperator,
    Name,
    Negate,
    Type,
    TypedExpression,
)
from zapdb.limits import DECIMAL_SCALE_MAX
from zapdb.values import Decimal, Enum, Float, Integer, Json, List, String, Struct, ValueType

# What a test says of nulls: `f is not None and f >= 17` compares no null.
#
# Operands of `and` and `or` are evaluated from the left, and no further than needed; of a
# conditional only the branch that its test selects. So what is known where an operand is
# evaluated follows from how the tests before it came out. Only fields are followed, since that is
# what people test; a field has one value throughout an expression.

NO_FIELDS = frozenset[str]()


@dataclass(frozen=True, slots=True)
class NotNull:
    """Which fields are not null wherever a test is true, and wherever it is false."""

    if_true: frozenset[str] = NO_FIELDS
    if_false: frozenset[str] = NO_FIELDS

    def flip(self) -> NotNull:
        return NotNull(self.if_false, self.if_true)

    def given(self, outcome: bool) -> frozenset[str]:
        return self.if_true if outcome else self.if_false


NOTHING_KNOWN = NotNull()


def find_not_null(test: Expression) -> NotNull:
    """What the outcomes of a test, a boolean, say of fields."""
    match test:
        case IsNull(Name(name), negated):
            found = NotNull(if_false=frozenset((name,)))
            return found.flip() if negated else found
        case LogicalNot(operand):
            return find_not_null(operand).flip()
        case Logic(operator, operands):
            first, *rest = map(find_not_null, operands)
            match operator:
                case "and":
                    return _any_of(first.flip(), [other.flip() for other in rest]).flip()
                case "or":
                    return _any_of(first, rest)
                case _:
                    assert_never(operator)
        case Conditional(condition, then, otherwise):
            tested = find_not_null(condition)
            left, right = find_not_null(then), find_not_null(otherwise)
            return NotNull(
                (tested.if_true | left.if_true) & (tested.if_false | right.if_true),
                (tested.if_true | left.if_false) & (tested.if_false | right.if_false),
            )
    return NOTHING_KNOWN


def _any_of(first: NotNull, rest: list[NotNull]) -> NotNull:
    """What `or` says: one operand is true and those before it are not, or none is true."""
    if_true, if_false = first.if_true, first.if_false
    for operand in rest:
        if_true &= if_false | operand.if_true
        if_false |= operand.if_false
    return NotNull(if_true, if_false)


COALESCE: Final = "coalesce"
MEMBER: Final = "member"
BOOLEAN_TYPE: Final = Type(BOOLEAN)

INSTEAD: Final = {"//": "quotient(a, b, else=…)", "%": "remainder(a, b, else=…)"}
"""What divides by something that may be 0."""

SPECIAL: Final = {
    COALESCE: "The first value, or the second where that is null.",
    MEMBER: "The member of the wanted enum that the text names.",
}
"""Functions whose types no entry of the registry could say."""


def infer_type(
    expression: Expression, fields: Mapping[str, Type], wanted: Type | None = None
) -> Type:
    """The type of the expression over these fields; raises `ExpressionError`.

    It need not fit the wanted type: that is what `check_assignable` is for.
    """
    return annotate_types(expression, fields, wanted).type


def check_assignable(expression: Expression, fields: Mapping[str, Type], wanted: Type) -> None:
    """Raises `ExpressionError` unless the expression gives what may be stored as `wanted`."""
    found = infer_type(expression, fields, wanted)
    if not found.fits(wanted):
        raise ExpressionError(f"the result must be {wanted}, not {found}")


def annotate_types(
    expression: Expression,
    fields: Mapping[str, Type],
    wanted: Type | None = None,
    *,
    is_generated: bool = False,
) -> TypedExpression:
    """The expression with the types of all its parts; raises `ExpressionError`.

    Expressions that zapdb has put together itself may test for null what is never null.
    """
    kind = wanted.kind if wanted is not None else None
    return _Checker(fields, is_generated).check(expression, kind)


class _Checker:
    """Checks expressions over `fields`, of which `not_null` are not null where they stand."""

    narrows = True

    def __init__(
        self, fields: Mapping[str, Type], is_generated: bool, not_null: frozenset[str] = NO_FIELDS
    ) -> None:
        self.fields = fields
        self.is_generated = is_generated
        self.not_null = not_null

    def after(self, test: Expression, outcome: bool) -> _Checker:
        """The checker of what is evaluated after the test came out like this."""
        found = find_not_null(test).given(outcome)
        if found <= self.not_null or not self.narrows:
            return self
        return _Checker(self.fields, self.is_generated, self.not_null | found)

    def check(  # noqa: C901 - a case for each kind of expression
        self, expression: Expression, wanted: ValueType | None = None
    ) -> TypedExpression:
        match expression:
            case Literal(value, column):
                return _check_literal(expression, value, column, wanted)
            case Name(name, column):
                if name not in self.fields:
                    there = ", ".join(sorted(self.fields))
                    raise ExpressionError(
                        f"there is no field {name!r} here", column, f"available: {there}"
                    )
                declared = self.fields[name]
                known = Type(declared.kind) if name in self.not_null else declared
                return TypedExpression(expression, known)
            case Conditional(test, then, otherwise, column):
                wanted = self._find_enum(wanted, then, otherwise)
                condition = self._check_boolean(test)
                left = self.after(test, True).check(then, wanted)
                right = self.after(test, False).check(otherwise, wanted)
                united = _unite(left.type, right.type, column)
                return TypedExpression(expression, united, (condition, left, right))
            case Compare(operator, left, right, column):
                wanted = self._find_enum(None, left, right)
                parts = (self.check(left, wanted), self.check(right, wanted))
                _check_comparison(operator, parts[0].type, parts[1].type, column)
                return TypedExpression(
                    expression, BOOLEAN_TYPE, parts, apply=_equality(parts[0].type.kind)
                )
            case IsNull(operand, _, column):
                part = self.check(operand)
                if self._is_never_null(operand, part.type):
                    raise ExpressionError("this is never null", column)
                return TypedExpression(expression, BOOLEAN_TYPE, (part,))
            case Logic(operator, operands):
                checker, tests = self, list[TypedExpression]()
                for operand in operands:
                    tests.append(checker._check_boolean(operand))
                    checker = checker.after(operand, outcome=_goes_on_after(operator))
                return TypedExpression(expression, BOOLEAN_TYPE, tuple(tests))
            case LogicalNot(operand):
                return TypedExpression(expression, BOOLEAN_TYPE, (self._check_boolean(operand),))
            case Arithmetic(operator, left, right):
                return _check_arithmetic(expression, operator, self.check(left), self.check(right))
            case Negate(operand):
                return _check_arithmetic(expression, "-", self.check(operand))
            case Call():
                return self._check_call(expression, wanted)

    def _is_never_null(self, expression: Expression, found: Type) -> bool:
        """Whether a test of it for null is a mistake, by the declared types alone."""
        if found.optional or self.is_generated:
            return False
        try:
            return not _WithoutNarrowing(self.fields, True).check(expression).type.optional
        except ExpressionError:  # a part takes no null, and is never null here
            return True

    def _check_boolean(self, expression: Expression) -> TypedExpression:
        found = self.check(expression)
        if not found.type.fits(BOOLEAN_TYPE):
            raise ExpressionError(
                f"this must be {BOOLEAN_TYPE}, not {found.type}", expression.column
            )
        return found

    def _find_enum(self, wanted: ValueType | None, *parts: Expression) -> ValueType | None:
        """The enum that is wanted, or that one of the parts is without being asked."""
        if isinstance(wanted, Enum):
            return wanted
        for part in parts:
            match part:
                case Name(name) if name in self.fields:
                    found = self.fields[name].kind
                case Conditional(_, then, otherwise):
                    found = self._find_enum(None, then, otherwise)
                case Call(function, arguments) if function == COALESCE:
                    found = self._find_enum(None, *arguments)
                case Call(function, _, on_failure) if function == MEMBER and on_failure is not None:
                    found = self._find_enum(None, on_failure)
                case _:
                    continue
            if isinstance(found, Enum):
                return found
        return None

    def _check_call(self, call: Call, wanted: ValueType | None) -> TypedExpression:
        if call.function == COALESCE:
            return self._check_coalesce(call, wanted)
        if call.function == MEMBER:
            return self._check_member(call, wanted)
        function = FUNCTIONS.get(call.function)
        if function is None:
            raise ExpressionError(
                f"there is no function {call.function!r}",
                call.column,
                _hint_for_function(call.function),
            )
        resolved = function.resolve(call, self._check_arguments(call, function))
        result = Type(resolved.kind)
        if not function.partial or is_constant(call, resolved):
            if call.on_failure is not None:
                message = f"{call.function}() never fails: else= has no use"
                raise ExpressionError(message, call.column)
            return TypedExpression(call, result, resolved.arguments, apply=resolved.apply)
        fallback = widen(self._check_fallback(call, None), resolved.kind)
        united = _unite(result, fallback.type, call.column)
        return TypedExpression(call, united, (*resolved.arguments, fallback), apply=resolved.apply)

    def _check_fallback(self, call: Call, wanted: ValueType | None) -> TypedExpression:
        if call.on_failure is None:
            raise ExpressionError(
                f"{call.function}() can fail", call.column, "say what then: add else=…"
            )
        return self.check(call.on_failure, wanted)

    def _check_arguments(self, call: Call, function: Function) -> tuple[TypedExpression, ...]:
        kinds = list(function.parameters)
        if function.variadic:
            kinds += kinds[-1:] * (len(call.arguments) - len(kinds))
        _check_count(call, len(kinds))
        checked: list[TypedExpression] = []
        for argument, takes in zip(call.arguments, kinds, strict=True):
            first = checked[0].type.kind if checked else None
            wanted = first.items if isinstance(first, List) else None
            found = self.check(argument, wanted)
            _check_argument(call, argument, found.type, takes)
            checked.append(found)
        return tuple(checked)

    def _check_coalesce(self, call: Call, wanted: ValueType | None) -> TypedExpression:
        if len(call.arguments) != 2 or call.on_failure is not None:
            raise ExpressionError(
                "coalesce() takes a value and a replacement for null", call.column
            )
        wanted = self._find_enum(wanted, *call.arguments)
        value, default = (self.check(argument, wanted) for argument in call.arguments)
        if self._is_never_null(call.arguments[0], value.type):
            raise ExpressionError("this is never null", call.arguments[0].column)
        united = _unite(value.type, default.type, call.column)
        optional = value.type.optional and default.type.optional
        return TypedExpression(call, Type(united.kind, optional), (value, default))

    def _check_member(self, call: Call, wanted: ValueType | None) -> TypedExpression:
        _check_count(call, 1)
        (argument,) = call.arguments
        text = self.check(argument)
        _check_argument(call, argument, text.type, (String,))
        wanted = self._find_enum(wanted, call)
        if not isinstance(wanted, Enum):
            raise ExpressionError(
                "member() makes a member of an enum, but another type is expected here", call.column
            )
        fallback = self._check_fallback(call, wanted)
        united = _unite(Type(wanted), fallback.type, call.column)
        return TypedExpression(call, united, (text, fallback), apply=_find_member(wanted))


class _WithoutNarrowing(_Checker):
    """Goes by the declared types alone, and lets all tests for null pass."""

    narrows = False


def _check_literal(
    literal: Literal, value: str | int | bool | None, column: int, wanted: ValueType | None
) -> TypedExpression:
    match value:
        case None:
            kind = Type(None, optional=True)
        case bool():
            kind = BOOLEAN_TYPE
        case int():
            kind = Type(INTEGER)
        case str() if isinstance(wanted, Enum):
            if value not in _members_of(wanted):
                raise ExpressionError(
                    f"{wanted} has no member {value!r}", column, f"it has {wanted.expected}"
                )
            kind = Type(wanted)
        case str():
            kind = Type(STRING)
    return TypedExpression(literal, kind, value=value)


def _unite(left: Type, right: Type, column: int) -> Type:
    if left.kind is None or right.kind is None:
        return Type(left.kind or right.kind, optional=True)
    if left.kind != right.kind:
        raise ExpressionError(
            f"both branches must have the same type, not {left} and {right}", column
        )
    return Type(left.kind, left.optional or right.optional)


def _goes_on_after(operator: LogicalOperator) -> bool:
    """The outcome of an operand after which the next one is evaluated."""
    match operator:
        case "and":
            return True
        case "or":
            return False
        case _:
            assert_never(operator)


def _check_comparison(operator: ComparisonOperator, left: Type, right: Type, column: int) -> None:
    if left.optional or right.optional:
        raise ExpressionError(
            "one side may be null", column, "test `is None` before, or use coalesce()"
        )
    numbers = isinstance(left.kind, Integer | Decimal) and isinstance(right.kind, Integer | Decimal)
    if not numbers and left.kind != right.kind:
        raise ExpressionError(f"{left} and {right} cannot be compared", column)
    if left.kind is not None and not left.kind.comparable:
        raise ExpressionError(f"{left} cannot be compared", column)
    match operator:
        case "==" | "!=":
            pass
        case "<" | "<=" | ">" | ">=":
            if left.kind is not None and not left.kind.ordered:
                raise ExpressionError(f"{left} has no order", column)
        case _:
            assert_never(operator)


def _equality(kind: ValueType | None) -> Callable[[Any, Any], bool] | None:
    """What tells equal values, where Python's == sees 1 in true, or NaN by its identity."""
    return kind.is_same if isinstance(kind, Json | List | Struct) else None


def _members_of(kind: Enum) -> frozenset[str]:
    return frozenset(name for _, name in kind.members)


def _find_member(kind: Enum) -> Callable[[str], Any]:
    members = _members_of(kind)
    return lambda text: text if text in members else FAILED


def _check_count(call: Call, wanted: int) -> None:
    if len(call.arguments) != wanted:
        raise ExpressionError(
            f"{call.function}() takes {wanted} argument{'s' * (wanted != 1)}, not "
            f"{len(call.arguments)}",
            call.column,
        )


_FROM_FLOAT: Final = "convert a float by its text: round(decimal(text(…), 20, else=0), 2)"


def _check_argument(
    call: Call, argument: Expression, found: Type, takes: tuple[type[ValueType], ...]
) -> None:
    if found.optional:
        raise ExpressionError(
            f"{call.function}() takes no null, and this may be one",
            argument.column,
            "test `is None` before, or give it coalesce(…, a value for null)",
        )
    if not isinstance(found.kind, takes):
        names = " or ".join(kind.name for kind in takes)
        raise ExpressionError(
            f"{call.function}() takes {names} here, not {found}",
            argument.column,
            _FROM_FLOAT if isinstance(found.kind, Float) and Decimal in takes else "",
        )


def _check_arithmetic(
    node: Arithmetic | Negate, operator: ArithmeticOperator, *operands: TypedExpression
) -> TypedExpression:
    """Integers and decimals mix, an integer as a decimal of scale 0; floats are by themselves."""
    kinds = [_number_of(operator, operand) for operand in operands]
    if len({isinstance(kind, Float) for kind in kinds}) > 1:
        raise ExpressionError(
            f"`{operator}` does not combine {operands[0].type} and {operands[1].type}",
            node.column,
            "make one of them the other's type: float(…, else=…), decimal(…, scale, else=…)",
        )
    scales = [kind.scale for kind in kinds if isinstance(kind, Decimal)]
    match operator:
        case "//" | "%":
            _check_divisor(operator, operands[0], operands[1])
            can_pass = operator == "//" and operands[1].value == -1
            apply = saturate if can_pass else None
            return TypedExpression(node, Type(INTEGER), operands, apply=apply)
        case "+" | "-":
            scale = max(scales, default=0)
        case "*":
            scale = sum(scales)
        case _:
            assert_never(operator)
    if isinstance(kinds[0], Float):
        return TypedExpression(node, Type(kinds[0]), operands)
    if not scales:
        return TypedExpression(node, Type(INTEGER), operands, apply=saturate)
    if scale > DECIMAL_SCALE_MAX:
        raise ExpressionError(
            f"the product has the scale {scale}; a scale is 0 to {DECIMAL_SCALE_MAX}",
            node.column,
            "take digits from a factor with round(…, scale)",
        )
    operation = "negate" if isinstance(node, Negate) else operator
    return TypedExpression(
        node, Type(Decimal(scale)), operands, apply=decimal_operation(operation, scale)
    )


def _number_of(operator: str, operand: TypedExpression) -> ValueType:
    column = operand.node.column
    if operand.type.optional:
        raise ExpressionError(
            f"`{operator}` takes no null, and this may be one",
            column,
            "test `is None` before, or give it coalesce(…, a value for null)",
        )
    kind = operand.type.kind
    if isinstance(kind, Integer | Decimal | Float):
        return kind
    is_joining = operator == "+" and isinstance(kind, String)
    hint = "texts are put together by join('', a, b)" if is_joining else ""
    raise ExpressionError(f"`{operator}` takes numbers, not {operand.type}", column, hint)


def _check_divisor(operator: str, left: TypedExpression, right: TypedExpression) -> None:
    for operand in (left, right):
        if not isinstance(operand.type.kind, Integer):
            raise ExpressionError(
                f"`{operator}` takes integers, not {operand.type}",
                operand.node.column,
                "write divide(a, b, scale, else=…)",
            )
    if not isinstance(right.node, Literal) or right.value == 0:
        raise ExpressionError(
            f"`{operator}` divides by an integer literal that is not 0",
            right.node.column,
            f"write {INSTEAD[operator]}",
        )


_FUNCTION_HABITS: Final = {
    "cast": "integer",
    "concat": "join",
    "count": "length",
    "endswith": "ends_with",
    "extract": "part",
    "ifnull": "coalesce",
    "int": "integer",
    "len": "length",
    "ltrim": "strip",
    "nvl": "coalesce",
    "rtrim": "strip",
    "startswith": "starts_with",
    "str": "text",
    "substr": "substring",
    "trim": "strip",
}
"""What other languages call a function of this one."""


def _hint_for_function(name: str) -> str:
    there = sorted([*FUNCTIONS, *SPECIAL])
    meant = _FUNCTION_HABITS.get(name.lower())
    guess = f"did you mean {meant!r}?" if meant else suggest(name.lower(), there)
    return f"{guess} available: {', '.join(there)}".lstrip()
