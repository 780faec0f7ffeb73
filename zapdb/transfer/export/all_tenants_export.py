"""Several tenants as one directory: an export of each, and a list of their names.

DIRECTORY/tenants.json      the names, written last: a directory without it is not whole
DIRECTORY/tenants/0001/     the export of the first tenant, as `directory` writes it
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from zapdb.database import Database
from zapdb.errors import CorruptExport, UsageError
from zapdb.files import mode_of_directory, replace_text_file
from zapdb.jobs.exclusive import OnWait, ProgressReporter
from zapdb.transfer.export.directory import export_directory, make_empty
from zapdb.transfer.export.export_loading import Loaded, check_export, load_export
from zapdb.transfer.export.manifest import (
    FORMAT,
    Form,
    Manifest,
    read_contents,
    require_inside,
)
from zapdb.transfer.export.record_files import TEXT_HINT, require_form

LIST: Final = "tenants.json"
DIRECTORIES: Final = "tenants"


class _ExportedTenant(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    directory: str


class _TenantList(Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    tenants: tuple[_ExportedTenant, ...]


def is_of_all_tenants(directory: str | Path) -> bool:
    """Whether a directory is an export of several tenants."""
    return (Path(directory) / LIST).is_file() or (Path(directory) / DIRECTORIES).is_dir()


def export_all_tenants(
    db: Database,
    directory: str | Path,
    *,
    form: Form = "parquet",
    migrations: str | Path | None = None,
    progress: Callable[[int], object] = lambda _: None,
    pace: ProgressReporter | None = None,
) -> dict[str, Manifest]:
    """Write an export of each tenant, each as of a moment of its own, into a new directory; return
    what was exported, by the tenant's name.

    Raises `UsageError` if tenants are at different positions, and what `export_directory` raises.
    """
    require_form(form, TEXT_HINT)
    target, tenants = Path(directory), db.admin.tenants()
    positions = {tenant.position for tenant in tenants if not tenant.removing}
    if len(positions) > 1:
        raise UsageError(
            "tenants are at different positions, so no one set of migrations is that of all",
            positions=", ".join(map(str, sorted(positions))),
            hint="`zapdb migrate up --all-tenants`, or export each with --tenant",
        )
    make_empty(target, mode_of_directory(db._storage.engine.file_mode))
    (target / DIRECTORIES).mkdir()
    made, listed = dict[str, Manifest](), list[_ExportedTenant]()
    for number, tenant in enumerate((t for t in tenants if not t.removing), 1):
        place = f"{DIRECTORIES}/{number:04d}"
        made[tenant.name] = export_directory(
            db.for_tenant(tenant.name),
            target / place,
            form=form,
            migrations=migrations,
            progress=progress,
            pace=pace,
        )
        listed.append(_ExportedTenant(tenant.name, place))
    text = msgspec.json.format(msgspec.json.encode(_TenantList(FORMAT, tuple(listed))), indent=2)
    replace_text_file(target / LIST, f"{text.decode()}\n")
    return made


def load_all_tenants(
    directory: str | Path,
    url: str,
    *,
    progress: Callable[[int], object] = lambda _: None,
    on_wait: OnWait | None = None,
) -> dict[str, Loaded]:
    """Load each tenant of an export into a tenant of its name, which is made if it is missing.

    Raises what `load_export` raises; a load that was interrupted goes on when it is called again.
    """
    source = Path(directory)
    found = read_contents(
        source, LIST, _TenantList, "list of tenants", "zapdb export DIRECTORY --all-tenants"
    )
    _check(source, source / LIST, found)
    return {
        tenant.name: load_export(
            source / tenant.directory,
            url,
            tenant=tenant.name,
            progress=progress,
            on_wait=on_wait,
        )
        for tenant in found.tenants
    }


def _check(source: Path, path: Path, found: _TenantList) -> None:
    """Check the exports of all tenants, before the first is loaded; raises `CorruptExport`."""
    for tenant in found.tenants:
        require_inside(source, tenant.directory, path)
    for what in ("name", "directory"):
        given = [getattr(tenant, what) for tenant in found.tenants]
        twice = sorted({one for one in given if given.count(one) > 1})
        if twice or not given:
            raise CorruptExport(
                f"the list of tenants of an export has a {what} twice, or has no tenant",
                file=path,
                twice=", ".join(twice),
                hint="it is none that zapdb wrote: export again",
            )
    for tenant in found.tenants:
        check_export(source / tenant.directory)
