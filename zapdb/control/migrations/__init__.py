"""Migrations: comparing files with what the database stores, and going from one to the other."""
