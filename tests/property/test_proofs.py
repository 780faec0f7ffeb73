"""Random chains are proven: what fails is a transform or a change of type, with a reason."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import HealthCheck, given, settings

from tests.forms import cases
from tests.strategies import chains
from zapdb.migrations import Chain, tried_fields
from zapdb.migrations.graph import build_graph, to_mermaid
from zapdb.migrations.lint import RULES, lint
from zapdb.migrations.prove import _try, prove
from zapdb.migrations.round_trip import RECORDS_MAX

unhurried = settings(
    deadline=None, max_examples=cases(150), suppress_health_check=[HealthCheck.too_slow]
)


@unhurried
@given(chains(archives=True))
def test_rule_18_only_what_authors_wrote_can_fail(chain: Chain) -> None:
    """No conversion stops, and all that zapdb inverts by itself comes back."""
    for migration in chain.migrations:
        proof = prove(migration)
        assert prove(migration) == proof
        places = {o.place: o for o in migration.changes}
        for table in proof.tables:
            assert table.tried <= RECORDS_MAX + 50
            names = [*table.exact, *(loss.field for loss in table.lossy)]
            assert len(set(names)) == len(names)
        for failure in proof.failures:
            assert failure.kind == "rollback"
            keyword = places[failure.place].keyword
            # What an author puts in the place of null takes the place of the null of JSON, too.
            is_null_filled = keyword == "make_optional" and failure.record[failure.field] == "None"
            assert keyword in ("transform", "change_type") or is_null_filled
            assert failure.field in failure.record
            assert failure.back.keys() == {failure.field}


@unhurried
@given(chains(archives=True))
def test_a_proof_finds_the_same_without_the_fields_that_it_leaves_out(chain: Chain) -> None:
    """Of small tables, too, as if they had many fields that are copied."""
    for migration in chain.migrations:
        with patch.object(tried_fields, "COPIED_MAX", -1):
            narrow = _try(migration)
        with patch.object(tried_fields, "COPIED_MAX", 10_000):
            whole = _try(migration)
        assert narrow == whole


@unhurried
@given(chains(archives=True))
def test_every_chain_can_be_linted_and_drawn(chain: Chain) -> None:
    assert {finding.code for finding in lint(chain, {})} <= RULES.keys()
    graph = build_graph(chain)
    assert all(number < node.number for node in graph.migrations for number in node.after)
    assert to_mermaid(graph).count("\n") >= chain.end
