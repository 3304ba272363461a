"""Peers: agents that find each other, watch each other's load and move components, without Spark."""
