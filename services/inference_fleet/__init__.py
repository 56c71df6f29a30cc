"""An inference fleet: replicas over one Postgres, workers that dial out, any replica serves any worker."""
