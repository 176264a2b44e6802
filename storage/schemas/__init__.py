"""Every schema a database file may have, as SQL, and the steps between them."""
