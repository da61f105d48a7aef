"""What users ask of an open scheduler, by kind. The verbs know sockets and values; no adapter is named here."""
