"""Jobs: conversion, index builds, validation; verification and the sweep.

Here are the names for jobs as rows. What does their work has modules of its own, which a process
that only shows jobs does not import.
"""

from zapdb.catalog.row_kinds import ConstraintFinding, Job
from zapdb.jobs.job import Progress, list_jobs, read_progress
from zapdb.jobs.job_planning import plan_jobs

__all__ = [
    "ConstraintFinding",
    "Job",
    "Progress",
    "list_jobs",
    "plan_jobs",
    "read_progress",
]
