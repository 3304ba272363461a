"""Jobs: a whole streaming query as a TOML file, which `braided run` runs alone and peers run for a fleet."""
