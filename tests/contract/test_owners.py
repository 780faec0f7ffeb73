"""Who is known to be dead: only a process that could be seen from here. All others have a lease."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.contract.peer import Peer, open_peer
from tests.contract.tables import ADD_COLOR, ITEMS
from tests.support import Workspace, dead_owner, dead_process, error_of, is_running
from zapdb.activation.rollback import roll_back
from zapdb.activation.up import migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.catalog.cluster import leases
from zapdb.catalog.cluster.leases import Owner
from zapdb.errors import ActivationPending, CorruptCatalog, LeaseHeld
from zapdb.storage import Storage, owners

HAS_PROC = Path("/proc/self/ns/pid").is_symlink()
linux_only = pytest.mark.skipif(not HAS_PROC, reason="needs the /proc of Linux")

ELSEWHERE: dict[str, dict[str, Any]] = {
    "host": {"host": "elsewhere"},
    "boot": {"boot": "another machine of this name"},
    "namespace": {"namespace": "pid:[1]"},
    "unknown-boot": {"boot": owners.UNKNOWN},
    "unknown-namespace": {"namespace": owners.UNKNOWN},
    "unknown-start": {"started": owners.UNKNOWN},
}


@pytest.fixture
def storage(workspace: Workspace) -> Storage:
    workspace.write(1, ITEMS)
    workspace.open().close()
    return workspace.connect()


# What is known of a process


@linux_only
def test_rule_09_a_process_of_here_that_is_no_more_is_dead() -> None:
    assert dead_owner().is_dead()
    assert not Owner.here().is_dead()
    other = subprocess.Popen(["sleep", "60"])
    try:
        started = owners._read_start(str(other.pid))
        assert not replace(Owner.here(), pid=other.pid, started=started).is_dead()
    finally:
        other.kill()
        other.wait()
    first = replace(Owner.here(), pid=1, started=owners._read_start("1"))
    assert not first.is_dead()  # another user's, as a rule


@linux_only
def test_rule_09_a_number_that_is_another_processs_by_now_is_dead() -> None:
    here = Owner.here()
    assert int(here.started) > 1
    assert replace(here, started=str(int(here.started) - 1)).is_dead()


@pytest.mark.parametrize("differs", ELSEWHERE)
def test_rule_09_a_process_that_can_not_be_seen_is_never_dead(differs: str) -> None:
    assert not replace(dead_owner(), **ELSEWHERE[differs]).is_dead()


@pytest.mark.parametrize("shown", ["nothing", "another namespace"])
def test_rule_09_without_a_proc_of_its_own_a_process_knows_less(
    shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, here = dead_owner(), Owner.here()
    if shown == "another namespace":  # as a container that has its host's /proc
        tmp_path.joinpath("sys/kernel/random").mkdir(parents=True)
        tmp_path.joinpath("sys/kernel/random/boot_id").write_text(f"{here.boot}\n")
        tmp_path.joinpath("self/ns").mkdir(parents=True)
        for name, found in zip(("pid", "time"), here.namespace.split(), strict=False):
            tmp_path.joinpath("self/ns", name).symlink_to(found)
        tmp_path.joinpath("self/status").write_text(f"NSpid:\t4711\t{here.pid}\n")
        tmp_path.joinpath(str(here.pid)).mkdir()
        stat = f"{here.pid} (another) S " + " ".join(["7"] * 30)
        tmp_path.joinpath(str(here.pid), "stat").write_text(stat)
    monkeypatch.setattr(owners, "PROC", tmp_path)
    assert not here.is_dead()
    assert gone.is_dead() is (shown == "another namespace" and bool(here.namespace))
    if shown == "nothing":
        assert not replace(Owner.here(), pid=gone.pid).is_dead()


def test_the_owner_of_a_range_that_was_tampered_with_is_told() -> None:
    here = Owner.here()
    assert Owner.parse(here.to_text()) == here
    for text in ("", "a/b/7", "[]", "7", '{"id":"a"}', '{"id":"a","host":"b","pid":1,"x":2}'):
        assert isinstance(error_of(lambda text=text: Owner.parse(text)), CorruptCatalog)


# What follows for leases


@linux_only
def test_rule_09_one_of_a_dead_process_of_this_host_is_taken_over_at_once(
    storage: Storage,
) -> None:
    leases.acquire(storage, "a", dead_owner(), 3600)
    assert leases.acquire(storage, "a", Owner.here(), 30).epoch == 2


@pytest.mark.parametrize("differs", ELSEWHERE)
def test_rule_09_processes_of_other_hosts_are_never_taken_for_dead(
    storage: Storage, differs: str
) -> None:
    leases.acquire(storage, "a", replace(dead_owner(), **ELSEWHERE[differs]), 3600)
    with pytest.raises(LeaseHeld):
        leases.acquire(storage, "a", Owner.here(), 30)


# Processes that live, and whose numbers mean nothing here

UNSHARE = ("unshare", "--pid", "--fork", "--kill-child")
WAYS = (
    (*UNSHARE, "--mount-proc"),  # root's; a server of another user can be reached from there
    (*UNSHARE, "--mount-proc", "--user", "--map-current-user"),
)


def find_way() -> tuple[str, ...]:
    """The command that begins a namespace of process numbers; skips the test if there is none."""
    if shutil.which("unshare") is None:
        pytest.skip("needs the program unshare, of util-linux")
    refused = ""
    for way in WAYS:
        tried = subprocess.run([*way, "true"], capture_output=True, text=True, check=False)
        if tried.returncode == 0:
            return way
        refused = tried.stderr.strip()
    pytest.skip(f"needs a system that lets this user run `unshare --pid`: {refused}")


@pytest.fixture
def contained(workspace: Workspace) -> Iterator[Peer]:
    """A process on this host name in a namespace of its own, where its number is one that no
    process has here; its files end at migration 1."""
    number = next(n for n in range(3, 30_000) if not is_running(n))
    script = f'n=2; while [ $n -lt {number} ]; do ( : ); n=$((n+1)); done; "$@"; exit $?'
    workspace.write(1, ITEMS)
    workspace.open().close()
    within = [*find_way(), "sh", "-c", script, "sh"]
    with open_peer(workspace, within=within, apply="never") as peer:
        assert int(peer.ask("process")) == number
        assert not is_running(number)
        yield peer


@linux_only
def test_rule_12_known_waits_for_a_process_in_another_namespace(
    workspace: Workspace, contained: Peer
) -> None:
    path = workspace.write(2, ADD_COLOR)
    path.write_text(path.read_text() + "activation: wait_for_nodes\n")
    up = lambda: migrate_up(workspace.connect(), DEFAULT_TENANT, workspace.directory)
    refused = error_of(up)
    assert isinstance(refused, ActivationPending)
    assert f"process {contained.ask('process')}" in str(refused.context["nodes"])
    assert contained.ask("insert 1") == "written"


@linux_only
def test_rule_13_a_rollback_does_not_put_out_a_process_in_another_namespace(
    workspace: Workspace, contained: Peer
) -> None:
    roll_back(workspace.connect())  # it is alive, so its table stays
    assert contained.ask("insert 1") == "written"


@pytest.mark.long_on("postgresql")
@linux_only
@pytest.mark.parametrize("differs", ["boot", "namespace", "nothing"])
def test_rule_09_a_process_of_another_boot_is_live_until_its_lease_ends(
    workspace: Workspace, differs: str
) -> None:
    """Two machines that are both called `localhost`: what is written is what the other would."""
    workspace.write(1, ITEMS)
    workspace.open().close()
    with open_peer(workspace) as peer:
        of_peer = "substr(name, 1, 5) = 'node/'"
        ((text,),) = workspace.execute(f"SELECT owner FROM zapdb_leases WHERE {of_peer}")
        owner = Owner.parse(text)
        assert owner.pid == peer.pid
        owner = replace(owner, pid=dead_process(), **ELSEWHERE.get(differs, {}))
        workspace.execute(f"UPDATE zapdb_leases SET owner = ? WHERE {of_peer}", (owner.to_text(),))
        roll_back(workspace.connect())
        if differs == "nothing":
            assert peer.ask("insert 1").startswith("LeaseLost")
        else:
            assert peer.ask("insert 1") == "written"  # to its table, which stays for it
