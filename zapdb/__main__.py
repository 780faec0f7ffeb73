"""`python -m zapdb` is `zapdb`."""

from zapdb.cli import main

if __name__ == "__main__":
    main()
