"""Generated models: what they consist of at run time, and how their module is written."""
