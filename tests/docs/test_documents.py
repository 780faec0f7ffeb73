"""Every command and code block of the documents is run, in order, in a directory of its own.

The blocks of one document share a directory and a Python namespace:

    yaml file=PATH     is written to PATH
    python             is executed
    console            each `$ command` is run by a shell; what follows is its output, where `...`
                       stands for anything
    make               names targets of the Makefile, which must exist
    yaml               is an example of an operation; tests/unit/migrations/operations applies them
    text               is for people
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from zapdb.migrations.operations.examples import EXAMPLES, FIRST

ROOT = Path(__file__).parents[2]
EXAMPLES_SHOWN = {FIRST, *(example.text for example in EXAMPLES.values())}
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?P<target>[^)#]+)(#[^)]*)?\)")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks(document: Path) -> Iterator[tuple[str, dict[str, str], str]]:
    for match in FENCE.finditer(document.read_text(encoding="utf-8")):
        language, *options = match["info"].split()
        yield language, dict(option.split("=", 1) for option in options), match["body"]


def name(document: Path) -> str:
    return str(document.relative_to(ROOT))


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_block_of_a_document_runs(document, tmp_path, monkeypatch, request):
    if "zapdb.spark.start_session" in document.read_text(encoding="utf-8"):
        request.getfixturevalue("spark")  # it uses the session that there is
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for language, options, body in blocks(document):
        if "file" in options:
            path = tmp_path / options["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(body, encoding="utf-8")
        elif language == "python":
            exec(compile(body, name(document), "exec"), namespace)
        elif language == "console":
            run_console(body)
        elif language == "make":
            check_targets(body)
        elif language == "yaml":
            assert body.strip() in EXAMPLES_SHOWN, "an example that no test applies"
        else:
            assert language == "text", f"a block of {language!r} is not executed by any test"


def run_console(body: str) -> None:
    binaries = str(Path(sys.executable).parent)
    environment = os.environ | {"PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, wanted = part.partition("\n")
        result = subprocess.run(
            command, shell=True, capture_output=True, text=True, env=environment, check=False
        )
        output = result.stdout + result.stderr
        matches = doctest.OutputChecker().check_output(wanted, output, FLAGS)
        assert matches or wanted.strip() == "...", f"$ {command}\n{output}\nwanted:\n{wanted}"
        assert result.returncode == 0 or "error:" in wanted, f"$ {command}\n{output}"


def check_targets(body: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for line in body.splitlines():
        assert re.search(rf"^{line.split()[1]}:.*## ", makefile, re.MULTILINE), line


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_links_between_documents_lead_somewhere(document):
    for match in LINK.finditer(document.read_text(encoding="utf-8")):
        target = match["target"]
        if "://" not in target:
            assert (document.parent / target).exists(), target


def test_the_generated_reference_is_current():
    subprocess.run([sys.executable, "-m", "tools.docs", "--check"], cwd=ROOT, check=True)


def test_the_picture_of_the_readme_is_current():
    subprocess.run([sys.executable, "-m", "tools.picture", "--check"], cwd=ROOT, check=True)
