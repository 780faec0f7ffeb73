"""Background work as range tasks: conversion, index builds, forgets, verification."""

from zapdb.jobs.forget import Forgotten, forget_newest
from zapdb.jobs.job import Job, Progress, list_jobs, read_progress
from zapdb.jobs.run import JobReport, Runner, count_stale, plan_jobs, run_job, run_locally
from zapdb.jobs.verify import TableReport, verify

__all__ = [
    "Forgotten",
    "Job",
    "JobReport",
    "Progress",
    "Runner",
    "TableReport",
    "count_stale",
    "forget_newest",
    "list_jobs",
    "plan_jobs",
    "read_progress",
    "run_job",
    "run_locally",
    "verify",
]
