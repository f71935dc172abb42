"""The package's version, which pyproject.toml reads from here."""

VERSION = "0.1.0"
