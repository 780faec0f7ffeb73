"""The methods of the service: each function of the control plane that it has, and who may call it.

`list_tables` of `zapdb.control.catalog` is the method `/zapdb.v1.Catalog/ListTables`. Its request
has the parameters of the function, and `tenant` and `min_seq`; its answer is the message of what
the function returns, or a stream of messages if it returns an iterator.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from zapdb.control import catalog, changes, cluster, history, settings
from zapdb.control.jobs import listing, showing
from zapdb.control.migrations import applying, comparing, planning, rehearsing, rolling_back
from zapdb.migrations import GivenDirectory
from zapdb.service.messages import MessageConversion, message_conversion, parameter_conversion
from zapdb.service.principals import EVERY_TENANT, Scope
from zapdb.values.generated_source import Namespace, compile_function

if TYPE_CHECKING:
    from zapdb.aio.runtime import CallKind

PACKAGE: Final = "zapdb.v1"
OF_EVERY_REQUEST: Final = frozenset({"tenant", "min_seq"})
IDEMPOTENCY_KEY: Final = "zapdb-idempotency-key"
"""The metadata of a call that changes something: with the same key it is the same call, for 24
hours."""
NAMES_TABLES: Final = ("table", "tables")
"""The fields of a request that say which tables it is about: a grant for `data:read` may be for
some of them alone."""
READS_THE_PAST: Final = frozenset[Scope]({"data:read", "history:read"})
"""The scopes of methods whose time depends on how many records and changes there are."""
GOES_BY_TIME: Final = "since"
"""The field of a request that may say how long ago: it has another answer later."""
OF_ALL_TENANTS: Final = "all_tenants"
"""The field of a request that is about all tenants, and needs a grant for them."""


@dataclass(frozen=True)
class Method:
    """A method of the service.

    `is_look_up`: the answer is that of the catalog as of one seq, and nothing else, so it is kept
    until the seq moves. `changes`: it changes something, so a repeated call with its idempotency
    key is the same call, and `shown_by` is the command that shows what it may have changed.
    `shows_data`: its answer has values of records; one that changes something has none, since such
    answers are kept. `is_live`: each answer of its stream is sent when it is there. A request that
    `concerns_all` tenants needs a grant for all of them.
    """

    function: Callable[..., Any]
    scope: Scope
    is_look_up: bool = False
    shown_by: str = ""
    shows_data: bool = False
    is_live: bool = False
    concerns_all: Callable[[Any], bool] | None = None
    is_long: Callable[[Any], bool] | None = None
    """Whether a request may take minutes, as all do that are about files."""
    further: Callable[[Any], tuple[Scope, ...]] | None = None
    """What a request needs besides the scope."""

    @cached_property
    def service(self) -> str:
        """The full name of its service, `zapdb.v1.Catalog`."""
        module = self.function.__module__.split(".")[2]
        return f"{PACKAGE}.{module.capitalize()}"

    @cached_property
    def name(self) -> str:
        """`ListTables`."""
        return "".join(word.capitalize() for word in self.function.__name__.split("_"))

    @cached_property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"

    @cached_property
    def descriptor(self) -> MethodDescriptor:
        module = self.service.rpartition(".")[2].lower()
        described = import_module(f"zapdb.service.proto.{module}_pb2").DESCRIPTOR
        found = described.services_by_name[module.capitalize()].methods_by_name[self.name]
        return typing.cast(MethodDescriptor, found)

    @cached_property
    def request_class(self) -> type[Message]:
        return GetMessageClass(self.descriptor.input_type)

    @cached_property
    def answer_class(self) -> type[Message]:
        return GetMessageClass(self.descriptor.output_type)

    @cached_property
    def signature(self) -> inspect.Signature:
        """The parameters behind the target."""
        whole = inspect.signature(self.function)
        return whole.replace(parameters=list(whole.parameters.values())[1:])

    @cached_property
    def bind(self) -> Callable[..., dict[str, Any]]:
        """Returns the arguments of a call by name, with those that are left out; raises
        `TypeError` as the function would."""
        names, space = list(self.signature.parameters), Namespace()
        given = ", ".join(
            name if one.default is one.empty else f"{name}={space.bind(one.default, 'default')}"
            for name, one in self.signature.parameters.items()
        )
        held = ", ".join(f"{name!r}: {name}" for name in names)
        lines = [f"def {self.function.__name__}({given}):", f"    return {{{held}}}"]
        return compile_function(self.function.__name__, lines, space, f"arguments{self.path}")[0]

    @cached_property
    def _hints(self) -> Mapping[str, Any]:
        return typing.get_type_hints(self.function, include_extras=True)

    @cached_property
    def sent(self) -> str | None:
        """The parameter that is a directory of files, for whose sake requests are streams."""
        names = self.signature.parameters
        return next((name for name in names if self._hints[name] == GivenDirectory), None)

    def kind_of(self, request: Any) -> CallKind:
        """The workers that do it: what may take long holds up nothing else."""
        if self.sent is not None or (self.is_long is not None and self.is_long(request)):
            return "long"
        return "scan" if self.scope in READS_THE_PAST else "task"

    @cached_property
    def is_stream(self) -> bool:
        return get_origin(self._hints["return"]) is Iterator

    @cached_property
    def _names_tables(self) -> str | None:
        """The field of a request that names a table, or some."""
        there = self.request_class.DESCRIPTOR.fields_by_name
        return next((name for name in NAMES_TABLES if name in there), None)

    def tables_of(self, request: Any) -> tuple[str, ...] | None:
        """The tables that a request names; None if it concerns all of them."""
        name = self._names_tables
        if name is None:
            return None
        found = getattr(request, name)
        return ((found,) if isinstance(found, str) else tuple(found)) if found else None

    @property
    def changes(self) -> bool:
        return bool(self.shown_by)

    def will_change(self, request: Any) -> bool:
        """Whether a request changes something, and does not only ask what it would change."""
        return self.changes and not getattr(request, "dry_run", False)

    @cached_property
    def _may_concern_all(self) -> bool:
        return OF_ALL_TENANTS in self.request_class.DESCRIPTOR.fields_by_name

    @cached_property
    def _may_go_by_time(self) -> bool:
        return GOES_BY_TIME in self.request_class.DESCRIPTOR.fields_by_name

    def is_kept(self, request: Any) -> bool:
        """Whether the answer to a request is the same until the catalog changes."""
        return self.is_look_up and not (self._may_go_by_time and request.HasField(GOES_BY_TIME))

    def tenant_of(self, request: Any) -> str | None:
        """Every tenant, if a request concerns all of them; else None."""
        if self._may_concern_all and request.all_tenants:
            return EVERY_TENANT
        concerns_all = self.concerns_all is not None and self.concerns_all(request)
        return EVERY_TENANT if concerns_all else None

    @cached_property
    def request(self) -> MessageConversion:
        """How named arguments become a request, and back."""
        hints = {name: self._hints[name] for name in self.signature.parameters}
        return parameter_conversion(hints, self.request_class, OF_EVERY_REQUEST)

    @cached_property
    def answer(self) -> MessageConversion:
        """How an answer, or one of a stream, becomes a message, and back."""
        hint = self._hints["return"]
        return message_conversion(get_args(hint)[0] if self.is_stream else hint, self.answer_class)


def _always(request: Any) -> bool:
    """All tenants have one chain of migrations; and some methods read all records."""
    return True


def _is_measured(request: Any) -> bool:
    return bool(request.measure_seconds)


def _evicting(request: Any) -> tuple[Scope, ...]:
    return ("cluster:admin",) if request.evict else ()


def _is_of_the_database(request: Any) -> bool:
    return not request.scope.of_tenant


REVISIONS: Final = "zapdb catalog revisions"
PROCESSES: Final = "zapdb cluster status"
SETTINGS: Final = "zapdb settings list"
JOBS: Final = "zapdb jobs list --all"
CHAIN: Final = "zapdb migrate status"

METHODS: Final = (
    Method(catalog.list_tables, "catalog:read", is_look_up=True),
    Method(catalog.get_table, "catalog:read", is_look_up=True),
    Method(catalog.list_key_ranges, "data:read", shows_data=True),
    Method(catalog.get_fingerprint, "catalog:read", is_look_up=True),
    Method(catalog.get_fingerprint_history, "catalog:read", is_look_up=True),
    Method(catalog.check_pin, "catalog:read"),
    Method(catalog.compare_revisions, "catalog:read"),
    Method(catalog.prune_fingerprint_history, "catalog:admin", shown_by=REVISIONS, is_long=_always),
    Method(catalog.list_calls, "catalog:admin"),
    Method(catalog.watch_catalog, "catalog:read"),
    Method(cluster.get_status, "cluster:read"),
    Method(cluster.list_nodes, "cluster:read"),
    Method(cluster.list_leases, "cluster:read"),
    Method(cluster.find_nodes, "cluster:read"),
    Method(cluster.evict_nodes, "cluster:admin", shown_by=PROCESSES),
    Method(cluster.upgrade, "cluster:admin", shown_by=PROCESSES),
    Method(cluster.register, "cluster:join", shown_by=PROCESSES),
    Method(cluster.send_heartbeat, "cluster:join"),
    Method(cluster.deregister, "cluster:join", shown_by=PROCESSES),
    Method(settings.list_settings, "catalog:read", is_look_up=True),
    Method(settings.get_setting, "catalog:read", is_look_up=True),
    Method(
        settings.set_setting, "catalog:admin", shown_by=SETTINGS, concerns_all=_is_of_the_database
    ),
    Method(
        settings.unset_setting, "catalog:admin", shown_by=SETTINGS, concerns_all=_is_of_the_database
    ),
    Method(comparing.check, "migrate:plan"),
    Method(comparing.status, "migrate:plan"),
    Method(comparing.diff, "migrate:plan"),
    Method(planning.plan, "migrate:plan"),
    Method(rehearsing.rehearse, "migrate:plan", is_live=True),
    Method(rehearsing.rehearse_rollback, "migrate:plan", is_live=True),
    Method(listing.list_jobs, "jobs:read"),
    Method(showing.get_job, "jobs:read", is_long=_is_measured),
    Method(showing.watch_job, "jobs:read"),
    Method(listing.pause_job, "jobs:control", shown_by=JOBS),
    Method(listing.resume_job, "jobs:control", shown_by=JOBS),
    Method(listing.cancel_job, "jobs:control", shown_by=JOBS),
    Method(listing.set_job_priority, "jobs:control", shown_by=JOBS),
    Method(listing.throttle_job, "jobs:control", shown_by=JOBS),
    Method(showing.get_conversion_status, "jobs:read", is_long=_always),
    Method(showing.get_reindex_status, "jobs:read"),
    Method(history.get_moments, "history:read"),
    Method(history.get_catalog, "history:read"),
    Method(history.list_stores, "history:read"),
    Method(history.audit, "data:read", shows_data=True),
    Method(history.fetch_row, "data:read", shows_data=True),
    Method(history.get_versions, "data:read", shows_data=True),
    Method(history.list_records, "data:read", shows_data=True),
    Method(history.load_table, "data:read", shows_data=True),
    Method(history.diff_moments, "data:read", shows_data=True),
    Method(changes.get_status, "history:read"),
    Method(changes.get_followers, "history:read"),
    Method(changes.list_changes, "data:read", shows_data=True),
    Method(applying.up, "migrate:apply", shown_by=CHAIN, is_live=True, concerns_all=_always),
    Method(
        rolling_back.forget,
        "migrate:apply",
        shown_by=CHAIN,
        concerns_all=_always,
        is_long=_always,
        further=_evicting,
    ),
    Method(
        rolling_back.rollback,
        "migrate:apply",
        shown_by=CHAIN,
        is_live=True,
        concerns_all=_always,
        is_long=_always,
        further=_evicting,
    ),
)
BY_PATH: Final[Mapping[str, Method]] = {method.path: method for method in METHODS}
BY_FUNCTION: Final[Mapping[Callable[..., Any], Method]] = {
    method.function: method for method in METHODS
}
