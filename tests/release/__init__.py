"""The parts of a release: interpreters, packages and workflows."""
