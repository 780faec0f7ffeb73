"""docs/semantics.md has every rule that anything cites, and a test cites every rule."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
RULE = re.compile(r"^### Rule (\d+): ", re.MULTILINE)
CITATION = re.compile(r"\brules?\s+((?:\d+(?:\s*(?:,|and|or|to)\s+)?)+)")
TEST = re.compile(r"\bdef test_rule_(\d+)_")


def read(folder: str, pattern: str) -> str:
    paths = sorted((ROOT / folder).rglob(pattern))
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def rules() -> list[int]:
    return [int(n) for n in RULE.findall((ROOT / "docs/semantics.md").read_text(encoding="utf-8"))]


def test_the_rules_are_numbered_without_a_gap() -> None:
    assert rules() == list(range(1, len(rules()) + 1))


def test_whatever_cites_a_rule_finds_it() -> None:
    texts = read("zapdb", "*.py") + read("tests", "*.py") + read("docs", "*.md")
    cited = {int(n) for found in CITATION.findall(texts) for n in re.findall(r"\d+", found)}
    assert {1, 7, 26} <= cited, "citations are found"
    assert cited <= set(rules())


def test_every_rule_has_a_test_with_its_number() -> None:
    assert {int(n) for n in TEST.findall(read("tests", "*.py"))} == set(rules())
