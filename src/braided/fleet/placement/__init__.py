"""Placement: which peer should run which component, by traffic, latency and CPU (EBS, section 4.3)."""
