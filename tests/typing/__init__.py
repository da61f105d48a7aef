# ruff: noqa: A005 - a package inside tests shadows nothing
