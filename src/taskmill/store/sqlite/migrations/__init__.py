"""Numbered SQL files; the schema is their sum. A released file is never edited, only followed."""
