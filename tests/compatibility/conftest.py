"""Settings of these tests."""

collect_ignore = ["make_fixtures.py"]  # it belongs to version 0.1.0, whose internal names it imports
