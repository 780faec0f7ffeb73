"""Draw the picture of README: its own example in a terminal, as SVG.

    python -m tools.picture            # writes docs/pictures/terminal.svg
    python -m tools.picture --check    # status 1 if that file is not current

The commands are run for real, in a directory of their own. Generated keys are shown as fixed ones;
durations are those of the run, and not compared by `--check`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT: Final = Path(__file__).parents[1]
README: Final = ROOT / "README.md"
PICTURE: Final = ROOT / "docs" / "pictures" / "terminal.svg"
COLUMNS: Final = 80

COMMANDS: Final = (
    "zapdb migrate up",
    "zapdb data list people",
    "zapdb convert run",
    "zapdb migrate rollback --yes",
    "zapdb data list people",
)
DATABASE: Final = "sqlite:///people.db"

FILE: Final = re.compile(
    r"^```yaml file=(?P<path>\S+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
PROGRAM: Final = re.compile(r"^```python\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
DURATION: Final = re.compile(r"\b\d+(\.\d+)? ms\b")
CELL: Final = re.compile(r"<text[^>]*>(.*?)</text>", re.S)
RATE: Final = re.compile(r" \(\d+/s\)")
KEY: Final = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")

# Rich's own frame loads a font from the network; a reader's monospace font will do.
FRAME: Final = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<title>zapdb migrate up, and zapdb migrate rollback</title>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-family: sans-serif; font-size: 18px; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def run(command: str, directory: Path) -> str:
    """What a command prints in a terminal, colours included."""
    environment = os.environ | {
        "COLUMNS": str(COLUMNS),
        "FORCE_COLOR": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "ZAPDB_DATABASE": DATABASE,
        "ZAPDB_MIGRATIONS": "migrations",
    }
    result = subprocess.run(
        command,
        shell=True,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout + result.stderr


def record() -> Text:
    """README's first migration and program, then the commands that the picture is of."""
    readme = README.read_text(encoding="utf-8")
    files = {
        found["path"]: found["text"]
        for found in FILE.finditer(readme)
        if found["path"].startswith("migrations/")
    }
    program = PROGRAM.search(readme)
    assert program is not None, "README has no program"
    shown = Text()
    with tempfile.TemporaryDirectory(prefix="zapdb-picture-") as name:
        directory = Path(name)
        (directory / "migrations").mkdir()
        (directory / "program.py").write_text(program["text"], encoding="utf-8")
        for at, (path, text) in enumerate(files.items()):
            (directory / path).write_text(text, encoding="utf-8")
            if at == 0:
                run(f"{sys.executable} program.py", directory)
        for command in COMMANDS:
            shown.append("$ ", style="bold green")
            shown.append(f"{command}\n", style="bold")
            shown.append_text(Text.from_ansi(_steady(run(command, directory)).rstrip()))
            shown.append("\n\n")
    return shown


def _steady(output: str) -> str:
    """The output with the same keys each time."""
    for at, key in enumerate(dict.fromkeys(found.group() for found in KEY.finditer(output))):
        output = output.replace(key, f"0199c5a2-7f40-7a10-8000-{at + 1:012}")
    return output


def words(picture: str) -> list[str]:
    """The words of a picture, without durations and rates, which differ from run to run."""
    text = " ".join(CELL.findall(picture)).replace("&#160;", " ")
    return DURATION.sub("", RATE.sub("", text)).split()


def draw() -> str:
    with Path(os.devnull).open("w", encoding="utf-8") as nothing:
        console = Console(record=True, width=COLUMNS, file=nothing, force_terminal=True)
        console.print(record(), end="")
        return console.export_svg(
            title="zapdb", theme=MONOKAI, code_format=FRAME, unique_id="zapdb"
        )


def main(arguments: list[str]) -> int:
    drawn = draw()
    if "--check" in arguments:
        current = PICTURE.exists() and words(PICTURE.read_text(encoding="utf-8")) == words(drawn)
        if not current:
            print(f"{PICTURE.relative_to(ROOT)} is not current: run `python -m tools.picture`")
        return 0 if current else 1
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(drawn, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
