"""Data for the tests in this folder."""

from support.data import _one_thread, empty_cache, molene_folder, ratings, real_data, server  # noqa: F401
