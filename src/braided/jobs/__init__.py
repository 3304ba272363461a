"""Jobs: a whole streaming query as a TOML file, which `braided run` runs on its own and the peers of a fleet run."""
