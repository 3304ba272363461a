"""Seeing queries: a bounded history of their events, a page that draws it, a server, and reports of saved runs."""
