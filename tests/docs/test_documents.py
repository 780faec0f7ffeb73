"""Every command and code block of the documents is run, in order, in a directory of its own.

The blocks of one document share a directory and a Python namespace:

    yaml file=PATH     is written to PATH
    python             is executed
    console            each `$ command` is run; what follows is its output, where `...` stands for
                       anything
    make               names targets of the Makefile, which must exist
    yaml               is an example of an operation; tests/unit/migrations/operations applies them
    text               is for people
"""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests import processes
from tests.cli.program import run_here
from zapdb.cli.commands import COMMANDS
from zapdb.database import Database
from zapdb.migrations.operations.operation_examples import EXAMPLES, FIRST

ROOT = Path(__file__).parents[2]
EXAMPLES_SHOWN = {FIRST, *(example.text for example in EXAMPLES.values())}
DECISIONS = ROOT / "docs" / "decisions"
ROOMS = ("zapdb", "tests", "tools", "native")
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?P<target>[^)#]+)(#[^)]*)?\)")
DECISION = re.compile(r"\bdecisions?[ \n/]\s*(?P<number>\d+)\b", re.IGNORECASE)
OF_A_SHELL = re.compile(r"[$`*?~\\|&;<>()]")
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
    try:
        for block in blocks(document):
            run_block(document, tmp_path, namespace, *block)
    finally:
        for left in namespace.values():
            if isinstance(left, Database):
                left.close()  # its threads would go on beside all other tests
            if isinstance(left, subprocess.Popen) and left.poll() is None:
                left.kill()
                left.communicate()


def run_block(document, directory, namespace, language, options, body):
    if "file" in options:
        path = directory / options["file"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body, encoding="utf-8")
    elif language == "python":
        exec(compile(body, name(document), "exec"), namespace)
    elif language == "console":
        run_console(document, body)
    elif language == "make":
        check_targets(body)
    elif language == "yaml":
        assert body.strip() in EXAMPLES_SHOWN, "an example that no test applies"
    else:
        assert language == "text", f"a block of {language!r} is not executed by any test"


def run_console(document: Path, body: str) -> None:
    for command, wanted in list_commands(body):
        output, status = run_command(document, command)
        matches = doctest.OutputChecker().check_output(wanted, output, FLAGS)
        assert matches or wanted.strip() == "...", f"$ {command}\n{output}\nwanted:\n{wanted}"
        assert status == 0 or "error:" in wanted, f"$ {command}\n{output}"


def list_commands(body: str) -> Iterator[tuple[str, str]]:
    """The commands of a console, each with its output."""
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, wanted = part.partition("\n")
        yield command, wanted


def run_command(document: Path, command: str) -> tuple[str, int]:
    """Run it by a shell, or in this process what needs no shell; but the first command of each
    module is run as a user does it. Returns what it wrote, and its status."""
    module = module_of(command)
    if module is not None and find_first_uses()[module] != (document, command):
        ran = run_here(shlex.split(command)[1:])
        return ran.out + ran.err, ran.status
    result = processes.run_shell(command, capture_output=True, text=True)
    return result.stdout + result.stderr, result.returncode


@cache
def find_first_uses() -> dict[str, tuple[Path, str]]:
    """Where in all documents each module of commands is used first."""
    found: dict[str, tuple[Path, str]] = {}
    for document in DOCUMENTS:
        for language, _, body in blocks(document):
            for command, _ in list_commands(body) if language == "console" else ():
                if (module := module_of(command)) is not None:
                    found.setdefault(module, (document, command))
    return found


def module_of(command: str) -> str | None:
    """The module of `zapdb.cli` that runs the command, if it is of zapdb, and needs no shell."""
    words = command.split()
    if words[0] != "zapdb" or OF_A_SHELL.search(command):
        return None
    group = COMMANDS
    for word in words[1:]:
        entry = group.get(word)
        if isinstance(entry, str):
            return entry.partition(".")[0]
        if entry is not None:
            group = entry.commands
    return None


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


def test_each_decision_is_in_the_index_by_its_title():
    index = (DECISIONS / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- (\d+): \[(.*)\]\((0.+)\)$", index, re.MULTILINE)
    titles = {
        path.name: re.match(r"# (\d+)\. (.+)\n", path.read_text(encoding="utf-8"))
        for path in DECISIONS.glob("0*.md")
    }
    assert sorted(listed) == sorted((*titles[page].groups(), page) for page in titles)


def test_a_decision_has_its_title_as_its_file_name():
    for page in DECISIONS.glob("0*.md"):
        number, title = re.match(r"# (\d+)\. (.+)\n", page.read_text(encoding="utf-8")).groups()
        words = re.findall(r"[a-z0-9]+", title.lower().replace("'", ""))
        assert page.name == f"{int(number):04}-{'-'.join(words)}.md"


def test_decisions_that_are_named_by_number_exist():
    numbers = {int(path.name[:4]) for path in DECISIONS.glob("0*.md")}
    texts = [*DOCUMENTS, *(path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")))]
    for path in texts:
        for match in DECISION.finditer(path.read_text(encoding="utf-8")):
            assert int(match["number"]) in numbers, f"{path}: {match[0]}"


def test_the_generated_reference_is_current():
    subprocess.run([sys.executable, "-m", "tools.docs", "--check"], cwd=ROOT, check=True)


@pytest.mark.long
def test_the_picture_of_the_readme_is_current():
    subprocess.run([sys.executable, "-m", "tools.picture", "--check"], cwd=ROOT, check=True)
