"""Files that an operator's own tasks read and write, and topics, which are logs of such files."""
