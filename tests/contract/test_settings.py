"""Settings: what holds for what, and what can't be set."""

from __future__ import annotations

import itertools
import os

import pytest

from tests.contract.tables import ITEMS
from tests.support import Workspace, dump
from zapdb.catalog import settings
from zapdb.catalog.cluster import ensure_database
from zapdb.catalog.settings import PROFILES, SCOPE_LEVELS, SETTINGS, Scope, Setting
from zapdb.catalog.stored_settings import (
    read_settings,
    require_schema_changes_allowed,
    unset_setting,
    write_setting,
)
from zapdb.errors import CorruptCatalog, SchemaChangesRefused, UnknownName, UsageError
from zapdb.storage import Storage, TransactionMode

pytestmark = pytest.mark.long_on("postgresql")


@pytest.fixture
def storage(workspace: Workspace) -> Storage:
    storage = workspace.connect()
    ensure_database(storage, create=True)
    return storage


@pytest.fixture
def color(monkeypatch: pytest.MonkeyPatch) -> Setting:
    """A setting that may be set for everything."""
    made = Setting("color", "gray", SCOPE_LEVELS, ("gray", *map(str, range(6))), "A color.")
    monkeypatch.setitem(settings.SETTINGS, "color", made)
    monkeypatch.setitem(settings.PROFILES, "production", {"color": "5"})
    return made


def write(storage: Storage, name: str, value: str, scope: Scope) -> int:
    with storage.transaction(SETTINGS[name].mode) as connection:
        return write_setting(connection, name, value, scope)


SCOPES = [
    Scope(1, 2, 3),
    Scope(None, 2, 3),
    Scope(1, 2),
    Scope(None, 2),
    Scope(1),
    Scope(),
]
"""From the narrowest to the widest."""


def test_rule_14_the_narrowest_setting_holds(storage: Storage, color: Setting) -> None:
    for chosen in itertools.product((False, True), repeat=len(SCOPES)):
        with storage.transaction(TransactionMode.CATALOG) as connection:
            for at, scope in enumerate(SCOPES):
                if chosen[at]:
                    write_setting(connection, "color", str(at), scope)
                else:
                    unset_setting(connection, "color", scope)
            found = read_settings(connection, 1)
        for at, scope in enumerate(SCOPES):
            # Tenant 1's own table is below every tenant's table, not below what is tenant 1's.
            wider = [n for n in range(at, 6) if chosen[n] and covers(SCOPES[n], scope)]
            wanted = (str(wider[0]), SCOPES[wider[0]].level) if wider else ("gray", "default")
            assert found.find("color", scope) == wanted, (chosen, scope)


def covers(wide: Scope, narrow: Scope) -> bool:
    return all(
        here in (None, there)
        for here, there in (
            (wide.tenant, narrow.tenant),
            (wide.table, narrow.table),
            (wide.field, narrow.field),
        )
    )


def test_rule_14_the_profile_says_what_is_not_set(storage: Storage, color: Setting) -> None:
    write(storage, "profile", "production", Scope())
    assert read_settings(storage.connection(), 1).find("color", Scope()) == ("5", "profile")
    write(storage, "color", "1", Scope())
    assert read_settings(storage.connection(), 1).find("color", Scope(1)) == ("1", "database")


def test_rule_14_tenants_do_not_see_what_is_set_for_others(storage: Storage) -> None:
    write(storage, "convert", "background", Scope(1))
    assert read_settings(storage.connection(), 1).converts_in_background
    for other in (2, 11):
        assert not read_settings(storage.connection(), other).converts_in_background


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=lambda setting: setting.name)
def test_every_setting_takes_its_values_for_its_scopes(storage: Storage, setting: Setting) -> None:
    numbers = setting.numbers
    good = [*setting.choices, *([str(numbers.lowest), str(numbers.highest)] if numbers else [])]
    if setting.takes_directory:
        good.append(os.path.abspath("stores"))  # noqa: PTH100 - of a text
        bad = ["", "\0", "a\nb", "a\r", "\x1b[2J", "a\u2028b", "\u202eb", "\udc80"]
    else:
        more = [str(numbers.highest + 1)] if numbers else []
        bad = ["", "other", "-1", "1.5", "٣", "9" * 30, *more]
    seqs = [write(storage, setting.name, value, Scope()) for value in [*good, setting.default]]
    assert seqs == sorted(set(seqs))
    before = storage.connection().fetch_all("SELECT * FROM zapdb_catalog WHERE kind = 'setting'")
    for value in bad:
        with pytest.raises(UsageError, match="does not allow this value"):
            write(storage, setting.name, value, Scope())
    for scope in SCOPES:
        if scope.level not in setting.scopes:
            with pytest.raises(UsageError, match="cannot be set for a") as caught:
                write(storage, setting.name, setting.default, scope)
            assert caught.value.context["scopes"] == ", ".join(setting.scopes)
    after = storage.connection().fetch_all("SELECT * FROM zapdb_catalog WHERE kind = 'setting'")
    assert after == before
    for values in PROFILES.values():
        value = values.get(setting.name, setting.default)
        assert setting.normalize(value) == value


def test_numbers_are_kept_in_one_way(storage: Storage) -> None:
    write(storage, "served_window", "007", Scope())
    found = read_settings(storage.connection(), 1)
    assert (found.get("served_window"), found.number("served_window")) == ("7", 7)
    write(storage, "served_window", "all", Scope())
    assert read_settings(storage.connection(), 1).number("served_window") is None


def test_a_stored_value_that_a_setting_can_not_have_is_told(
    workspace: Workspace, storage: Storage
) -> None:
    change = "UPDATE zapdb_catalog SET value = replace(value, ?, ?) WHERE kind = 'setting'"
    write(storage, "served_window", "7", Scope())
    workspace.execute(change, ('"7"', '"-7"'))
    with pytest.raises(CorruptCatalog, match="an invalid value") as caught:
        read_settings(storage.connection(), 1)
    assert caught.value.context["key"] == "*/*/*/served_window"
    workspace.execute("DELETE FROM zapdb_catalog WHERE kind = 'setting'")
    write(storage, "on_read", "leave", Scope())
    workspace.execute(change, ("leave", "Leave!"))
    with pytest.raises(CorruptCatalog, match="none that a release of zapdb writes") as caught:
        read_settings(storage.connection(), 1)
    assert caught.value.context["key"] == "*/*/*/on_read"
    assert str(caught.value.hint).endswith("set it again with `zapdb settings set`")
    workspace.execute(
        "UPDATE zapdb_catalog SET key = '*/*/*/of_later',"
        " value = replace(value, 'on_read', 'of_later') WHERE kind = 'setting'"
    )
    assert read_settings(storage.connection(), 1).get("on_read") == "leave"


def test_a_database_sets_and_takes_back(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    first = db.admin.set_setting("on_read", "write_back", tenant="default", table="items")
    assert db.admin.setting("on_read", table="items") == "write_back"
    assert db.admin.set_setting("on_read", None, tenant="default", table="items") > first
    assert db.admin.setting("on_read", table="items") == "leave"
    before = dump(workspace)
    for wrong in ({"tenant": "nobody"}, {"table": "nothing"}, {"table": "items", "field": "x"}):
        with pytest.raises(UnknownName):
            db.admin.set_setting("on_read", "leave", **wrong)
    assert dump(workspace) == before


def test_rule_06_schema_changes_can_be_refused(storage: Storage) -> None:
    with storage.transaction(TransactionMode.CATALOG) as connection:
        require_schema_changes_allowed(connection)
        require_schema_changes_allowed(connection, 1)
        write_setting(connection, "schema_changes", "refuse", Scope(1))
        require_schema_changes_allowed(connection)
        require_schema_changes_allowed(connection, 2)
        with pytest.raises(SchemaChangesRefused) as caught:
            require_schema_changes_allowed(connection, 1)
        assert caught.value.context == {"setting": "schema_changes", "tenant": 1}
        assert "--tenant NAME" in caught.value.hint
        write_setting(connection, "schema_changes", "refuse")
        write_setting(connection, "schema_changes", "allow", Scope(1))
        require_schema_changes_allowed(connection, 1)
        for tenant in (None, 2):
            with pytest.raises(
                SchemaChangesRefused, match="a setting refuses schema changes"
            ) as caught:
                require_schema_changes_allowed(connection, tenant)
            assert "`zapdb settings set schema_changes allow`" in caught.value.hint
