"""The accelerator does what the generated Python does, or leaves it to it."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import BuiltinFunctionType
from typing import Any

import pytest

from tests import forms
from tests.bench.codec import MEMBERS, make_members
from tests.bench.people import make_people
from tests.blobs import NO_BLOBS, MemoryBlobs
from tests.codecs_in_use import CODECS, using_codec
from tests.fuzz.test_fuzz import hostile
from tests.native.codecs import Declined, builds_of, decline, pair_of
from tests.native.edges import Tally, compare_all
from tests.native.mutants import MUTANTS, SOURCES, Mutant
from tests.native.samples import compare_samples
from tests.native.sanitized import run_sanitized
from tests.strategies import TYPES
from zapdb import accelerator, limits
from zapdb.errors import CorruptRecord, InvalidValue
from zapdb.records import (
    codec_for,
    native,
)
from zapdb.schema import Field, IndexComponent, TableSchema
from zapdb.values import Integer, Json, String, ValueType

if native.accelerator is None:
    pytest.skip("it is not built: python -m tools.native_build", allow_module_level=True)


def table_of(kind: ValueType, *, optional: bool = False) -> TableSchema:
    return TableSchema(1, "t", (1,), (Field(1, "id", Integer()), Field(2, "it", kind, optional)))


@pytest.fixture(scope="module")
def tally() -> Tally:
    return compare_all(forms.is_long)


def test_enumerated_edges_are_read_alike(tally: Tally) -> None:
    assert tally.wrong == []
    assert tally.read > 100_000


def test_what_can_be_read_is_not_left_to_python(tally: Tally) -> None:
    assert {name: count for name, count in tally.left.items() if count} == {}


@pytest.mark.parametrize("seed", range(20 if forms.is_long else 2))
def test_random_records_and_damage_are_treated_alike(seed: int) -> None:
    found = compare_samples(seed, 300 if forms.is_long else 30)
    assert found.wrong == []
    assert found.counts["decode"] > 100
    assert found.counts["decode, declined"] == 0


def benchmark_records() -> Iterator[dict[str, Any]]:
    """Those of `tests.bench.codec`, and of `people`, whose fields have the same types."""
    names = [field.name for field in MEMBERS.fields]
    yield from (member | {"id": number} for number, member in enumerate(make_members()))
    for person in make_people(0, 1_000):
        yield dict(zip(names, person.values(), strict=True))


def test_no_record_of_the_benchmarks_is_declined() -> None:
    pair, page, records = pair_of(MEMBERS), [], []
    index = builds_of(MEMBERS, (IndexComponent(2), IndexComponent(3, descending=True)))
    for record in benchmark_records():
        key, data = pair.alone.encode_key(record), pair.alone.encode(b"\x81", record, NO_BLOBS)
        assert data == pair.python.encode(b"\x81", record, NO_BLOBS)
        assert pair.alone.key_of(record["id"]) == key
        whole = pair.alone.decode(key, data, 1, NO_BLOBS)
        assert index.alone(whole) == index.python(whole)
        assert whole == pair.python.decode(key, data, 1, NO_BLOBS)
        assert pair.alone.skip(data, 1) == len(data)
        page.append((b"", key, data))
        records.append((key, whole))
    assert list(rows_of(pair.alone)(page, b"\x81", NO_BLOBS, decline)) == records


def test_the_limits_are_those_of_python() -> None:
    header = (SOURCES / "native.h").read_text(encoding="utf-8")
    assert f"#define ZAP_KEY_MAX {limits.RECORD_KEY_SIZE_BYTES_MAX}\n" in header
    assert f"#define ZAP_DEPTH_MAX {limits.JSON_DEPTH_MAX}\n" in header


def test_an_error_is_that_of_python() -> None:
    pair = pair_of(table_of(Integer()))
    with pytest.raises(InvalidValue, match=r"t\.it"):
        pair.plan.encode(b"\x81", {"id": 1, "it": "x"}, NO_BLOBS)
    with pytest.raises(CorruptRecord):
        pair.plan.decode(b"\x81", b"\x81\x00", 1, NO_BLOBS)
    with pytest.raises(Declined):
        pair.alone.decode(b"\x81", b"\x81\x00", 1, NO_BLOBS)
    with pytest.raises(TypeError):
        pair.plan.encode()


class Interrupting(int):
    """An integer during whose conversion the user presses Ctrl-C."""

    tried = 0

    def __int__(self) -> int:
        Interrupting.tried += 1
        raise KeyboardInterrupt


def test_an_interrupt_gets_through_at_once() -> None:
    pair, Interrupting.tried = pair_of(table_of(Integer())), 0
    with pytest.raises(KeyboardInterrupt):
        pair.plan.encode(b"\x81", {"id": 1, "it": Interrupting()}, NO_BLOBS)
    assert Interrupting.tried == 1


def test_large_values_become_blobs_and_are_deferred() -> None:
    pair, blobs = pair_of(table_of(String(), optional=True)), MemoryBlobs()
    attachments = blobs.attachments()
    data = pair.plan.encode(b"\x81", {"id": 1, "it": "x" * 5_000}, attachments)
    blobs.save(attachments)
    assert len(blobs.saved) == 1
    record = pair.alone.decode(b"\x81", data, 1, attachments)
    assert record.it == "x" * 5_000


def rows_of(plan: Any) -> native.Iterate:
    iterate = native.iterate_of(plan.decode)
    assert iterate is not None
    return iterate


def test_rows_are_read_one_by_one_whatever_their_revision() -> None:
    pair = pair_of(table_of(Json()))
    values = [{"id": n, "it": {"n": [n]}} for n in range(5)]
    rows = [
        (pair.python.encode_key(v), pair.python.encode(b"\x82" if n == 3 else b"\x81", v, NO_BLOBS))
        for n, v in enumerate(values)
    ]
    rows[4] = (rows[4][0], b"\x81\x00")
    met = []

    def otherwise(key: bytes, data: bytes) -> Any:
        met.append((key, data))
        return pair.python.decode(key, data, 1, NO_BLOBS)

    page = [(b"", *row) for row in rows]
    read: Iterator[Any] = rows_of(pair.plan)(page, b"\x81", NO_BLOBS, otherwise)
    assert [next(read) for _ in range(4)] == [
        (key, pair.python.decode(key, data, 1, NO_BLOBS)) for key, data in rows[:4]
    ]
    with pytest.raises(CorruptRecord):
        next(read)
    assert list(read) == []
    assert met == rows[3:]


def test_a_pair_that_is_kept_stays_as_it_is() -> None:
    """The iterator gives out its pair again only if no other has it; records go at once."""
    pair = pair_of(table_of(Json()))
    values = [{"id": n, "it": [n]} for n in range(40)]
    page = [
        (b"", pair.python.encode_key(v), pair.python.encode(b"\x81", v, NO_BLOBS)) for v in values
    ]
    expected = [(key, pair.python.decode(key, data, 1, NO_BLOBS)) for _, key, data in page]
    read = rows_of(pair.alone)(page, b"\x81", NO_BLOBS, decline)
    first = next(read)
    assert [first, *read] == expected
    seen = []
    for key, record in rows_of(pair.alone)(page, b"\x81", NO_BLOBS, decline):
        seen.append((key, record.it))
        if key == expected[20][0]:
            gc.collect()  # which stops tracking tuples of what has no parts
    assert seen == [(key, record.it) for key, record in expected]
    for bad in ((b"", b""), [b"", b"", b""], b"abc"):  # these are for Python to take apart
        with pytest.raises((Declined, ValueError)):
            next(rows_of(pair.alone)([bad], b"\x81", NO_BLOBS, decline))


def test_without_memory_nothing_wrong_is_written() -> None:
    """Whichever allocation fails: what was begun is not taken for a record."""
    testcapi = pytest.importorskip("_testcapi")
    pair = pair_of(table_of(Json()))
    record = {"id": 1, "it": {"a": ["x" * 300] * 9, "b": 1}}
    expected = pair.python.encode(b"\x81", record, NO_BLOBS)
    written = set()
    for failing in range(60):
        testcapi.set_nomemory(failing, failing + 1)
        try:
            written.add(pair.plan.encode(b"\x81", record, NO_BLOBS))
        except MemoryError:
            pass
        finally:
            testcapi.remove_mem_hooks()
    assert written == {expected}


def test_no_utf8_stays_in_a_string_of_the_caller() -> None:
    for kind, wrap in ((String(), lambda text: text), (Json(), lambda text: {text: [text]})):
        pair, text = pair_of(table_of(kind)), "東京" * 30
        before = sys.getsizeof(text)
        pair.alone.encode(b"\x81", {"id": 1, "it": wrap(text)}, NO_BLOBS)
        assert sys.getsizeof(text) == before


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_hostile_heads_allocate_next_to_nothing(kind: ValueType) -> None:
    """As in tests/fuzz, for records: by the bytes that are there, never by what they promise."""
    pair, inputs = pair_of(table_of(kind)), [*hostile(), *nested()]
    tracemalloc.start()
    try:
        for data in inputs:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            with suppress(Declined, CorruptRecord):
                pair.alone.decode(b"\x81", data, 0, NO_BLOBS)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < 64 * 1024 + 10 * len(data)  # a list has 8 bytes an item
    finally:
        tracemalloc.stop()


def nested() -> Iterator[bytes]:
    """Containers within containers, each of which promises an item for each byte that is left."""
    for head in (b"\x9a\x00\x01\x00\x00", b"\xba\x00\x01\x00\x00\x61a"):
        body = head * 60 + bytes(70_000)
        yield b"\xc2" + len(body).to_bytes(3, "big") + body


CHANGING = """\
from tests.native.finalizers import write_changing
found = write_changing(7, 1_000, 60)
assert min(found["written"], found["refused"]) > 100, found
"""


def test_a_finalizer_that_clears_what_is_written_ends_no_process() -> None:
    """What is refused allocates, and a collection may run any code."""
    environment = os.environ | {"PYTHONMALLOC": "debug"}  # which fills what was freed
    done = subprocess.run(
        [sys.executable, "-c", CHANGING], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_leaks() -> None:
    command = [sys.executable, "-m", "tests.native.leaks"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_no_reference_is_lost_on_a_debug_build_of_python() -> None:
    name = f"python{sys.version_info.major}.{sys.version_info.minor}d"
    python = shutil.which(name)
    if python is None:
        pytest.skip(f"{name} is not there: python3-dbg and python3-dev of Debian have it")
    packages = str(Path(__file__).parents[2]), sysconfig.get_path("platlib")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(packages)}
    command = [python, "-m", "tests.native.debug_build", "--seconds", "10"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def has_plan(function: Any) -> bool:
    return type(function) is BuiltinFunctionType and type(function.__self__) is tuple


def count_plans() -> int:
    return sum(map(has_plan, gc.get_objects()))


def test_plans_and_classes_are_collected() -> None:
    gc.collect()
    before = count_plans()
    pair = pair_of(table_of(Json()))
    assert count_plans() > before
    cycle: list[Any] = [rows_of(pair.plan)([], b"", None, print)]
    cycle.append(cycle)
    del pair, cycle
    gc.collect()
    assert count_plans() == before


def test_threads_share_a_plan() -> None:
    pair, wrong = pair_of(MEMBERS), []
    members = [member | {"id": n} for n, member in enumerate(make_members())]
    expected = [pair.python.encode(b"\x81", member, NO_BLOBS) for member in members]

    def run() -> None:
        for _ in range(10):
            for member, data in zip(members, expected, strict=True):
                if pair.plan.encode(b"\x81", member, NO_BLOBS) != data:
                    wrong.append(member)
                if pair.plan.decode(b"\x81", data, 1, NO_BLOBS).extra != member["extra"]:
                    wrong.append(member)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []


def version(**environment: str) -> str:
    command = [sys.executable, "-m", "zapdb", "--version"]
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_version_says_which_codec_is_in_use() -> None:
    assert version().endswith("(native codec)")
    assert version(ZAPDB_NATIVE="no").endswith("(pure Python codec)")


def test_tests_of_both_codecs_use_each() -> None:
    """What the fixtures of tests/vectors and tests/contract rely on."""
    for name in CODECS:
        with using_codec(name):
            assert has_plan(codec_for(MEMBERS).encode) == (name == "native")
            assert f"{name} " in version().lower().partition("(")[2]


def test_a_module_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert accelerator.load_accelerator() is native.accelerator
    monkeypatch.setattr(accelerator, "INTERFACE", accelerator.INTERFACE + 1)
    assert accelerator.load_accelerator() is None


def test_the_c_stays_short() -> None:
    """At most 1,200 lines, of which decision 53 says what they are for."""
    lines = [
        line for path in SOURCES.glob("*.[ch]") for line in path.read_text("utf-8").splitlines()
    ]
    assert len(lines) <= 1_200
    assert max(map(len, lines)) <= 100


SUB_INTERPRETERS = """\
import sys, threading
try:
    import _interpreters as interpreters
except ImportError:  # before Python 3.13
    import _xxsubinterpreters as interpreters
from zapdb.accelerator import load_accelerator

CODE = '''
import importlib.machinery, importlib.util, sys
sys.path[:] = {path!r}
from zapdb.accelerator import load_accelerator
loader = importlib.machinery.ExtensionFileLoader("zapdb._native", {file!r})
spec = importlib.util.spec_from_file_location("zapdb._native", {file!r}, loader=loader)
for _ in range(20):
    try:
        loader.exec_module(importlib.util.module_from_spec(spec))
    except ImportError:
        assert load_accelerator() is None
        continue
    raise AssertionError("it was loaded")
print("refused", flush=True)
'''

def run():
    one = interpreters.create()
    failed = interpreters.run_string(one, CODE)  # before 3.13 it raises
    assert not failed, failed
    interpreters.destroy(one)

def load():
    assert load_accelerator().INTERFACE

if {is_first}:
    load()
run()
run()
threads = [threading.Thread(target=run) for _ in range(2)]
for thread in threads:
    thread.start()
load()
for thread in threads:
    thread.join()
load()
"""


@pytest.mark.parametrize("is_first", [True, False], ids=["behind the main one", "before it"])
def test_sub_interpreters_are_refused(is_first: bool) -> None:
    """One after the other and two at once, with a GIL of their own where Python has that, and while
    the main interpreter loads the module, or has it."""
    assert native.accelerator is not None
    script = SUB_INTERPRETERS.format(
        file=native.accelerator.__file__, path=sys.path, is_first=is_first
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout.count("refused"), done.returncode) == (4, 0), done.stderr


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_planted_bug_is_found(mutant: Mutant, tmp_path: Path) -> None:
    module = mutant.build(tmp_path)
    command = [sys.executable, "-m", "tests.native", "--module", module, "--seconds", "60"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode >= 0:  # else the process was ended by what it had written over
        assert done.returncode == 1, done.stdout
        assert " differ\n" in done.stdout, done.stderr


@pytest.mark.long
def test_sanitizers_find_nothing() -> None:
    done = run_sanitized(60)
    assert done.returncode == 0, done.stdout + done.stderr
