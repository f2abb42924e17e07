"""The version, which is that of Ream itself."""

VERSION = "0.1.0"
