"""The methods of an open scheduler, by kind. They depend on ports and values, never on a concrete adapter."""
