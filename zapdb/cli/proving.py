"""`zapdb migrate prove`: round-trip tests of migrations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from zapdb.activation import TenantCatalog
from zapdb.activation.file_comparison import compare_files
from zapdb.activation.served_schema import require_not_due
from zapdb.cli.configuration import MigrationsOption, find_migrations
from zapdb.cli.connecting import TenantOptions
from zapdb.cli.output import Output, Part, format_count, report_error
from zapdb.errors import EXIT_ERROR
from zapdb.jobs.sampling import TableSample, draw_seed, prove_with_records
from zapdb.migrations import Migration, NumberAllocator, list_files, resolve_files
from zapdb.migrations.proof_findings import LossyField, ProofFinding
from zapdb.migrations.prove import Proof, prove

_SAMPLE_RECORDS = 1_000


def migrate_prove_command(
    options: TenantOptions,
    output: Output,
    migrations: MigrationsOption = None,
    sample: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Also test N records of each table of the database."),
    ] = _SAMPLE_RECORDS,
    seed: Annotated[
        int | None,
        typer.Option(min=0, metavar="S", help="Draw the same records as an earlier run."),
    ] = None,
) -> int:
    """Send sample records up and down each migration, and compare: a round-trip test.

    Every file is tested with records of boundary values and with its own examples. If a database is
    given and exists, records from it are also sent through the pending migrations; nothing is
    written. A field is proven `exact`, or declared `lossy`. Exit status 1 if a field that is
    claimed to be exact does not come back unchanged.

    Each record of a table is drawn with the same probability; `--seed` draws those of an earlier
    run again, if the table has the same keys. Losses of a lossy field are counted, and one
    shortened value is shown as an example. A failure shows no values.

    With `--json`: `{migrations: [{number, label, examples, tables: [{table, records, exact, lossy:
    [{field, operation, because, records, unchanged}]}], failures, warnings}], seed, sampled:
    [{table, records, sampled, unchanged, losses: [{migration, field, operation, because, records,
    unchanged, example: {record, back} or null}], failures}]}`. Failures and warnings are errors in
    the JSON form of all commands.
    """
    directory = find_migrations(migrations)
    before = options.read_before(directory)
    chain = resolve_files(list_files(directory), before, NumberAllocator.provisional())
    proofs = [prove(migration) for migration in chain.after(0 if before is None else before.end)]
    sampled: list[TableSample] = []
    if sample and options.is_given:
        seed = draw_seed() if seed is None else seed
        sampled = _try_records(options, directory, sample, seed)
    _write_proofs(proofs, output)
    _write_sampled(sampled, seed, output)
    failures = [finding for proof in proofs for finding in proof.failures]
    failures += [finding for table in sampled for finding in table.failures]
    output.document(
        {
            "migrations": [_proof_to_json(proof) for proof in proofs],
            "seed": seed if sampled else None,
            "sampled": [_sample_to_json(table) for table in sampled],
        }
    )
    if not output.as_json:
        for finding in failures:
            report_error(finding.to_error(), as_json=False)
    return EXIT_ERROR if failures else 0


def _try_records(
    options: TenantOptions, directory: Path, sample: int, seed: int
) -> list[TableSample]:
    with options.connected() as storage:
        catalog = options.read_catalog_if_any(storage)
        if catalog is None:
            return []
        return prove_with_records(storage, catalog, _pending(directory, catalog), sample, seed)


def _pending(directory: Path, catalog: TenantCatalog) -> Sequence[Migration]:
    """Return the migrations that are not active yet, stored or not."""
    require_not_due(catalog)
    files = compare_files(list_files(directory), catalog.stored, catalog.stored_chain).pending
    chain = resolve_files(files, catalog.stored_chain, NumberAllocator.provisional())
    return chain.after(catalog.position)


def _write_proofs(proofs: list[Proof], output: Output) -> None:
    rows: list[Sequence[Part]] = []
    for proof in proofs:
        for table in proof.tables:
            failed = {f.field for f in proof.failures if f.table == table.table and f.field}
            tried = f"{table.tried:,}"
            name = f"{table.table}."
            rows += ((proof.label, name + f, ("exact", "green"), tried, "") for f in table.exact)
            rows += (
                (proof.label, name + loss.field, ("lossy", "yellow"), tried, _explain(loss))
                for loss in table.lossy
            )
            rows += (
                (proof.label, name + f, ("not proven", "bold red"), tried, "")
                for f in sorted(failed)
            )
    output.table(
        ("migration", "field", "rollback", "records", "reason"),
        rows,
        right=("records",),
        empty="no migration changes the contents of records",
    )
    for proof in proofs:
        for remark in proof.remarks:
            output.write()
            output.write(("warning: ", "bold"), str(remark.to_error()))
    examples = sum(proof.examples for proof in proofs)
    broken = sum(bool(proof.failures) for proof in proofs)
    output.write()
    output.write(
        f"{format_count(len(proofs), 'migration')} and {format_count(examples, 'example')} tried: ",
        (f"{broken} not proven", "bold red") if broken else ("every loss is declared", "green"),
    )


def _explain(loss: LossyField) -> str:
    because = loss.because
    if not because and loss.operation in ("transform", "change_type"):
        because = "no reason is given"
    told = f"{loss.operation}: {because}" if because else loss.operation
    if loss.returned == loss.tried:
        return f"{told} (all came back)"
    shown = ""
    if loss.example is not None and loss.example.back:
        shown = f"; {_join(loss.example.record)} comes back as {_join(loss.example.back)}"
    return f"{told} ({loss.returned:,} of {loss.tried:,} came back{shown})"


def _join(values: Any) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _write_sampled(sampled: list[TableSample], seed: int | None, output: Output) -> None:
    for table in sampled:
        drawn = f", drawn with --seed {seed}" if table.sampled < table.records else ""
        output.write(
            f"{table.table}: {table.sampled:,} of {format_count(table.records, 'record')} tried"
            f"{drawn}: ",
            _sum_up(table),
        )
        for label, loss in table.losses:
            if loss.returned < loss.tried:
                output.write(f"  {label}  {loss.field}  {_explain(loss)}")


def _sum_up(table: TableSample) -> Part:
    if table.failures:
        return f"{len(table.failures)} not proven", "bold red"
    if table.returned < table.sampled:
        return f"{table.returned:,} came back unchanged", "yellow"
    return ("all came back", "green") if table.sampled else "the table has no records"


def _proof_to_json(proof: Proof) -> dict[str, Any]:
    return {
        "number": proof.number,
        "label": proof.label,
        "examples": proof.examples,
        "tables": [
            {
                "table": table.table,
                "records": table.tried,
                "exact": table.exact,
                "lossy": [_loss_to_json(loss) for loss in table.lossy],
            }
            for table in proof.tables
        ],
        "failures": _to_json(proof.failures),
        "warnings": _to_json(proof.remarks),
    }


def _sample_to_json(table: TableSample) -> dict[str, Any]:
    return {
        "table": table.table,
        "records": table.records,
        "sampled": table.sampled,
        "unchanged": table.returned,
        "losses": [
            {"migration": label, **_loss_to_json(loss), "example": _example_to_json(loss)}
            for label, loss in table.losses
        ],
        "failures": _to_json(table.failures),
    }


def _loss_to_json(loss: LossyField) -> dict[str, Any]:
    return {
        "field": loss.field,
        "operation": loss.operation,
        "because": loss.because or None,
        "records": loss.tried,
        "unchanged": loss.returned,
    }


def _example_to_json(loss: LossyField) -> dict[str, Any] | None:
    if loss.example is None:
        return None
    return {"record": dict(loss.example.record), "back": dict(loss.example.back)}


def _to_json(findings: Sequence[ProofFinding]) -> list[dict[str, Any]]:
    return [finding.to_error().to_json() for finding in findings]
