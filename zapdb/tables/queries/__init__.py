"""Queries: conditions on fields, the plan that answers them, and its pages."""
