"""Packages of strangers: what comes in through the doors of docs/extending.md."""
