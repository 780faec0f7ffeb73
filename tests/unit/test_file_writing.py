"""Who writes files: what a person names goes through `zapdb.files`; others have a reason."""

from __future__ import annotations

import ast
import re

from tests.sources import modules

OWN = {
    "zapdb/files.py": "the one way",
    "zapdb/cli/program.py": "the null device, in place of a closed stream",
    "zapdb/past/files/history_file.py": "files of a history store, whose names zapdb makes",
    "zapdb/storage/private_file.py": "a database of this process, in a directory of its own",
    "zapdb/datasets/collation.py": "a cache of the user",
    "zapdb/cli/skipped_file.py": "goes on where an earlier run ended; checked before",
    "zapdb/cli/squashing.py": "a name of the directory of migrations, beside what it replaces",
}
WRITES = re.compile("[wax+]")
CALLS = {"write_text", "write_bytes", "copyfile", "copy", "copy2", "copytree", "mkstemp"}
OF_TEXTS = {"copy"}
"""Also methods of other things: these count as functions of a module `shutil` alone."""


def writes_file(call: ast.Call) -> bool:
    function, arguments = call.func, [*call.args, *(one.value for one in call.keywords)]
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    of = getattr(function.value, "id", "") if isinstance(function, ast.Attribute) else ""
    is_method = isinstance(function, ast.Attribute)
    if name == "open":
        if arguments and "fileno" in ast.unparse(arguments[0]):
            return False  # a text over what is open already
        modes = [one.value for one in arguments if isinstance(one, ast.Constant)]
        flags = {
            part.attr
            for one in call.args
            for part in ast.walk(one)
            if isinstance(part, ast.Attribute)
        }
        texts = [one for one in modes if isinstance(one, str) and re.fullmatch("[rwaxbt+]+", one)]
        return any(map(WRITES.search, texts)) or bool(flags & {"O_WRONLY", "O_RDWR", "O_CREAT"})
    if name == "replace":  # of a path: a text has two
        return of == "os" or (is_method and len(arguments) == 1 and not call.keywords)
    if name == "rename":
        return of == "os" or (is_method and len(arguments) == 1 and not call.keywords)
    if name == "OSFile":
        return len(arguments) > 1
    return name in CALLS and (name not in OF_TEXTS or of == "shutil")


def test_files_are_written_in_one_way() -> None:
    found = {
        f"{module.path}:{call.lineno}"
        for module in modules()
        for call in ast.walk(module.tree)
        if isinstance(call, ast.Call) and writes_file(call)
    }
    assert sorted(one for one in found if one.partition(":")[0] not in OWN) == []
    assert {one.partition(":")[0] for one in found} == set(OWN)
