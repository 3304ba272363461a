"""The dashboard: a bounded history of the events of queries, a page that draws it, a server, and saved histories."""
