"""What `zapdb import` reads: files of rows, databases of other programs, and exports."""
