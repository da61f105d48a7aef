"""The words of taskmill: frozen values that validate themselves, and nothing that acts."""
