"""Jobs: conversion, index builds, validation, rollbacks; verification and the sweep."""

from zapdb.catalog.kinds import ConstraintFinding, Job
from zapdb.jobs.job import Progress, list_jobs, read_progress
from zapdb.jobs.planning import plan_jobs
from zapdb.jobs.rebuilding import list_rebuilds, rebuild_when_opening, run_rebuilds
from zapdb.jobs.repair import IndexRepair, repair_indexes
from zapdb.jobs.rollback import RolledBack, roll_back_newest
from zapdb.jobs.run import JobReport, Runner, run_job, run_locally
from zapdb.jobs.sweep import SweepReport, sweep_blobs
from zapdb.jobs.verify import (
    BlobsReport,
    TableReport,
    check_migrations,
    report_jobs,
    verify_blobs,
    verify_by_jobs,
    verify_tenant,
)
from zapdb.jobs.verifying import plan_verification

__all__ = [
    "BlobsReport",
    "ConstraintFinding",
    "IndexRepair",
    "Job",
    "JobReport",
    "Progress",
    "RolledBack",
    "Runner",
    "SweepReport",
    "TableReport",
    "check_migrations",
    "list_jobs",
    "list_rebuilds",
    "plan_jobs",
    "plan_verification",
    "read_progress",
    "rebuild_when_opening",
    "repair_indexes",
    "report_jobs",
    "roll_back_newest",
    "run_job",
    "run_locally",
    "run_rebuilds",
    "sweep_blobs",
    "verify_blobs",
    "verify_by_jobs",
    "verify_tenant",
]
