"""Fuzzing of everything that reads stored bytes."""
