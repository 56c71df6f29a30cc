"""Could this replica get this request through now: the session table, the one dialer, the links between replicas."""
