"""What `connect` says where it can't: nothing is connected to."""

from __future__ import annotations

import subprocess
import sys


def test_without_psycopg_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from zapdb.errors import MissingExtra\n"
        "from zapdb.storage import connect\n"
        "try: connect('postgresql://localhost/items')\n"
        "except MissingExtra as error: print(error.hint)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "pip install 'zapdb[postgres]'"
