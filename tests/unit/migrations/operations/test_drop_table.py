from tests.documents import document, resolve_documents, violations_of

TOWNS = "create_table: {table: towns, key: [id], fields: [{name: id, type: integer}]}"


def test_drop_table_is_understood_in_rollbacks_only() -> None:
    assert violations_of("drop_table: {table: people, records: discard}") == [
        "0002_test.yaml:5:5: drop_table is understood in rollbacks only, in this release"
    ]


def test_what_becomes_of_the_records_is_written_out() -> None:
    expected = {
        "[{drop_table: {table: towns}}]": "3:25: the key 'records' is missing",
        "[{drop_table: {table: towns, records: archive}}]": "3:49: one of discard is needed here",
        "[{drop_table: {table: cities, records: discard}}]": "3:13: no table 'cities' here",
    }
    for rollback, violation in expected.items():
        assert violations_of(TOWNS, rollback=rollback) == [f"0002_test.yaml:{violation}"]


def test_a_rollback_that_drops_another_table_is_refused() -> None:
    drops = (f"{{drop_table: {{table: {t}, records: discard}}}}" for t in ("towns", "people"))
    rollback = f"[{', '.join(drops)}]"
    assert violations_of(TOWNS, rollback=rollback) == [
        "0002_test.yaml:1:1: the rollback does not bring back the table 'people' as it was before"
    ]


def test_a_table_that_is_made_and_dropped_again_keeps_its_own_number() -> None:
    chain = resolve_documents(document(TOWNS), document("rename_table: {table: towns, to: cities}"))
    assert [t.number for t in chain.schema_at(2)] == [1]
