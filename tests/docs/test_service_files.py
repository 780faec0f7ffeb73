"""The systemd unit and the Kubernetes manifest of docs/guides/watching.md are ones that work."""

from __future__ import annotations

import configparser
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.test_documents import ROOT, blocks
from zapdb.cli.program import app

SECTIONS = {
    "Unit": {"Description", "Documentation", "Wants", "After"},
    "Service": {
        *("Type", "User", "EnvironmentFile", "ExecStart", "Restart", "RestartSec", "Nice"),
        *("TimeoutStopSec", "NoNewPrivileges", "PrivateTmp", "ProtectSystem", "ProtectHome"),
    },
    "Install": {"WantedBy"},
}
"""The directives that the unit may use, by section: systemd ignores what it does not know."""


def file_of(name: str) -> str:
    document = ROOT / "docs" / "guides" / "watching.md"
    (text,) = [body for _, options, body in blocks(document) if options.get("file") == name]
    return text


def accept(arguments: list[str]) -> Any:
    """Parse a command line as the program does, without running the command; returns the options of
    the last command."""
    context = app.make_context("zapdb", list(arguments))
    while (rest := [*context._protected_args, *context.args]) and hasattr(
        context.command, "resolve_command"
    ):
        name, command, rest = context.command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)
    return context


def test_the_unit_runs_a_command_that_the_program_accepts(tmp_path: Path) -> None:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign] # keys keep their case
    parser.read_string(file_of("zapdb-watch.service"))
    assert {name: set(parser[name]) - known for name, known in SECTIONS.items()} == {
        name: set() for name in SECTIONS
    }
    assert set(parser.sections()) == set(SECTIONS)
    service = parser["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    assert Path(program).is_absolute()
    assert Path(program).name == "zapdb"
    context = accept(arguments)
    assert context.info_name == "watch"
    assert context.params["seconds"] is None  # a service that ends by itself is started for ever
    if shutil.which("systemd-analyze"):
        unit = tmp_path / "zapdb-watch.service"
        text = file_of("zapdb-watch.service").replace(program, "/bin/true")
        unit.write_text(text, encoding="utf-8")
        subprocess.run(["systemd-analyze", "verify", str(unit)], check=True)


def test_the_manifest_runs_a_command_that_the_program_accepts() -> None:
    manifest = yaml.safe_load(file_of("zapdb-watch.yaml"))
    assert (manifest["apiVersion"], manifest["kind"]) == ("apps/v1", "Deployment")
    spec = manifest["spec"]
    pod = spec["template"]
    assert spec["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    (container,) = pod["spec"]["containers"]
    assert container["command"] == ["zapdb"]
    assert accept(container["args"]).info_name == "watch"
    assert {one["name"] for one in container["env"]} == {"ZAPDB_DATABASE"}
    assert set(container) == {
        *("name", "image", "command", "args", "env", "resources", "securityContext")
    }


def test_a_wrong_command_line_is_refused() -> None:
    with pytest.raises(Exception, match="No such option"):
        accept(["convert", "watch", "--forever"])
