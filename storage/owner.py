"""The name of the phone's user among the clients, for whoever needs no database to know it."""

OWNER = "owner"
