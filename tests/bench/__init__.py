"""Benchmarks: the ratios of docs' "speed to reach", each measured side by side in one run.

`python -m tests.bench` runs all of them, `python -m tests.bench get scan` some. pytest collects
none of this. The machines that run it are small and noisy: whatever is compared runs in turns,
round by round, and medians are shown.
"""
