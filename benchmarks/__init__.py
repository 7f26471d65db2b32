"""Reprieve side by side with the tools that people use instead: `python -m benchmarks`."""
