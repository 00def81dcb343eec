"""Another package's files: tests/test_outside_package.py installs them and runs them there."""

collect_ignore_glob = ["*"]
