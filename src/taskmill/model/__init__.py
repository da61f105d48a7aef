"""The values of taskmill: frozen, self-validating, without behaviour."""
