"""Named types altered: members come and go; altering back is the inverse."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from zapdb.errors import Location
from zapdb.limits import ENUM_MEMBERS_MAX, STRUCT_MEMBERS_MAX, TYPE_DEPTH_MAX
from zapdb.migrations.document_structure import (
    ABSENT,
    Name,
    ParsingStopped,
    Plain,
    ViolationCollector,
    located,
)
from zapdb.migrations.operations.constraints import checks_on, nested_types
from zapdb.migrations.operations.definitions import (
    TypeDefinition,
    check_plain,
    normal_plain,
    parameters_of,
)
from zapdb.migrations.operations.operation import NumberAllocator, Operation, TypeOperation
from zapdb.records import Derivation, Recast, SourceField
from zapdb.schema import Field, Schema, TableSchema
from zapdb.values import Enum, List, Member, Reference, Struct, ValueType


@dataclass(frozen=True)
class AddedMember:
    """A new member; one of a struct has a type, and a `fill` unless it is optional.

    `back` is the member of an enum that its records get on the way back. `position` counts from 0;
    without it the member comes last.
    """

    name: Name
    type: Name = ABSENT
    scale: int = ABSENT
    items: TypeDefinition = dataclasses.field(default=ABSENT, metadata={"key": "of"})
    to: Name = ABSENT
    optional: bool = ABSENT
    fill: Plain = ABSENT
    back: Name = ABSENT
    position: int = ABSENT
    location: Location = located()

    def __post_init__(self) -> None:
        if self.optional is False:
            object.__setattr__(self, "optional", ABSENT)

    @property
    def definition(self) -> TypeDefinition:
        return TypeDefinition(self.type, self.scale, self.items, self.to, self.location)

    @property
    def is_optional(self) -> bool:
        return self.optional is True

    def normalize(self, schema: Schema) -> AddedMember:
        if self.fill is ABSENT:
            return self
        if self.fill is None and self.is_optional:
            return replace(self, fill=ABSENT)
        plain = normal_plain(self.fill, self.definition.build_type(schema), self.name)
        return replace(self, fill=Plain(plain))

    def build(self, number: int, schema: Schema) -> Member:
        return Member(number, self.name, self.definition.build_type(schema), self.is_optional)


@dataclass(frozen=True)
class RemovedMember:
    """Records get the member `to` of an enum; on the way back, a struct's member is `restore`."""

    to: Name = ABSENT
    restore: Plain = ABSENT
    location: Location = located()

    def normalize(self, member: Member | None) -> RemovedMember:
        """`member` is the one of a struct that goes."""
        if member is None or self.restore is ABSENT:
            return self
        if self.restore is None and member.optional:
            return replace(self, restore=ABSENT)
        return replace(self, restore=Plain(normal_plain(self.restore, member.type, member.name)))


def member_names(declared: Enum | Struct) -> list[str]:
    """The names of its members, in declared order."""
    if isinstance(declared, Enum):
        return [name for _, name in declared.members]
    return [member.name for member in declared.members]


@dataclass(frozen=True)
class AlterType(TypeOperation):
    """Members of an enum or a struct are added, renamed and removed.

        alter_type: {type: state, add: [{name: paused, back: open}], remove: {dropped: {to: done}}}
        alter_type: {type: place, rename: {way: road}, add: [{name: zip, type: string, fill: ""}]}

    All fields of the type change with it, in all tables, also inside lists and structs. Values in
    records are mapped both ways: by `to` and `fill` on the way up, by `back` and `restore` on the
    way back.
    """

    keyword = "alter_type"

    add: tuple[AddedMember, ...] = ()
    rename: dict[Name, Name] = dataclasses.field(default_factory=dict)
    remove: dict[Name, RemovedMember] = dataclasses.field(default_factory=dict)
    location: Location = located()

    def __post_init__(self) -> None:
        for name in ("rename", "remove"):
            object.__setattr__(self, name, dict(sorted(getattr(self, name).items())))
        last = [added for added in self.add if added.position is ABSENT]
        placed = [added for added in self.add if added.position is not ABSENT]
        placed.sort(key=lambda added: int(added.position))
        object.__setattr__(self, "add", (*last, *placed))

    def validate(self, schema: Schema, collector: ViolationCollector) -> None:
        declared = self.find_type(schema, collector)
        noted = len(collector.violations)
        if not (self.add or self.rename or self.remove):
            collector.report(self.place, "nothing is added, renamed or removed")
        self._validate_names(declared, collector)
        if isinstance(declared, Enum):
            self._validate_enum(declared, collector)
        else:
            self._validate_struct(schema, declared, collector)
        if len(collector.violations) == noted:
            self._validate_users(schema, declared, collector)

    def _validate_names(self, declared: Enum | Struct, collector: ViolationCollector) -> None:
        old = member_names(declared)
        for name in (*self.rename, *self.remove):
            if name not in old:
                collector.report(
                    self.place,
                    f"{self.type!r} has no member {name!r}",
                    f"available: {', '.join(old)}",
                )
        for name in sorted(self.rename.keys() & self.remove.keys()):
            collector.report(self.place, f"{name!r} is renamed and removed")
        for name, to in self.rename.items():
            if name == to:
                collector.report(self.place, f"{name!r} is called that already")
        new = self._names_after(declared)
        for twice in sorted({name for name in new if new.count(name) > 1}):
            collector.report(self.place, f"the member {twice!r} stands twice")
        most = ENUM_MEMBERS_MAX if isinstance(declared, Enum) else STRUCT_MEMBERS_MAX
        if not 1 <= len(new) <= most:
            collector.report(self.place, f"a type has 1 to {most} members")
            return
        positions = [added.position for added in self.add if added.position is not ABSENT]
        if len(set(positions)) != len(positions) or not all(0 <= p < len(new) for p in positions):
            collector.report(self.place, f"positions are different, and 0 to {len(new) - 1}")

    def _names_after(self, declared: Enum | Struct) -> list[str]:
        kept = [self.rename.get(Name(n), n) for n in member_names(declared) if n not in self.remove]
        return [*map(str, kept), *(added.name for added in self.add)]

    def _validate_enum(self, declared: Enum, collector: ViolationCollector) -> None:
        before, after = member_names(declared), self._names_after(declared)
        for added in self.add:
            given = (added.type, added.scale, added.items, added.to, added.optional, added.fill)
            if any(value is not ABSENT for value in given):
                collector.report(added.location, "a member of an enum has a name and no type")
            if added.back is not ABSENT and added.back not in before:
                collector.report(
                    added.location,
                    f"{self.type!r} had no member {added.back!r} before",
                    f"available: {', '.join(before)}",
                )
        for name, removed in self.remove.items():
            if removed.restore is not ABSENT:
                collector.report(removed.location, "a member of an enum has nothing to restore")
            if removed.to is ABSENT:
                collector.report(
                    removed.location,
                    f"what do records get that are {name!r}?",
                    f"add to: one of {', '.join(after)}",
                )
            elif removed.to not in after:
                collector.report(
                    removed.location,
                    f"{self.type!r} has no member {removed.to!r} then",
                    f"available: {', '.join(after)}",
                )

    def _validate_struct(
        self, schema: Schema, declared: Struct, collector: ViolationCollector
    ) -> None:
        for added in self.add:
            with contextlib.suppress(ParsingStopped):
                self._validate_added(added, schema, declared, collector)
        by_name = {member.name: member for member in declared.members}
        for name, removed in self.remove.items():
            member, place = by_name.get(name), removed.location
            if removed.to is not ABSENT:
                collector.report(place, "to is for the members of an enum")
            if removed.restore is not ABSENT and member is not None:
                where, optional = f"{self.type}.{name}", member.optional
                check_plain(removed.restore, member.type, optional, where, place, collector)

    def _validate_added(
        self, added: AddedMember, schema: Schema, declared: Struct, collector: ViolationCollector
    ) -> None:
        """Report what is wrong with a new member of a struct."""
        place = added.location
        if added.back is not ABSENT:
            collector.report(place, "back is for the members of an enum")
        if added.type is ABSENT:
            collector.report(place, "a member of a struct has a type")
            return
        kind = added.definition.build_type(schema, collector)
        if kind.depth >= TYPE_DEPTH_MAX:
            collector.report(place, f"types nest at most {TYPE_DEPTH_MAX} deep")
        if declared in nested_types(kind):
            collector.report(place, f"{self.type!r} can't be a part of itself")
        if added.fill is not ABSENT:
            where = f"{self.type}.{added.name}"
            check_plain(added.fill, kind, added.is_optional, where, place, collector)
        elif not added.is_optional:
            collector.report(
                place,
                f"{added.name!r} is required: what do older records get?",
                "add fill: a value",
            )

    def _validate_users(
        self, schema: Schema, declared: Enum | Struct, collector: ViolationCollector
    ) -> None:
        """What is of the type must go on as it is, on the way back, too."""
        altered = self._alter(declared, schema)
        changed = schema.with_type_replaced(altered)
        for outer in changed.types:
            if outer.depth > TYPE_DEPTH_MAX:
                most = f"types nest at most {TYPE_DEPTH_MAX} deep"
                collector.report(self.place, f"{outer} would nest deeper: {most}")
        for before, after in zip(schema, changed, strict=True):
            for old, new in zip(before.fields, after.fields, strict=True):
                if declared in nested_types(old.type):
                    self._validate_user(before, old, new, declared, altered, collector)

    def _validate_user(
        self,
        table: TableSchema,
        old: Field,
        new: Field,
        declared: Enum | Struct,
        altered: Enum | Struct,
        collector: ViolationCollector,
    ) -> None:
        path = f"{table.name}.{old.name}"
        if (self.add or self.remove) and old.number in table.key:
            collector.report(
                self.place,
                f"{path} is part of a key: its members can be renamed, nothing else",
                "another key is a new table and a copy of the records",
            )
        for check in checks_on(table, old.name):
            collector.report(
                self.place,
                f"the check {check.name!r} reads {path}",
                f"put a drop_check of {check.name!r} before this change",
            )
        if new.type.depth > TYPE_DEPTH_MAX:
            most = f"types nest at most {TYPE_DEPTH_MAX} deep"
            collector.report(self.place, f"{path} would nest deeper: {most}")
        if not self._keeps_default(old, new, declared, altered, collector):
            collector.report(
                self.place,
                f"the default of {path} has members that go, and that no rollback brings back",
                f"put a change_default of {old.name!r} before this change",
            )
        for index in table.indexes_on(old.number):
            if not new.type.indexable:
                collector.report(
                    self.place,
                    f"the index {index.name!r} of {table.name!r} can't hold values of type "
                    f"{new.type} then",
                    f"put a drop_index of {index.name!r} before this change",
                )

    def _keeps_default(
        self,
        old: Field,
        new: Field,
        declared: Enum | Struct,
        altered: Enum | Struct,
        collector: ViolationCollector,
    ) -> bool:
        """Whether the field's default is the same again after a rollback."""
        if not self.remove or not old.has_default or old.default is None:
            return True
        (inverse,) = self._invert(declared, ViolationCollector(collector.source))
        there = self._recast(old.type, new.type, declared, altered)
        back = inverse._recast(new.type, old.type, altered, declared)
        assert there is not None
        returned = there(old.default)
        return old.type.is_same(returned if back is None else back(returned), old.default)

    def normalize(self, schema: Schema, number: int) -> Operation:
        declared = self._declared(schema)
        altered = self._alter(declared, schema)
        names = member_names(altered)
        added = sorted(self.add, key=lambda added: names.index(added.name))
        # those at the end come last without a position
        tail = len(added)
        while tail and names.index(added[tail - 1].name) == len(names) - 1 - (len(added) - tail):
            tail -= 1
        placed = [replace(a, position=names.index(a.name)) for a in added[:tail]]
        last = [replace(a, position=ABSENT) for a in added[tail:]]
        add = tuple(a.normalize(schema) for a in (*last, *placed))
        members = {} if isinstance(declared, Enum) else {m.name: m for m in declared.members}
        remove = {n: removed.normalize(members.get(n)) for n, removed in self.remove.items()}
        return replace(self, add=add, remove=remove)

    def without_rollback_hints(self) -> Operation:
        add = tuple(replace(added, back=ABSENT) for added in self.add)
        remove = {name: replace(removed, restore=ABSENT) for name, removed in self.remove.items()}
        return replace(self, add=add, remove=remove)

    def apply(self, schema: Schema, numbers: NumberAllocator) -> Schema:
        declared = self._declared(schema)
        altered = self._alter(declared, schema)
        changed = schema.with_type_replaced(altered)
        for before, after in zip(schema, changed, strict=True):
            fields = tuple(
                self._with_default(old, new, declared, altered)
                for old, new in zip(before.fields, after.fields, strict=True)
            )
            if fields != after.fields:
                changed = changed.with_table(after.with_fields(fields))
        return changed

    def _declared(self, schema: Schema) -> Enum | Struct:
        declared = schema.type_named(self.type)
        assert declared is not None
        return declared

    def _alter(self, declared: Enum | Struct, schema: Schema) -> Enum | Struct:
        def renamed(name: str) -> str:
            return str(self.rename.get(Name(name), name))

        if isinstance(declared, Enum):
            named = [(n, renamed(name)) for n, name in declared.members if name not in self.remove]
            following = max(number for number, _ in declared.members) + 1
            for number, added in enumerate(self.add, following):
                at = len(named) if added.position is ABSENT else added.position
                named.insert(at, (number, added.name))
            return replace(declared, members=tuple(named))
        members = [
            replace(m, name=renamed(m.name)) for m in declared.members if m.name not in self.remove
        ]
        following = max(member.number for member in declared.members) + 1
        for number, added in enumerate(self.add, following):
            at = len(members) if added.position is ABSENT else added.position
            members.insert(at, added.build(number, schema))
        return replace(declared, members=tuple(members))

    def _with_default(
        self, old: Field, new: Field, declared: Enum | Struct, altered: Enum | Struct
    ) -> Field:
        if not old.has_default or old.default is None:
            return new
        recast = self._recast(old.type, new.type, declared, altered)
        return new if recast is None else replace(new, default=recast(old.default))

    def invert(
        self, before: Schema, number: int, collector: ViolationCollector
    ) -> tuple[Operation, ...]:
        return self._invert(self._declared(before), collector)

    def _invert(self, declared: Enum | Struct, collector: ViolationCollector) -> tuple[AlterType]:
        back = {new: old for old, new in self.rename.items()}
        add = []
        for position, name in enumerate(member_names(declared)):
            removed = self.remove.get(Name(name))
            if removed is not None:
                add.append(self._add_again(declared, position, name, removed, collector))
        remove = {}
        for added in self.add:
            if isinstance(declared, Struct):
                fill = ABSENT if added.is_optional and added.fill is ABSENT else added.fill
                remove[added.name] = RemovedMember(restore=Plain(fill))
                continue
            if added.back is ABSENT:
                collector.report_not_exhaustive(
                    added.location,
                    f"no rollback can be inferred: what do records get that are {added.name!r}?",
                    f"add back: one of {', '.join(member_names(declared))}",
                )
            remove[added.name] = RemovedMember(to=added.back)
        return (AlterType(self.type, tuple(add), back, remove),)

    def _add_again(
        self,
        declared: Enum | Struct,
        position: int,
        name: str,
        removed: RemovedMember,
        collector: ViolationCollector,
    ) -> AddedMember:
        if isinstance(declared, Enum):
            return AddedMember(Name(name), back=removed.to, position=position)
        member = declared.members[position]
        if removed.restore is ABSENT and not member.optional:
            collector.report_not_exhaustive(
                removed.location,
                f"no rollback can be inferred: what was in {self.type}.{name} is lost",
                "say what a rollback puts there: add restore: a value",
            )
        return AddedMember(
            Name(name),
            **parameters_of(member.type),
            optional=member.optional or ABSENT,
            fill=removed.restore,
            position=position,
        )

    def lossy_fields(self, before: TableSchema) -> frozenset[int]:
        if not self.remove:
            return frozenset()
        names = {
            f.number: {getattr(kind, "declared_name", "") for kind in nested_types(f.type)}
            for f in before.fields
        }
        return frozenset(number for number, found in names.items() if self.type in found)

    def derive(self, before: TableSchema, after: TableSchema) -> dict[int, Derivation]:
        derived: dict[int, Derivation] = {}
        for old, new in zip(before.fields, after.fields, strict=True):
            pairs = zip(nested_types(old.type), nested_types(new.type), strict=False)
            found = next(
                (pair for pair in pairs if getattr(pair[0], "declared_name", "") == self.type), None
            )
            if found is None:
                continue
            recast = self._recast(old.type, new.type, *found)
            if recast is not None:
                keeps_bytes = self._keeps_bytes(found[0])
                derived[old.number] = Recast(
                    SourceField(old.number), recast, old.type, new.type, keeps_bytes
                )
        return derived

    def _keeps_bytes(self, declared: ValueType) -> bool:
        """Whether values are encoded as before: members of an enum that are added change none."""
        return not self.remove and (isinstance(declared, Enum) or not self.add)

    def _recast(
        self, old: ValueType, new: ValueType, declared: Any, altered: Any
    ) -> ConvertMember | None:
        """What makes a value of `new` of one of `old`; None where they are the same."""
        if isinstance(declared, Enum):
            if not (self.remove or self.rename):
                return None
            names = {name: name for name in member_names(declared)} | {**self.rename}
            names |= {name: removed.to for name, removed in self.remove.items()}
            return within(old, new, declared, names.__getitem__)
        return within(old, new, declared, self._rebuild(declared, altered))

    def _rebuild(self, declared: Struct, altered: Struct) -> ConvertMember:
        made, former = altered.value_class, {new: old for old, new in self.rename.items()}
        fills: dict[str, Any] = {}
        for added in self.add:
            kind = next(m.type for m in altered.members if m.name == added.name)
            is_null = added.fill is ABSENT or (added.fill is None and not kind.holds_null)
            fills[added.name] = None if is_null else kind.from_document(added.fill, added.name)
        sources = [
            (m.name in fills, fills.get(m.name), str(former.get(Name(m.name), m.name)))
            for m in altered.members
        ]

        def rebuild(value: Any) -> Any:
            return made(*(fill if is_new else getattr(value, n) for is_new, fill, n in sources))

        return rebuild


# How values of a declared type become values of the type that it is altered to.
#
# A value is converted in all places of the type: in lists, structs and keys of references.

ConvertMember = Callable[[Any], Any]


def within(
    old: ValueType, new: ValueType, declared: ValueType, convert: ConvertMember
) -> ConvertMember:
    """`convert` applied wherever `declared` stands in values of `old`, which become `new`'s."""
    if declared not in nested_types(old):
        return lambda value: value
    if old == declared:
        return convert
    if isinstance(old, Reference) and isinstance(new, Reference):
        key = [within(*kinds, declared, convert) for kinds in zip(old.key, new.key, strict=True)]
        if len(key) == 1:
            return key[0]
        return lambda value: tuple(part(each) for part, each in zip(key, value, strict=True))
    if isinstance(old, List) and isinstance(new, List):
        item = within(old.items, new.items, declared, convert)
        return lambda value: [item(each) for each in value]
    assert isinstance(old, Struct)
    assert isinstance(new, Struct)
    parts = [
        (m.name, within(m.type, n.type, declared, convert))
        for m, n in zip(old.members, new.members, strict=True)
    ]
    made = new.value_class

    def rebuild(value: Any) -> Any:
        held = ((getattr(value, name), part) for name, part in parts)
        return made(*(None if each is None else part(each) for each, part in held))

    return rebuild
