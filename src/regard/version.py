"""The version of the library, which runs, their steps and exports say that they were written by."""

__version__ = "0.1.0"
