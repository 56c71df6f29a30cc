"""The one thing replicas share: a Postgres pool, migrations, lease rows."""
