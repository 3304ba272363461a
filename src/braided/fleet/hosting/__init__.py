"""Peers on Spark: a host that runs components as queries of one Spark application, and the process around it."""
