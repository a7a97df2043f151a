"""Packages of other authors, which use the extension points of docs/extending.md."""
