"""The direct path: files that an operator's own tasks read and write, and topics, the logs made of such files."""
