"""`zapdb metrics`, `zapdb --log-json`, `zapdb convert watch`: what stands beside a deployment."""

from __future__ import annotations

import json
import signal

from tests.cli.program import Project
from tests.support import GUARD_SECONDS


def test_metrics_as_text_and_as_json(people: Project) -> None:
    text = people.run("metrics").out
    assert "# TYPE zapdb_stored_end gauge\n" in text
    assert 'zapdb_tenant_position{tenant="default"} ' in text
    assert 'zapdb_records{table="people",tenant="default"} ' in text
    assert "zapdb_records{" not in people.run("metrics", "--no-counts").out
    found = people.run("metrics", "--json").json["metrics"]
    positions = [one for one in found if one["name"] == "zapdb_tenant_position"]
    assert [one["labels"] for one in positions] == [{"tenant": "default"}]


def test_what_is_logged_is_json_on_standard_error(people: Project) -> None:
    result = people.run_process("--log-json", "convert", "run", "--json")
    assert result.status == 0
    lines = [json.loads(line) for line in result.err.splitlines()]
    assert [line["event"] for line in lines] == ["job.done"] * len(result.json["jobs"])
    assert lines


def test_watch_runs_jobs_as_they_come_up_and_ends_when_it_should(people: Project) -> None:
    with people.start("convert", "watch", "--json") as process:
        assert process.stdout is not None
        ran = json.loads(process.stdout.readline())
        assert (ran["table"], ran["superseded"]) == ("people", False)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=GUARD_SECONDS)
    assert process.returncode == 130
    assert err.endswith("interrupted\n")
    result = people.run("convert", "watch", "--for", "0.1")
    assert result.status == 0
    assert result.out.count("converted") <= 1
    assert people.run("convert", "watch", "--for", "0.1").out == ""
