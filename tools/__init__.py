"""Maintainers only: what builds and checks the course. Nothing in the package imports it."""
