"""Tools of the repository, run from its root: they are not part of the package."""
