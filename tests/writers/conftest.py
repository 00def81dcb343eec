"""`together.py` and `forks.py` are programs that the tests start, not modules with examples."""

collect_ignore = ["together.py", "forks.py"]
